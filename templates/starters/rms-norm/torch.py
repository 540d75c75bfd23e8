"""``rms_norm`` as ops in `torch.library`, for graphs and gradients."""

from functools import partial

import torch

from ._ops import ops, torch_add_op_namespace_prefix
from ._outputs import empty_like
from ._torch import refuse_gradient


@torch.library.custom_op(torch_add_op_namespace_prefix("rms_norm"), mutates_args=())
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    out = empty_like(x)
    ops.rms_norm(x, weight, out, eps)
    return out


@rms_norm.register_fake
def fake(x, weight, eps):
    """What the result looks like: torch plans a graph without computing."""
    return empty_like(x)


def formula(x, weight, eps):
    """The same by torch's own ops, which know their gradients."""
    wide = x.float()
    inverse_rms = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * inverse_rms * weight.float()).to(x.dtype)


def setup_context(ctx, inputs, output):
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def backward(ctx, grad):
    call = partial(formula, eps=ctx.eps)
    return *torch.func.vjp(call, *ctx.saved_tensors)[1](grad), None


rms_norm.register_autograd(backward, setup_context=setup_context)


@torch.library.custom_op(
    torch_add_op_namespace_prefix("rms_norm_out"), mutates_args=["out"]
)
def rms_norm_out(
    x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor
) -> None:
    ops.rms_norm(x, weight, out, eps)


def torch_rms_norm(x, weight, eps, out):
    """`rms_norm.rms_norm`, seen by torch."""
    if out is None:
        return rms_norm(x, weight, eps)
    refuse_gradient("rms_norm with out=", "leave out= away", x, weight, out)
    rms_norm_out(x, weight, eps, out)
    return out
