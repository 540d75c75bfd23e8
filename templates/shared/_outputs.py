"""Output tensors of the caller's own framework."""

import sys

from ._torch import Tensor, torch


def empty_like(x, shape=None, dtype=None, name="out"):
    """A new contiguous tensor on the device of ``x``, with undefined values.

    Args:
        x: A torch tensor or a numpy array.
        shape: That of ``x`` by default.
        dtype: A name, as "float32"; that of ``x`` by default.
        name: What errors call the new tensor.

    Raises:
        TypeError: ``x`` is no tensor, or neither one of torch nor of numpy.
    """
    if type(x) is Tensor and shape is dtype is None and x.is_contiguous():
        return torch.empty_like(x)  # The quickest way, for the most frequent case.
    if isinstance(x, Tensor):
        dtype = None if dtype is None else getattr(torch, dtype)
        if shape is None:
            contiguous = torch.contiguous_format
            return torch.empty_like(x, dtype=dtype, memory_format=contiguous)
        return x.new_empty(shape, dtype=dtype)
    # An array of a framework that was never imported cannot be here.
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, numpy.ndarray):
        return numpy.empty_like(x, dtype, order="C", shape=shape)
    kind = type(x).__name__
    if not hasattr(x, "__dlpack__"):
        raise TypeError(
            f"expected a tensor, got {kind}: "
            "torch.tensor(...) or numpy.array(...) makes one"
        )
    raise TypeError(
        f"{name}: needed for tensors of type {kind}; "
        "new outputs are torch or numpy only"
    )
