«% include "templates/starters/" ~ kernel ~ "/op.py" %»
