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


def formula(x, weight, eps):
    """The same by jax's own ops, which know their gradients."""
    wide = x.astype(jnp.float32)
    inverse_rms = jax.lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + eps)
    return (wide * inverse_rms * weight.astype(jnp.float32)).astype(x.dtype)


def forward(x, weight, eps):
    return rms_norm(x, weight, eps), (x, weight)


def backward(eps, saved, grad):
    return jax.vjp(partial(formula, eps=eps), *saved)[1](grad)


rms_norm.defvjp(forward, backward)


def jax_rms_norm(x, weight, eps, out):
    """`rms_norm.rms_norm` of arrays of jax."""
    refuse_out(out)
    return rms_norm(x, weight, float(eps))
