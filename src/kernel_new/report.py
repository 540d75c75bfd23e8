"""What a command did, as data: shown by console.py as text or as one JSON document."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from kernel_new.errors import CommandError, KernelNewError


class Level(StrEnum):
    """How far to prove; each level includes those before it."""

    NONE = "none"
    BUILD = "build"
    LOAD = "load"
    TEST = "test"


@dataclass
class Step:
    """One step: how it went, how long it took in seconds, and a line about it.

    `output` is what a failed program printed; `hint` says what to do.
    """

    name: str
    ok: bool = True
    skipped: bool = False
    seconds: float = 0.0
    detail: str = ""
    hint: str = ""
    output: str = ""
    fatal: bool = False
    """Whether its failure ends the command, whose error then says what this step would."""


class Watcher(Protocol):
    """Sees the work while it goes on."""

    def begin(self, step: str) -> None: ...

    def progress(self, text: str, done: int, total: int) -> None: ...

    def end(self, step: Step) -> None: ...


class Quiet:
    """Shows nothing while the work goes on."""

    def begin(self, step: str) -> None:
        """Nothing."""

    def progress(self, text: str, done: int, total: int) -> None:
        """Nothing."""

    def end(self, step: Step) -> None:
        """Nothing."""


@dataclass
class Report:
    """A whole command: its steps in order, and what to do next."""

    path: Path
    answers: dict[str, Any] = field(default_factory=dict)
    template: dict[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    next: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """What would be written, relative to `path`; filled by a dry run only."""

    @property
    def ok(self) -> bool:
        return all(step.ok for step in self.steps)

    def describe(self, recorded: dict[str, Any]) -> None:
        """Take over what copier recorded: where the template is, its version, and the answers."""
        self.template = {
            key: str(recorded[source])
            for key, source in (("url", "_src_path"), ("version", "_commit"))
            if source in recorded
        }
        self.answers = {name: value for name, value in recorded.items() if not name.startswith("_")}

    @contextmanager
    def step(self, name: str, watcher: Watcher, *, fatal: bool = False) -> Iterator[Step]:
        """Time a step, and record its failure; raise it as well where it is fatal to the command."""
        step = Step(name, fatal=fatal)
        watcher.begin(name)
        started = time.perf_counter()
        try:
            yield step
        except BaseException as error:
            step.ok = False
            if isinstance(error, KernelNewError):
                step.detail, step.hint = error.message, error.hint
                step.output = error.output if isinstance(error, CommandError) else ""
            elif isinstance(error, OSError):  # Such as a full disk while the built library is copied.
                step.detail = f"{error.filename or name}: {error.strerror or error}"
            if fatal or not isinstance(error, KernelNewError | OSError):
                step.fatal = True
                watcher.end(step)  # What it shows of the work would stay on the screen.
                raise
        finally:
            step.seconds = round(time.perf_counter() - started, 3)
        self.steps.append(step)
        watcher.end(step)

    def skip(self, name: str, reason: str, watcher: Watcher) -> None:
        """Record a step that does not run, and why."""
        step = Step(name, skipped=True, detail=reason)
        self.steps.append(step)
        watcher.end(step)

    def as_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        steps = [
            {
                "name": step.name,
                "ok": step.ok,
                "skipped": step.skipped,
                "seconds": step.seconds,
                "detail": "\n".join(part for part in (step.detail, step.output.strip()) if part),
            }
            for step in self.steps
        ]
        document: dict[str, Any] = {
            "ok": self.ok,
            "path": str(self.path),
            "answers": self.answers,
            "template": self.template,
            "steps": steps,
            "next": self.next,
        }
        return {**document, "files": self.files} if self.files else document
