«% include "templates/shared/flake.nix" %»
