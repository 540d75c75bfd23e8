«% include "templates/rust-cuda/tests/test_ptx.py" %»
