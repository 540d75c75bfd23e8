«% include "templates/starters/" ~ kernel ~ "/cpu.rs" %»
