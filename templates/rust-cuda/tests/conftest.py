«% include "templates/shared/tests/conftest.py" %»
