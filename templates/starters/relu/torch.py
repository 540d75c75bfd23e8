"""``relu`` as ops in `torch.library`, for graphs and gradients."""

import torch

from ._ops import ops, torch_add_op_namespace_prefix
from ._outputs import empty_like
from ._torch import refuse_gradient


@torch.library.custom_op(torch_add_op_namespace_prefix("relu"), mutates_args=())
def relu(x: torch.Tensor) -> torch.Tensor:
    out = empty_like(x)
    ops.relu(x, out)
    return out


@relu.register_fake
def fake(x):
    """What the result looks like: torch plans a graph without computing."""
    return empty_like(x)


def formula(x):
    """The same by torch's own ops, which know their gradients."""
    return torch.relu(x)


def setup_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def backward(ctx, grad):
    return torch.func.vjp(formula, *ctx.saved_tensors)[1](grad)


relu.register_autograd(backward, setup_context=setup_context)


@torch.library.custom_op(
    torch_add_op_namespace_prefix("relu_out"), mutates_args=["out"]
)
def relu_out(x: torch.Tensor, out: torch.Tensor) -> None:
    ops.relu(x, out)


def torch_relu(x, out):
    """`relu.relu`, seen by torch."""
    if out is None:
        return relu(x)
    refuse_gradient("relu with out=", "leave out= away", x, out)
    relu_out(x, out)
    return out
