«% include "templates/shared/tests/manners.py" %»
