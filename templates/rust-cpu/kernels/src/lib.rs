«% include "templates/rust-cuda/kernels/src/lib.rs" %»
