"""kernel-new creates complete Rust kernel repositories for Hugging Face `kernels`, and proves that they work."""

from importlib.metadata import version

__version__ = version("kernel-new")
