«% include "templates/starters/" ~ kernel ~ "/device.rs" %»
