"""``fwd`` as an op in `torch.library`, for graphs."""

import torch

from ._ops import ops, torch_add_op_namespace_prefix


@torch.library.custom_op(
    torch_add_op_namespace_prefix("fwd"), mutates_args=["out", "lse"]
)
def fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    alibi_slopes: torch.Tensor | None,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    left: int,
    right: int,
    softmax_scale: float | None,
    softcap: float,
) -> None:
    window, scores = (left, right), (softmax_scale, softcap)
    ops.fwd(q, k, v, alibi_slopes, out, lse, window, scores)


def torch_fwd(q, k, v, alibi_slopes, out, lse, window, scores):
    """`ops.fwd`, seen by torch."""
    fwd(q, k, v, alibi_slopes, out, lse, *window, *scores)
