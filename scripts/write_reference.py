"""Writes docs/reference/ from copier.yml, the commands and the JSON schema.

    python scripts/write_reference.py [--check]

`--check` writes nothing and exits with 1 where a page is not what it would write.
"""

import json
import re
import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

import kernel_new
from kernel_new import cli, questions

DOCS = Path(__file__).parent.parent / "docs/reference"
SCHEMA = Path(kernel_new.__file__).parent / "schema.json"
NOTE = "<!-- Written by scripts/write_reference.py: edit what it reads. -->\n"


def cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(titles)
    lines = [titles, ["---"] * len(titles), *([cell(part) for part in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def default_of(question: questions.Question) -> str:
    """The default as a reader sees it: what depends on the name, with `my-kernel` for it."""
    if "_copier_conf" in question.default:
        return "the last part of the destination"
    return f"`{question.default.replace('«name»', 'my-kernel')}`"


def questions_page() -> str:
    parts = [
        NOTE,
        "# Questions",
        "Every answer can be given as an option, as `--data KEY=VALUE`, or in a file with `--data-file`. What has no "
        "answer is asked, or takes its default with `--defaults`.",
    ]
    for question in questions.asked().values():
        parts += [f"## {question.name}", f"{question.help}."]
        if any(choice.about != choice.value for choice in question.choices):
            parts.append("\n".join(f"- `{choice.value}`: {choice.about}" for choice in question.choices))
        elif question.choices:
            parts.append("One of " + ", ".join(f"`{choice.value}`" for choice in question.choices) + ".")
        parts.append(f"Option `{question.flag}`; by default {default_of(question)}.")
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def usage(parameter: Any) -> str:
    """An argument or option as it is typed."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper()}`"
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    if parameter.is_flag:
        return f"`{names}`"
    value = parameter.metavar or parameter.name.upper()
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        value = "|".join(kind)
    elif parameter.name in questions.asked():  # Its choices are on the page of the questions.
        value = parameter.name.upper()
    return f"`{names} {value}`" + (" (repeatable)" if parameter.multiple else "")


def about(parameter: Any) -> str:
    default = parameter.default
    shown = default not in (None, False, True, "") and parameter.param_type_name == "option"
    text = str(parameter.help or "").rstrip(".").removesuffix("; repeatable")
    return f"{text}; `{default}` by default" if shown else text


def commands_page() -> str:
    group = typer.main.get_command(cli.app)
    assert isinstance(group, TyperGroup)
    parts = [
        NOTE,
        "# Commands",
        "`kernel-new DEST` is `kernel-new new DEST`. `kernel-new COMMAND --help` shows the same as this page.",
    ]
    for name, command in group.commands.items():
        options = [f"- {usage(one)}: {about(one)}" for one in command.params if one.name != "help"]
        parts += [f"## kernel-new {name}", (command.help or "").strip(), "\n".join(options)]
    parts += ["## Of kernel-new itself", "\n".join(f"- {usage(one)}: {about(one)}" for one in group.params)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def type_of(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return link(schema["$ref"])
    if schema.get("type") == "array":
        return f"list of {type_of(schema['items'])}"
    kinds = schema.get("type", "boolean")
    return " or ".join(kinds) if isinstance(kinds, list) else str(kinds)


def link(reference: str) -> str:
    title = definitions()[reference.rpartition("/")[2]]["title"]
    anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    return f"[{title.lower()}](#{anchor})"


def definitions() -> dict[str, Any]:
    found = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]
    assert isinstance(found, dict)
    return found


def json_page() -> str:
    parts = [
        NOTE,
        "# JSON",
        "With `--json` a command prints one document on stdout, and nothing else there. The schema is `schema.json` in "
        "the package `kernel_new`; this page says the same.",
    ]
    for schema in definitions().values():
        parts.append(f"## {schema['title']}")
        if "properties" not in schema:
            parts.append(f"{schema['description'].capitalize()}.")
            continue
        if "description" in schema:
            parts.append(f"{schema['description'].capitalize()}:")
        rows = [(f"`{key}`", type_of(value), value["description"]) for key, value in schema["properties"].items()]
        parts.append(table(["key", "type", ""], rows))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


PAGES = {"questions.md": questions_page, "commands.md": commands_page, "json.md": json_page}


def main(check: bool) -> int:
    DOCS.mkdir(exist_ok=True)
    stale = [name for name, page in PAGES.items() if not (DOCS / name).is_file() or (DOCS / name).read_text() != page()]
    for name in stale:
        if not check:
            (DOCS / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"docs/reference/{name} {'is not current: run this script' if check else 'was written'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
