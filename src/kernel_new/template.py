"""Where the template is: in the wheel beside this file, or the checkout that this file lies in."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from kernel_new.errors import KernelNewError


@cache
def root() -> Path:
    """The directory that holds copier.yml and templates/.

    Raises:
        KernelNewError: The installation is incomplete.
    """
    here = Path(__file__).parent
    for directory in (here / "template", here.parent.parent):
        if (directory / "copier.yml").is_file():
            return directory
    raise KernelNewError("the template is missing from this installation", "pip install --force-reinstall kernel-new")


@contextmanager
def rendered_from() -> Iterator[Path]:
    """A directory that copier renders from as it stands.

    A checkout is copied first: copier would take its latest release instead, since it is a git repository.
    """
    if not (root() / ".git").exists():
        yield root()
        return
    with TemporaryDirectory(prefix="kernel-new-") as directory:
        copy = Path(directory)
        shutil.copy(root() / "copier.yml", copy)
        shutil.copytree(root() / "templates", copy / "templates")
        yield copy


@cache
def settings() -> dict[str, object]:
    """copier.yml as it is written: question by name, and copier's own settings, which begin with `_`."""
    text = (root() / "copier.yml").read_text(encoding="utf-8")
    loaded = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    assert isinstance(loaded, dict)  # noqa: S101
    return loaded
