"""Tensors for the tests, each made from and read back as float64 numpy arrays.

`Dlpack` wraps numpy memory and needs no framework: it adds bfloat16, and lets contracts
be tested for a GPU that is not there, since a refused tensor is never read. `Torch` is
the real thing on any device.
"""

import ctypes
from importlib.util import find_spec

import numpy as np

DTYPES = ("float32", "float16", "bfloat16")


class Dlpack:
    """Memory of numpy as a tensor of any dtype and device, as DLPack describes them."""

    def __init__(self, memory, dtype: str, device: str):
        self.memory, self.dtype, self.device = memory, dtype, device

    def __dlpack__(self, **_):
        capsule = self.memory.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype = ctypes.c_void_p
        pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        tensor = pointer(capsule, b"dltensor")
        # struct DLTensor of dlpack.h: device type at 8, dtype code at 20.
        ctypes.c_int32.from_address(tensor + 8).value = self.__dlpack_device__()[0]
        if self.dtype == "bfloat16":
            ctypes.c_uint8.from_address(tensor + 20).value = 4  # kDLBfloat
        return capsule

    def __dlpack_device__(self):
        return {"cpu": (1, 0), "cuda": (2, 0), "rocm": (10, 0)}[self.device]

    @property
    def shape(self):
        return self.memory.shape

    def __getitem__(self, key):
        return Dlpack(self.memory[key], self.dtype, self.device)


class Numpy:
    """numpy arrays, and `Dlpack` around them for what numpy does not have."""

    def __init__(self, device: str):
        self.device = device
        self.missing = ""

    def __str__(self):
        return "numpy"

    def tensor(self, values, dtype: str):
        values = np.asarray(values, np.float64)
        if dtype == "bfloat16":
            # The upper half of a float32, rounded to nearest even. NaN could carry.
            bits = values.astype(np.float32).view(np.uint32)
            rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
            memory = np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)
        else:
            memory = values.astype(dtype)
        plain = dtype != "bfloat16" and self.device == "cpu"
        return memory if plain else Dlpack(memory, dtype, self.device)

    def wrap(self, memory):
        """The memory of a numpy array as a tensor on the device."""
        return Dlpack(memory, str(memory.dtype), self.device)

    def empty(self, shape, dtype: str):
        return self.tensor(np.full(shape, 7.0), dtype)

    def values(self, tensor):
        if isinstance(tensor, Dlpack) and tensor.dtype == "bfloat16":
            return (
                (tensor.memory.astype(np.uint32) << 16)
                .view(np.float32)
                .astype(np.float64)
            )
        return np.asarray(getattr(tensor, "memory", tensor), np.float64)


class Torch:
    """torch tensors on one device."""

    def __init__(self, device: str):
        self.device = device
        self.missing = "" if find_spec("torch") else "torch is not installed"
        if not self.missing and device == "cuda":
            import torch

            self.missing = "" if torch.cuda.is_available() else "no CUDA device"

    def __str__(self):
        return «'f"torch-{self.device}"' if both else '"torch"'»

    def tensor(self, values, dtype: str):
        import torch

        values = torch.from_numpy(np.array(values, np.float64))
        return values.to(self.device, getattr(torch, dtype))

    def empty(self, shape, dtype: str):
        return self.tensor(np.full(shape, 7.0), dtype)

    def values(self, tensor):
        return tensor.double().cpu().numpy()


class Jax:
    """jax's arrays on one device; jax makes every output itself."""

    def __init__(self, device: str):
        self.device = device
        platform = {"cuda": "gpu"}.get(device, device)
        self.missing = next(
            (
                f"{name} is not installed"
                for name in ("jax", "jax_tvm_ffi")
                if not find_spec(name)
            ),
            "",
        )
        if not self.missing:
            import jax

            try:
                self.place = jax.devices(platform)[0]
            except RuntimeError:
                self.missing = f"jax has no {platform}"

    def __str__(self):
        return «'f"jax-{self.device}"' if both else '"jax"'»

    def tensor(self, values, dtype: str):
        import jax.numpy as jnp

        return jnp.asarray(values, dtype, device=self.place)

    def values(self, array):
        return np.asarray(array.astype("float32"), np.float64)


def available(backend: str) -> list:
    """The frameworks whose tensors the kernels of a backend can compute on."""
    return [Torch("cuda")] if backend == "cuda" else [Numpy("cpu"), Torch("cpu")]
