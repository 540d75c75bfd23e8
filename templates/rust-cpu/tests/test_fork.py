"""A kernel that was used before a fork works in the child, as in multiprocessing."""

import os
import signal

import example
import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_works_after_a_fork(kernel, framework):
«% if both %»
    if framework.device == "cuda":
        pytest.skip("CUDA does not work in a forked process")
«% endif %»
    # In the child, torch itself might wait for threads: its tensors are made before.
    call = example.prepare(kernel, framework)
    call()
    child = os.fork()
    if child == 0:
        # Ends the child, should it wait for threads that are not there.
        signal.alarm(20)
        call()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0
