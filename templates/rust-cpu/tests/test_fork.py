"""A kernel works in a child that was forked, as in multiprocessing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import example
import kernels
import pytest
from frameworks import Torch

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="no fork on this system"
)


def check_in_child(call):
    child = os.fork()
    if child == 0:
        # Ends the child, should it wait for threads that are not there.
        signal.alarm(20)
        call()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0


def test_works_after_a_fork(kernel, framework):
«% if both %»
    if framework.device == "cuda":
        pytest.skip("CUDA does not work in a forked process")
«% endif %»
    # In the child, torch itself might wait for threads: its tensors are made before.
    call = example.prepare(kernel, framework)
    call()
    check_in_child(call)


def test_first_use_after_a_fork(kernel):
    pytest.importorskip("torch")
    code = "import sys, test_fork; test_fork.first_use(sys.argv[1])"
    command = [sys.executable, "-c", code, Path(kernel.__file__).parent]
    subprocess.run(command, cwd=Path(__file__).parent, check=True)


def first_use(variant):
    """In a process of its own, where torch has threads and the kernel is new."""
    import torch

    torch.ones(1 << 20).relu_()
    kernel = kernels.get_local_kernel(Path(variant))
    check_in_child(example.prepare(kernel, Torch("cpu")))
