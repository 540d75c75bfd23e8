«% from "templates/starters/" ~ kernel ~ "/starter.jinja" import layers %»
"""torch layers, by the names under which `kernels` finds them; none without torch."""

from .._torch import torch

if torch is not None:
    from .«op» import «layers | join(", ")»

    __all__ = «layers | to_json»
