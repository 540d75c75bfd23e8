"""The questions of copier.yml as data, so that options, choices, help and defaults are written only there."""

from dataclasses import dataclass
from functools import cache
from typing import cast

from kernel_new import template


@dataclass(frozen=True)
class Choice:
    """One value that a question takes, and a line about it."""

    value: str
    about: str


@dataclass(frozen=True)
class Question:
    """A question that is asked: `default` is Jinja where it depends on other answers."""

    name: str
    help: str
    default: str
    choices: tuple[Choice, ...]
    is_text: bool = True

    @property
    def values(self) -> list[str]:
        """The values of its choices."""
        return [choice.value for choice in self.choices]

    @property
    def flag(self) -> str:
        """The option that answers it."""
        return f"--{self.name.replace('_', '-')}"


BY_FLAG = ("second_backend",)
"""Questions that have a default which suits nearly everybody: a flag answers them, and nobody is asked."""


@cache
def asked() -> dict[str, Question]:
    """Every question that is asked, by name and in order."""
    return {
        name: _question(name, cast("dict[str, object]", details))
        for name, details in template.settings().items()
        if not name.startswith("_") and cast("dict[str, object]", details).get("when") is not False
    }


def constant(name: str) -> str:
    """The value of a derived entry that does not depend on any answer, such as `template_url`."""
    return str(cast("dict[str, object]", template.settings()[name])["default"])


def op(kernel: object) -> str:
    """The op of a starter kernel, as Rust and Python call it."""
    return str(kernel).replace("-", "_")


def _question(name: str, details: dict[str, object]) -> Question:
    choices = details.get("choices", {})
    if isinstance(choices, list):
        pairs = [(str(value), str(value)) for value in choices]
    else:
        pairs = [(str(value), label) for label, value in cast("dict[str, str]", choices).items()]
    described = tuple(Choice(value, about.removeprefix(f"{value}: ")) for value, about in pairs)
    text = details.get("type") == "str"
    return Question(name, str(details.get("help", "")), str(details.get("default", "")), described, text)
