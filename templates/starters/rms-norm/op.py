"""Root mean square layer normalisation."""

from ._jax import is_jax
from ._ops import ops
from ._outputs import empty_like
from ._torch import torch, torch_sees

if torch is not None:
    from ._torch_rms_norm import torch_rms_norm


def rms_norm(x, weight, eps=1e-6, out=None):
    """``x / sqrt(mean(x**2) + eps) * weight`` along the last dimension.

    Zhang and Sennrich 2019 (arXiv:1910.07467), equation 4. It is computed in float32,
    whatever the dtypes are, and rounded once: squares of a float32 ``x`` above 1.8e19
    are infinite, and then finite elements of that row become 0.

    Args:
        x: Contiguous tensor (..., n) of one dimension or more, on «"the CPU or a CUDA device" if both else "a CUDA device" if on_cuda else "the CPU"»;
            float32, float16 or bfloat16. From torch, numpy or any library with
            ``__dlpack__``.
        weight: Contiguous tensor (n,) on the device of ``x``; of the dtype of ``x``, or
            float32.
        eps: A number of at least 0.
        out: Where to write: a tensor of the shape, dtype and device of ``x``, or ``x``
            itself. A new one by default, for torch, numpy and jax.

    Returns:
        ``out``.

    Raises:
        RuntimeError: torch is asked for a gradient, which ``out`` has not.
        TypeError: ``x`` or ``weight`` has another dtype, ``out`` not the dtype of
            ``x``, or one is no tensor.
        ValueError: A tensor is not contiguous or on another device, a shape does not
            fit, ``out`` overlaps ``weight`` or a part of ``x``, or ``eps`` is negative
            or NaN.
    """
    seen = torch_sees(x, weight, out)
    if seen:
        return torch_rms_norm(x, weight, eps, out)
    if seen is None and is_jax(x):
        from ._jax_rms_norm import jax_rms_norm

        return jax_rms_norm(x, weight, eps, out)
    if out is None:
        out = empty_like(x)
    ops.rms_norm(x, weight, out, eps)
    return out
