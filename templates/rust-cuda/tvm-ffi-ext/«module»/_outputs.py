«% include "templates/shared/_outputs.py" %»
