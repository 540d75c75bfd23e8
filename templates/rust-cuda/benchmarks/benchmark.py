«% include "templates/starters/" ~ kernel ~ "/benchmark.py" %»
