«% include "templates/starters/" ~ kernel ~ "/torch.py" %»
