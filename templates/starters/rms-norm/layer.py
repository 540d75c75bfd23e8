"""Root mean square layer normalisation by this kernel, as models call it."""

import torch

from ..rms_norm import rms_norm


class RMSNorm(torch.nn.Module):
    """In the place of a layer that has a ``weight``, and an epsilon as transformers'
    ``variance_epsilon`` or `torch.nn.RMSNorm`'s ``eps``.
    """

    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        eps = getattr(self, "variance_epsilon", None)
        if eps is None:
            eps = self.eps
        return rms_norm(hidden_states.contiguous(), self.weight, eps)
