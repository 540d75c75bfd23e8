«% include "templates/shared/layers.py" %»
