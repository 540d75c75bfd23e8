«% include "templates/starters/" ~ kernel ~ "/test.py" %»
