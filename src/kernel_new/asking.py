"""Asks the questions of copier.yml in a terminal: what each is about, a line on each choice, the default in brackets.

copier's own prompts write the default into the line, where typing adds to it, and cut what is wider than the terminal.
The questions, defaults, conditions and refusals are those of copier.yml, and copier checks every answer again.
"""

import re
import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from questionary import Choice, Style, select
from rich.console import Console

from kernel_new import console, questions, refusals
from kernel_new.console import escape
from kernel_new.errors import KernelNewError
from kernel_new.form import Form
from kernel_new.questions import Question

STYLE = Style([("pointer", "bold"), ("highlighted", "bold"), ("selected", "noinherit"), ("instruction", "noinherit")])
"""No colours: what stands out must do so on dark and on light."""


def ask(destination: Path, given: dict[str, Any], check_name: Callable[[str], object] | None = None) -> dict[str, Any]:
    """Every answer: those that are given, and those that the user gives now.

    An answer given beforehand that is refused ends the questions: copier will say why. `check_name` raises
    `KernelNewError` where nothing can be created under a name.

    Raises:
        KeyboardInterrupt: The user wants no more of it.
    """
    with suppress(ImportError):
        import readline  # noqa: F401  (it gives input() its line editing)
    form = Form(destination, given)
    out = console.stdout()
    for question in questions.asked().values():
        if question.name in given:
            if form.refusal(question, given[question.name]):
                return form.answers
            if check_name and question.name == "name":
                check_name(given["name"])
        elif question.name in questions.BY_FLAG:
            form.answers[question.name] = form.render(question, "default")
        elif form.applies(question):
            form.answers[question.name] = _ask(form, question, out, check_name if question.name == "name" else None)
    return form.answers


def _ask(form: Form, question: Question, out: Console, check: Callable[[str], object] | None) -> Any:
    default = form.render(question, "default")
    out.print(f"\n[bold]{escape(question.help)}[/]", soft_wrap=False)
    if question.choices:
        return _choose(question, default, out)
    listed = default.startswith("[")
    while True:
        shown = ", ".join(yaml.safe_load(default)) if listed else default
        try:
            text = input(f"  {question.name.replace('_', ' ')} [{shown}]: ").strip()
        except EOFError as error:
            out.print()
            raise KeyboardInterrupt from error
        answer = _listed(text or default) if listed else text or default
        refused = _refusal(form, question, answer, check)
        if not refused:
            return answer
        console.show_wrapped(f"[red]{escape(refused)}[/]", out, "  ")


def _refusal(form: Form, question: Question, answer: Any, check: Callable[[str], object] | None) -> str:
    """Why an answer is refused, with one to type instead; empty where it is not."""
    if refused := form.refusal(question, answer):
        refusal = refusals.of(question, refused)
        return f"try {', '.join(refusal.proposed)}: {refusal.reason}"
    try:
        if check:
            check(answer)
    except KernelNewError as error:
        return f"{error.message}\n{error.hint}"
    return ""


def _listed(text: str) -> Any:
    """A list as a person types it: 8.0, 9.0a; with quotes, and as YAML too."""
    if text.startswith("["):
        with suppress(yaml.YAMLError, TypeError):
            return [str(part) for part in yaml.safe_load(text)]
    return re.sub(r"[\[\]\"',]", " ", text).split()


def _choose(question: Question, default: str, out: Console) -> str:
    """One of the choices, which the arrow keys move between."""
    width = max(20, out.width - 4)
    wrapper = textwrap.TextWrapper(width, subsequent_indent="     ", break_on_hyphens=False)
    choices = [Choice("\n".join(wrapper.wrap(_title(choice))), value=choice.value) for choice in question.choices]
    chosen = select(
        "",
        choices=choices,
        default=default,
        qmark="",
        pointer=">",
        style=STYLE,
        instruction="(arrow keys, then Enter)",
        erase_when_done=True,
    ).unsafe_ask()
    out.print(f"  {question.name.replace('_', ' ')}: {escape(str(chosen))}")
    return str(chosen)


def _title(choice: questions.Choice) -> str:
    return choice.value if choice.about == choice.value else f"{choice.value}: {choice.about}"
