"""``rms_norm`` as ops in `torch.library`, for graphs and gradients."""

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


def setup_context(ctx, inputs, output):
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def backward(ctx, grad):
    """The derivative of ``x * r * weight``, ``r = 1 / sqrt(mean(x**2) + eps)``.

    By x it is ``r * (g - x * r**2 * mean(g * x))`` with ``g = grad * weight``, since
    ``dr/dx = -x * r**3 / n``; by weight it is the sum of ``grad * x * r``. Both are
    computed in float32, as the op itself.
    """
    saved, weight = ctx.saved_tensors
    x, grad = saved.float(), grad.float()
    r = torch.rsqrt(x.square().mean(-1, keepdim=True) + ctx.eps)
    by_x = by_weight = None
    if ctx.needs_input_grad[0]:
        g = grad * weight
        by_x = r * (g - x * r.square() * (g * x).mean(-1, keepdim=True))
        by_x = by_x.to(saved.dtype)
    if ctx.needs_input_grad[1]:
        by_weight = (grad * x * r).sum_to_size(weight.shape).to(weight.dtype)
    return by_x, by_weight, None


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
