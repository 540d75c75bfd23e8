«% from "templates/shared/second.jinja" import second %»
«% set text %»
«% include "templates/rust-cuda/src/driver.rs" %»
«% endset %»
«second(text, second_backend, shared_modules)»