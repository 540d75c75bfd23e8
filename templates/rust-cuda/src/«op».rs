«% include "templates/starters/" ~ kernel ~ "/cuda.rs" %»
