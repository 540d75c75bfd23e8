"""Output tensors of the caller's own framework."""

import sys


def empty(like, shape=None, dtype=None, name="out"):
    """A new contiguous tensor on the device of ``like``, with undefined values.

    Args:
        like: A torch tensor or a numpy array.
        shape: Its shape; that of ``like`` by default.
        dtype: Name of its dtype, as in "float32"; that of ``like`` by default.
        name: What errors call it.

    Raises:
        TypeError: ``like`` is neither a torch tensor nor a numpy array.
    """
    # A tensor of a framework that was never imported cannot be here.
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(like, torch.Tensor):
        if shape is None and dtype is None:  # the quickest way
            return torch.empty_like(like, memory_format=torch.contiguous_format)
        dtype = like.dtype if dtype is None else getattr(torch, dtype)
        shape = like.shape if shape is None else shape
        return torch.empty(shape, dtype=dtype, device=like.device)
    if numpy is not None and isinstance(like, numpy.ndarray):
        shape = like.shape if shape is None else shape
        return numpy.empty(shape, dtype=like.dtype if dtype is None else dtype)
    kind = type(like).__name__
    raise TypeError(
        f"{name}: needed for tensors of type {kind}; "
        "new outputs are torch or numpy only"
    )
