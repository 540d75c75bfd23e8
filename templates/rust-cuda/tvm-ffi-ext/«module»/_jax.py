«% include "templates/shared/_jax.py" %»
