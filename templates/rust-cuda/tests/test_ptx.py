"""The PTX is what kernels/ was compiled to; without a driver, a launch says so."""

import ctypes
import sys
from pathlib import Path

import example
import pytest
from frameworks import Numpy

sys.path.append(str(Path(__file__).parent.parent / "kernels"))
build_ptx = pytest.importorskip("build_ptx", reason="kernels/ is not here")


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def test_the_ptx_is_up_to_date():
    assert build_ptx.is_current(), f"out of date: run `{build_ptx.COMMAND}`"


@pytest.fixture
def cuda(devices):
    if "cuda" not in devices:
        pytest.skip("the loaded variant is not for cuda")
    return Numpy("cuda")


@pytest.mark.skipif(has_driver(), reason="there is a CUDA driver")
def test_a_launch_without_a_driver_says_so(kernel, cuda):
    with pytest.raises(
        RuntimeError, match="no CUDA driver: .*install the NVIDIA driver"
    ):
        example.prepare(kernel, cuda)()


def test_an_empty_tensor_needs_no_driver(kernel, cuda):
    example.prepare(kernel, cuda, count=0)()
