"""Creates a kernel repository: rendered beside its destination, checked, and renamed into place in one step."""

import os
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kernel_new import git, process, questions, template
from kernel_new.errors import KernelNewError, UsageError
from kernel_new.project import Project
from kernel_new.report import Level, Report, Watcher


@dataclass(frozen=True)
class Request:
    """What to create. `destination` is the current directory's child of the kernel's name where it is None."""

    destination: Path | None
    answers: dict[str, Any] = field(default_factory=dict)
    defaults: bool = False
    git: bool = True
    level: Level = Level.TEST
    dry_run: bool = False
    flags: frozenset[str] = frozenset()
    """Questions that were answered by a flag of their own, which must apply."""


def create(request: Request, watcher: Watcher) -> Report:
    """Create the repository and prove it.

    Raises:
        UsageError: An answer is refused, or the destination is not empty.
        KernelNewError: It cannot be written; the file system is as it was.
    """
    interactive = not request.defaults
    if interactive and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "there is no terminal to ask questions on",
            "Add --defaults, and a flag for each answer that should differ.",
        )
    if request.destination is None and request.defaults and "name" not in request.answers:
        raise UsageError("the kernel has no name", "kernel-new DEST, or --name NAME")
    destination = request.destination and _checked(request.destination)
    with process.terminated_is_interrupted(), _staging(destination or Path.cwd() / "my-kernel") as staged:
        report = Report(destination or Path())
        with report.step("render", watcher, fatal=True) as step:
            _render(staged, request)
            project = Project.read(staged)
            report.describe(project.answers())
            _refuse_useless_flags(report.answers, request)
            step.detail = f"{sum(file.is_file() for file in staged.rglob('*'))} files"
        destination = destination or _checked(Path.cwd() / project.name)
        report.path = destination
        if request.dry_run:
            report.files = sorted(str(file.relative_to(staged)) for file in staged.rglob("*") if file.is_file())
            return report
        _initialise(staged, destination, request, report, watcher)
        _move(staged, destination)
    if request.level is not Level.NONE:
        from kernel_new import verify

        verify.prove(Project(destination, project.build), request.level, report, watcher)
    report.next = _next_steps(destination, report)
    return report


def command_line(report: Report, request: Request) -> str:
    """The command that creates the same repository without asking: what differs from the defaults."""
    flags = ["kernel-new", str(report.path), "--defaults"]
    name = report.answers["name"]
    for question in questions.asked().values():
        value = report.answers.get(question.name)
        default = report.path.name if question.name == "name" else question.default.replace("«name»", name)
        if value is None or (yaml.safe_load(default) if isinstance(value, list) else default) == value:
            continue
        for part in value if isinstance(value, list) else [value]:
            flags += [question.flag, str(part)]
    if url := request.answers.get("template_url"):
        flags += ["--template-url", str(url)]
    if request.level is not Level.TEST:
        flags += ["--verify", str(request.level)]
    return shlex.join(flags if request.git else [*flags, "--no-git"])


def _checked(destination: Path) -> Path:
    """`destination` as an absolute path, refused unless it is absent or an empty directory."""
    path = Path(os.path.abspath(destination))  # noqa: PTH100  (resolve() would leave the path that the user sees)
    try:
        file = next((parent for parent in path.parents if parent.exists() and not parent.is_dir()), None)
        occupied = path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir())))
    except OSError as error:
        raise KernelNewError(f"{path} cannot be used: {error.strerror}") from error
    if file:
        raise UsageError(f"{file} is not a directory", "Choose another destination.")
    if occupied:
        raise UsageError(f"{path} already exists and is not an empty directory", "Choose another destination.")
    return path


@contextmanager
def _staging(destination: Path) -> Iterator[Path]:
    """A directory of the destination's name, beside it; removed at the end, with any parent made for it."""
    made = [parent for parent in destination.parents if not parent.exists()]
    # Named before it is made, so that an interrupt between the two leaves nothing.
    beside = destination.parent / f".kernel-new-{secrets.token_hex(4)}"
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        beside.mkdir(mode=0o700)
        yield beside / destination.name
    except OSError as error:
        raise KernelNewError(f"{error.filename or destination.parent}: {error.strerror}") from error
    finally:
        _remove(beside)
        for parent in made:
            with suppress(OSError):
                parent.rmdir()  # Only what is empty: nothing came of it.


