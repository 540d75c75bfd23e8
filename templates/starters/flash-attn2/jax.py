"""``fwd`` for jax."""

import jax
import jax.numpy as jnp
import numpy as np

from ._jax import refuse_out, register
from ._ops import jax_ffi_call, ops
from .flash_attn2 import lse_shape

register("fwd", ops.fwd, ["args", "rets", "attrs.window", "attrs.scores"])


def default_scale(dim):
    """What the op computes where it is given none: attributes of XLA are numbers."""
    return dim**-0.5


def jax_fwd(q, k, v, alibi_slopes, out, lse, window, scores):
    """``(out, lse)`` of arrays of jax; ``window`` and ``scores`` are as of `ops.fwd`."""
    refuse_out(out, lse)
    if alibi_slopes is None:
        # XLA has no array for "none"; a slope of 0 lowers no score.
        alibi_slopes = jnp.zeros(q.shape[-2], jnp.float32)
    scale, softcap = scores
    scale = default_scale(q.shape[-1]) if scale is None else scale
    results = (
        jax.ShapeDtypeStruct(q.shape, q.dtype),
        jax.ShapeDtypeStruct(lse_shape(q), jnp.float32),
    )
    return jax_ffi_call("fwd", results, vmap_method="sequential")(
        *(q, k, v, alibi_slopes),
        window=np.array(window, np.int64),
        scores=np.array([scale, softcap]),
    )
