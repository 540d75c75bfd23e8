«% include "templates/rust-cuda/kernels/build_ptx.py" %»
