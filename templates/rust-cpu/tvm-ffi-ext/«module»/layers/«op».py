«% include "templates/starters/" ~ kernel ~ "/layer.py" %»
