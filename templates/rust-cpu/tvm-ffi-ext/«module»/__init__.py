«% from "templates/starters/" ~ kernel ~ "/starter.jinja" import functions %»
"""The functions of this kernel."""

# Loads libtvm_ffi, which the kernel's library needs: it comes before everything else.
import tvm_ffi  # noqa: F401

from . import layers as layers
from .«op» import «functions | join(", ")»

__all__ = «functions | to_json»
