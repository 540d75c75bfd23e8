"""What a beginner meets, explained: the Markdown pages of docs/explain/, which are in the wheel too."""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from kernel_new.errors import KernelNewError, UsageError

ALSO = {
    "cuda-oxide": "device-compilers",
    "nvptx": "device-compilers",
    "metadata": "variants",
    "build": "variants",
    "src": "repository",
    "files": "repository",
    "nix": "kernel-builder",
    "verify": "proof",
    "test": "proof",
    "tensor": "dlpack",
    "jax": "torch",
    "layers": "torch",
    "gradient": "torch",
    "compile": "torch",
    "cuda": "gpu",
    "driver": "gpu",
    "publish": "hub",
    "version": "hub",
    "card": "hub",
}
"""Words that a reader may try, and the topic that answers them."""


@dataclass(frozen=True)
class Topic:
    """A page: its name on the command line, a line about it, and its Markdown."""

    name: str
    about: str
    text: str


@cache
def topics() -> dict[str, Topic]:
    """Every topic, by name."""
    return {file.stem: _read(file) for file in sorted(_directory().glob("*.md")) if file.stem != "index"}


def find(word: str) -> Topic:
    """The topic that `word` names: in any case, with hyphens or without, in the singular or the plural.

    Raises:
        UsageError: There is none; the hint names those that are near.
    """
    known = {_plain(name): name for name in [*topics(), *ALSO]}
    name = known.get(_plain(word))
    if name is None:
        matches = get_close_matches(_plain(word), known, n=3, cutoff=0.5)
        near = dict.fromkeys(ALSO.get(known[match], known[match]) for match in matches)
        hint = " or ".join(f"kernel-new explain {topic}" for topic in near)
        raise UsageError(f"there is no topic {word!r}", hint or "kernel-new explain lists them.")
    return topics()[ALSO.get(name, name)]


def _plain(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower()).removesuffix("s")


def _directory() -> Path:
    """The pages: in the wheel beside this file, or in the checkout that this file lies in."""
    here = Path(__file__).parent
    for directory in (here / "topics", here.parent.parent / "docs/explain"):
        if directory.is_dir():
            return directory
    raise KernelNewError("the topics are missing from this installation", "pip install --force-reinstall kernel-new")


def _read(file: Path) -> Topic:
    text = re.sub(r"<!--.*?-->\n*", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
    # A terminal cannot follow a link to another page of the site: its words stay.
    text = re.sub(r"\[([^]]+)\]\((?!https?:)[^)]+\)", r"\1", text)
    paragraph = text.split("\n\n")[1]
    return Topic(file.stem, re.split(r"\.(?:\s|$)", paragraph.replace("\n", " "), maxsplit=1)[0], text)
