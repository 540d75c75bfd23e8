«% include "templates/shared/tests/frameworks.py" %»
