«% from "templates/shared/second.jinja" import second %»
«% set text %»
«% include "templates/rust-cuda/src/launch.rs" %»
«% endset %»
«second(text, second_backend, shared_modules)»