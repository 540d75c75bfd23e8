«% include "templates/shared/dispatch.rs" %»
