«% include "templates/starters/" ~ kernel ~ "/test_jax.py" %»
