«% include "templates/rust-cpu/tests/test_fork.py" %»
