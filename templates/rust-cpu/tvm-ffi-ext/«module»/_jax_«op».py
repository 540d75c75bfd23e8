«% include "templates/starters/" ~ kernel ~ "/jax.py" %»
