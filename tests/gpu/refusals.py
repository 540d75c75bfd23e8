"""What the op of an emitted rust-cuda repository must refuse, with which words; `prove_gpu.py` runs these checks."""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import tvm_ffi
from checks import SkipCheck, check, in_child, raises, relus, same


@check
def wrong_arguments(modules: list[ModuleType]) -> None:
    x = torch.ones(4, 6, device="cuda")
    for kernel in relus(modules):
        relu = kernel.relu
        if takes_cpu(kernel):
            torch.testing.assert_close(relu(-x.cpu(), x.cpu()), torch.zeros_like(x.cpu()))
        else:
            with raises(ValueError, "x", "cuda", "cpu"):
                relu(x.cpu(), x.cpu())
        with raises(ValueError, "out", "cuda:0", "cpu"):
            relu(x, x.cpu())
        with raises(TypeError, "x", "float64"):
            relu(x.double(), x.double())
        with raises(TypeError, "out", "float16"):
            relu(x, x.half())
        with raises(ValueError, "x", "contiguous"):
            relu(x.t(), x.t())
        with raises(ValueError, "out", "contiguous"):
            relu(x, torch.ones(6, 4, device="cuda").t())
        with raises(ValueError, "out", "shape"):
            relu(x, torch.ones(24, device="cuda"))
        with raises(ValueError, "out", "overlaps"):
            flat = torch.ones(100, device="cuda")
            relu(flat[:50], flat[10:60])
        same(kernel, x)  # The process is well.


def library(module: ModuleType) -> Path:
    (path,) = Path(str(module.__file__)).parent.glob("*.so")
    return path


def takes_cpu(module: ModuleType) -> bool:
    """Whether the library has the ops of the CPU too: their crate compiles `src/cpu/`, which its panics name."""
    return b"src/cpu/" in library(module).read_bytes()


def broken(module: ModuleType, *changes: bytes) -> Any:
    """The ops of the kernel's library with other PTX in it, which it holds as text: each old part, then its new one."""
    code = library(module).read_bytes()
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in code
        assert len(old) == len(new)
        code = code.replace(old, new)
    copy = Path(tempfile.mkdtemp()) / "broken.so"
    copy.write_bytes(code)
    return tvm_ffi.load_module(copy)


@check
def ptx_that_does_not_fit(modules: list[ModuleType]) -> None:
    x = torch.ones(4, device="cuda")
    found = [kernel for kernel in relus(modules) if library(kernel).read_bytes().count(b"\n.target ") == 1]
    if not found:
        raise SkipCheck("no relu has PTX for one target only")
    for kernel in found:
        with raises(RuntimeError, "driver (CUDA ", "too old", "PTX 9.9", "newer driver"):
            broken(kernel, b".version 7.0", b".version 9.9").relu(x, x)
        with raises(RuntimeError, "cuda:0 has compute capability", "sm_99", "build_ptx.py"):
            broken(kernel, b".target sm_80\n.add", b".target sm_99\n.add").relu(x, x)
        with raises(RuntimeError, "CUDA_ERROR_INVALID_PTX", "ptxas", "line"):
            broken(kernel, b"setp.le.f32", b"setp.oh.f32").relu(x, x)
        with raises(RuntimeError, "relu_f32", "not in the PTX", "build_ptx.py"):
            broken(kernel, b".entry relu_f32(", b".entry relu_x32(").relu(x, x)
        if b".maxntid 256" in library(kernel).read_bytes():
            with raises(RuntimeError, "launch relu_f32 on cuda:0 with 1 x 1 x 1 blocks of 256", "CUDA_ERROR"):
                broken(kernel, b".maxntid 256", b".maxntid 128").relu(x, x)
        same(kernel, x)


@check
def the_most_specific_ptx_is_loaded(modules: list[ModuleType]) -> None:
    """Where there is PTX for this very architecture it is loaded, whatever the base PTX is; without either, neither."""
    major, minor = torch.cuda.get_device_capability()
    specific = f".target sm_{major}{minor}a\n".encode()
    absent = specific.replace(b"_%d" % major, b"_" + b"1" * len(str(major)))
    found = [kernel for kernel in relus(modules) if specific in library(kernel).read_bytes()]
    if not found:
        raise SkipCheck(f"no relu has PTX for sm_{major}{minor}a")
    x = torch.ones(4, device="cuda")
    for kernel in found:
        broken(kernel, b".target sm_80\n.add", b".target sm_99\n.add").relu(x, x)
        with raises(RuntimeError, "cuda:0 has compute capability", "build_ptx.py"):
            code = broken(kernel, b".target sm_80\n.add", b".target sm_99\n.add", specific, absent)
            code.relu(x, x)


@in_child
def no_device(modules: list[ModuleType]) -> None:
    """Needs CUDA_VISIBLE_DEVICES to be empty, and a tensor that only says that it is on a GPU."""
    for kernel in relus(modules):
        pretender = Pretender()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pretender))  # It must outlive the tensor.
        x = tvm_ffi.from_dlpack(pretender)
        with raises(RuntimeError, "no CUDA device", "nvidia-smi"):
            kernel.relu(x, x)


class Pretender:
    """One float32 at an address of no memory, on `cuda:0` as it says."""

    def __init__(self) -> None:
        self.shape = (ctypes.c_int64 * 1)(1)
        fields = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32)]
        fields += [("dtype", ctypes.c_uint32), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p)]
        fields += [("offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]
        managed = type("Managed", (ctypes.Structure,), {"_fields_": fields})
        float32 = 2 | 32 << 8 | 1 << 16
        address = ctypes.addressof(self.shape)
        self.managed = managed(4096, (ctypes.c_int32 * 2)(2, 0), 1, float32, address, address, 0)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **_: Any) -> Any:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)
