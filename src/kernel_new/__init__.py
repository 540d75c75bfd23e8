"""kernel-new creates complete Rust kernel repositories for Hugging Face `kernels`, and proves that they work."""


def version() -> str:
    """The installed version of kernel-new."""
    # Imported here: it takes longer than the rest of the start.
    from importlib.metadata import version

    return version("kernel-new")
