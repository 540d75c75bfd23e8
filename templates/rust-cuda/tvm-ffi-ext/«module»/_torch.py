«% include "templates/shared/_torch.py" %»
