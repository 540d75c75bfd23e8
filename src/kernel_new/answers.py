"""Answers from flags, --data and --data-file, in that order of precedence, before copier checks them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from kernel_new import questions
from kernel_new.errors import UsageError


def gather(flags: Mapping[str, Any], pairs: list[str], file: Path | None) -> dict[str, Any]:
    """All given answers by question.

    Raises:
        UsageError: A pair has no `=`, the file cannot be read, or something answers no question.
    """
    answers = _from_file(file) if file else {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise UsageError(f"--data {pair}: expected KEY=VALUE")
        answers[name] = value
    answers |= {name: value for name, value in flags.items() if value is not None}
    answers = {name: _as_utf8(name, value) for name, value in answers.items()}
    known = questions.asked()
    for name in answers:
        if name not in known:
            raise UsageError(f"there is no question {name!r}", f"The questions are: {', '.join(known)}.")
    return answers


def _from_file(file: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{file} is not valid YAML: {error}") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise UsageError(f"{file} holds no answers: expected lines such as name: my-kernel")
    return {str(name): value for name, value in loaded.items() if not str(name).startswith("_")}


def _as_utf8(name: str, value: Any) -> Any:
    """An argument as UTF-8, also where the locale says otherwise and Python kept its bytes apart."""
    if not isinstance(value, str) or value.isprintable():
        return value
    try:
        return os.fsencode(value).decode("utf-8")
    except UnicodeError as error:
        raise UsageError(f"the answer to {name} is not UTF-8", "Write it in UTF-8.") from error
