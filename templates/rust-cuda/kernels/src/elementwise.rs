«% include "templates/device/" ~ device_compiler ~ "/elementwise.rs" %»
