"""Fills in CARD.md by kernel-builder's rules: what `kernel-builder fill-card` prints, byte for byte."""

import ast
import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, TemplateError

from kernel_new.errors import KernelNewError
from kernel_new.project import Project

FILE = "CARD.md"


def fill(project: Project) -> str:
    """The card of the repository.

    Raises:
        KernelNewError: CARD.md is not a template that can be filled in, or build.toml has no `repo-id`.
    """
    file = project.path / FILE
    if not project.repo_id:
        raise KernelNewError(
            f"{project.path / 'build.toml'} does not say where on the Hub the kernel is, which its card needs",
            'Add [general.hub] with repo-id = "OWNER/NAME".',
        )
    general = project.build["general"]
    names = _exported(project)
    values = {
        "repo_id": project.repo_id,
        "version": project.version,
        "functions": [name for name in names if name != "layers"] or None,
        "layers": None,  # kernel-builder looks for layers in torch-ext/, which a tvm-ffi kernel has not.
        "has_benchmark": (project.path / "benchmarks/benchmark.py").exists(),
        "upstream": _as_url(general.get("upstream")),
        "source": _as_url(general.get("source")),
        "license": project.license.lower(),
    }
    # Markdown: nothing is escaped.
    environment = Environment(trim_blocks=True, finalize=_as_minijinja, autoescape=False)  # noqa: S701
    try:
        return environment.from_string(file.read_text(encoding="utf-8")).render(values)
    except TemplateError as error:
        number = getattr(error, "lineno", None)
        line = f", line {number}" if number else ""
        raise KernelNewError(f"{file}{line} cannot be filled in: {error}", "It is a Jinja template.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise KernelNewError(f"{file} cannot be read: {error}") from error


def _exported(project: Project) -> list[str]:
    """The strings in the list that is assigned to `__all__`, without running the package."""
    init = next(
        (file for ext in ("torch-ext", "tvm-ffi-ext") if (file := _init(project.path / ext, project)).exists()), None
    )
    try:
        statements = ast.parse(init.read_text(encoding="utf-8")).body if init else []
    except (SyntaxError, ValueError, OSError):
        return []
    for statement in statements:
        if (
            isinstance(statement, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == "__all__" for target in statement.targets)
            and isinstance(statement.value, ast.List)
        ):
            values = [element.value for element in statement.value.elts if isinstance(element, ast.Constant)]
            if names := [value for value in values if isinstance(value, str)]:
                return names
    return []


def _init(extension: Path, project: Project) -> Path:
    return extension / project.module / "__init__.py"


def _as_url(address: Any) -> str | None:
    """A git address as a URL, also one such as `git@host:owner/name`."""
    if address is None or "://" in str(address):
        return None if address is None else str(address)
    host, _, path = str(address).partition(":")
    return f"ssh://{host}/{path}"


def _as_minijinja(value: Any) -> Any:
    """kernel-builder's template engine writes `none`, `true` and lists as JSON does, Python's otherwise."""
    if value is None:
        return "none"
    return json.dumps(value) if isinstance(value, (bool, list)) else value
