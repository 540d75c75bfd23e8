"""Answers, and what copier.yml's Jinja makes of them: defaults, conditions, refusals."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jinja2
from jinja2.sandbox import SandboxedEnvironment

from kernel_new import template
from kernel_new.questions import Question


class Form:
    """The answers so far, and copier.yml's Jinja over them."""

    def __init__(self, destination: Path, given: dict[str, Any]) -> None:
        settings = template.settings()
        options = cast("dict[str, Any]", settings["_envops"]) | {"undefined": jinja2.StrictUndefined}
        self.jinja = SandboxedEnvironment(
            loader=jinja2.FileSystemLoader(template.root()),
            extensions=["jinja2_ansible_filters.AnsibleCoreFiltersExtension"],
            **options,
        )
        self.answers: dict[str, Any] = dict(given)
        self.conf = SimpleNamespace(dst_path=destination)

    def render(self, question: Question, key: str, **extra: Any) -> str:
        """A template of a question; empty where it has none."""
        details = cast("dict[str, Any]", template.settings()[question.name])
        context = {**self.answers, "_copier_conf": self.conf, **extra}
        return self.jinja.from_string(str(details.get(key, ""))).render(context).strip()

    def applies(self, question: Question) -> bool:
        return self.render(question, "when") in ("", "True")

    def refusal(self, question: Question, answer: Any) -> str:
        """Why copier would refuse an answer; empty where it would not."""
        if question.choices and answer not in question.values:
            return "none of the choices"
        return self.render(question, "validator", **{question.name: answer})