def _remove(directory: Path) -> None:
    """Remove a directory, in which a program that was interrupted at its very start may still write for a moment."""
    for _ in range(40):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(0.05)


def _render(staged: Path, request: Request) -> None:
    """Ask what has no answer, check all answers and render, with copier."""
    # Imported here: it takes longer than everything else that kernel-new does before building.
    import copier
    from copier.errors import CopierAnswersInterrupt, CopierError

    with template.rendered_from() as source:
        try:
            copier.run_copy(
                str(source),
                staged,
                data=request.answers,
                defaults=request.defaults,
                quiet=True,
                settings=copier.Settings(),
            )
        except CopierAnswersInterrupt as error:
            raise KeyboardInterrupt from error
        except ValueError as error:
            raise _refusal(error) from error
        except CopierError as error:
            raise KernelNewError(f"the template cannot be rendered: {error}") from error


def _refuse_useless_flags(answers: dict[str, Any], request: Request) -> None:
    """Raise `UsageError` for an option whose question is not asked with these answers."""
    for name in sorted(request.flags):
        if name not in answers:
            flag = questions.asked()[name].flag
            raise UsageError(f"{flag} does not apply to {answers['backend']}", "Leave it out.")


def _refusal(error: ValueError) -> UsageError:
    """copier's refusal of an answer, with the option that would give one that it takes."""
    text = str(error)
    for question in questions.asked().values():
        if text.startswith(f"Invalid choice for '{question.name}': "):
            values = [choice.value for choice in question.choices]
            return UsageError(f"{question.name} is none of {', '.join(values)}", f"{question.flag} {values[0]}")
        prefix = f"Validation error for question '{question.name}': "
        if text.startswith(prefix):
            proposed, _, reason = text.removeprefix(f"{prefix}try ").partition(": ")
            values = yaml.safe_load(proposed) if proposed.startswith("[") else [proposed]
            return UsageError(reason, " ".join(f"{question.flag} {shlex.quote(value)}" for value in values))
    return UsageError(text)


def _initialise(staged: Path, destination: Path, request: Request, report: Report, watcher: Watcher) -> None:
    """`git init`, unless it is unwanted or the destination lies in a repository already."""
    if not request.git:
        report.skip("git", "--no-git", watcher)
    elif shutil.which("git") is None:
        report.skip("git", "git is not installed, and updates will need it", watcher)
    elif outer := git.enclosing(destination.parent):
        report.skip("git", f"it lies in the repository {outer}", watcher)
    else:
        with report.step("git", watcher, fatal=True) as step:
            git.initialise(staged)
            step.detail = "initialised, nothing committed yet"


def _move(staged: Path, destination: Path) -> None:
    """Make the repository appear: in one rename, or file by file in an empty directory that was there already."""
    moved: list[Path] = []
    try:
        if not destination.is_dir():
            staged.rename(destination)
            return
        if any(destination.iterdir()):
            raise FileExistsError(0, "it is not empty")
        # Kept, since it may be the directory that the user's shell is in.
        for entry in sorted(staged.iterdir()):
            moved.append(entry.rename(destination / entry.name))
    except BaseException as error:
        for entry in moved:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if not isinstance(error, OSError):
            raise
        raise KernelNewError(f"{destination} appeared meanwhile and was left as it is: {error.strerror}") from error


def _next_steps(destination: Path, report: Report) -> list[str]:
    """Three commands for this machine, ready to be pasted."""
    here = shlex.quote(str(destination))
    if not report.ok:
        return ["kernel-new doctor", f"kernel-new verify {here}"]
    return [f"cd {here}", "git add --all && git commit -m 'Start from kernel-new'", "pytest"]
