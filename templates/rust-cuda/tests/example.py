«% include "templates/starters/" ~ kernel ~ "/example.py" %»
