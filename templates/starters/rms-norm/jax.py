"""``rms_norm`` for jax, and its gradient."""

from functools import partial

import jax
import jax.numpy as jnp

from ._jax import refuse_out, register
from ._ops import jax_ffi_call, ops

register("rms_norm", ops.rms_norm, ["args", "rets", "attrs.eps"])


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def rms_norm(x, weight, eps):
    result = jax.ShapeDtypeStruct(x.shape, x.dtype)
    call = jax_ffi_call("rms_norm", result, vmap_method="sequential")
    return call(x, weight, eps=eps)


def forward(x, weight, eps):
    return rms_norm(x, weight, eps), (x, weight)


def backward(eps, saved, grad):
    """The derivative of ``x * r * weight``, ``r = 1 / sqrt(mean(x**2) + eps)``.

    By x it is ``r * (g - x * r**2 * mean(g * x))`` with ``g = grad * weight``, since
    ``dr/dx = -x * r**3 / n``; by weight it is the sum of ``grad * x * r``. Both are
    computed in float32, as the op itself.
    """
    x, weight, grad = (array.astype(jnp.float32) for array in (*saved, grad))
    r = jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + eps)
    g = grad * weight
    by_x = r * (g - x * r**2 * jnp.mean(g * x, -1, keepdims=True))
    by_weight = jnp.sum(grad * x * r, axis=range(x.ndim - 1))
    return by_x.astype(saved[0].dtype), by_weight.astype(saved[1].dtype)


rms_norm.defvjp(forward, backward)


def jax_rms_norm(x, weight, eps, out):
    """`rms_norm.rms_norm` of arrays of jax."""
    refuse_out(out)
    return rms_norm(x, weight, float(eps))
