"""Attention by this kernel, as models call it."""

import torch

from ..flash_attn2 import flash_attn_func


class FlashAttention2(torch.nn.Module):
    """Attention of ``q``, ``k`` and ``v``, each (batch, seqlen, heads, dim), in the place
    of a layer with this ``forward``. It has no gradient.
    """

    can_torch_compile = True
    has_backward = False

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        softmax_scale: float | None = None,
        causal: bool = False,
    ) -> torch.Tensor:
        return flash_attn_func(q, k, v, softmax_scale, causal)
