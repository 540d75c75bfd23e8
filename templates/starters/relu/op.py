"""Element-wise ``max(x, 0)``."""

from ._jax import is_jax
from ._ops import ops
from ._outputs import empty_like
from ._torch import torch, torch_sees

if torch is not None:
    from ._torch_relu import torch_relu


def relu(x, out=None):
    """Element-wise ``max(x, 0)``. NaN stays NaN.

    Args:
        x: Contiguous tensor of any shape on «"the CPU or a CUDA device" if both else "a CUDA device" if on_cuda else "the CPU"»;
            float32, float16 or bfloat16. From torch, numpy or any library with
            ``__dlpack__``.
        out: Where to write: a tensor of the shape, dtype and device of ``x``, or ``x``
            itself. A new one by default, for torch, numpy and jax.

    Returns:
        ``out``.

    Raises:
        RuntimeError: torch is asked for a gradient, which ``out`` has not.
        TypeError: ``x`` has another dtype, ``out`` not the dtype of ``x``, or one is
            no tensor.
        ValueError: A tensor is not contiguous or on another device, shapes differ, or
            ``out`` overlaps a part of ``x``.
    """
    seen = torch_sees(x, out)
    if seen:
        return torch_relu(x, out)
    if seen is None and is_jax(x):
        from ._jax_relu import jax_relu

        return jax_relu(x, out)
    if out is None:
        out = empty_like(x)
    ops.relu(x, out)
    return out
