"""What the functions need for jax: its arrays are immutable, and XLA makes the outputs."""

import sys
from importlib.util import find_spec

from ._ops import jax_register_ffi_target


def is_jax(x):
    """Whether ``x`` is an array of jax, or stands for one under `jax.jit`."""
    # An array of a framework that was never imported cannot be here.
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array)


def register(name, function, arg_spec):
    """Let `jax_ffi_call` find a function of the library.

    Args:
        arg_spec: The function's arguments: "args", "rets", or "attrs.<name>".

    Raises:
        ImportError: The package jax-tvm-ffi is missing.
    """
    if find_spec("jax_tvm_ffi") is None:
        raise ImportError("jax arrays need jax-tvm-ffi: pip install jax-tvm-ffi")
    # The op itself refuses a device that it cannot compute on.
    for platform in ("cpu", "gpu"):
        jax_register_ffi_target(name, function, arg_spec, platform=platform)


def refuse_out(*outputs):
    """Refuse outputs of the caller.

    Raises:
        TypeError: One is given.
    """
    if any(out is not None for out in outputs):
        raise TypeError("out: arrays of jax are immutable; use the result instead")
