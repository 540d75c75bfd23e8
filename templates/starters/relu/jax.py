"""``relu`` for jax, and its gradient."""

import jax
import jax.numpy as jnp

from ._jax import refuse_out, register
from ._ops import jax_ffi_call, ops

register("relu", ops.relu, ["args", "rets"])


@jax.custom_vjp
def relu(x):
    result = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax_ffi_call("relu", result, vmap_method="broadcast_all")(x)


def formula(x):
    """The same by jax's own ops, which know their gradients."""
    return jnp.where(x <= 0, 0, x)


def forward(x):
    return relu(x), (x,)


def backward(saved, grad):
    return jax.vjp(formula, *saved)[1](grad)


relu.defvjp(forward, backward)


def jax_relu(x, out):
    """`relu.relu` of arrays of jax."""
    refuse_out(out)
    return relu(x)
