«% include "templates/shared/checks.rs" %»
