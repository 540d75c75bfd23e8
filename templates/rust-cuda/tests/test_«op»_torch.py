«% include "templates/starters/" ~ kernel ~ "/test_torch.py" %»
