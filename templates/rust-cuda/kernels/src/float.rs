«% include "templates/device/" ~ device_compiler ~ "/float.rs" %»
