«% include "templates/starters/" ~ kernel ~ "/device-" ~ device_compiler ~ ".rs" %»
