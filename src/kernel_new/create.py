"""Creates a kernel repository: rendered beside its destination, checked, and renamed into place in one step."""

import errno
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kernel_new import git, interrupted, next_steps, questions, refusals, staging, template
from kernel_new.errors import KernelNewError, StoppedError, UsageError
from kernel_new.form import Form
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
    approve: Callable[[Report, list[str], Level], bool] | None = None
    """Asked before anything appears at the destination, with the files that will be there."""


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
    refusals.check_texts(request.answers)
    destination = request.destination and _checked(request.destination)
    git.probe()
    with staging.beside(destination or _absolute(Path("my-kernel"))) as staged:
        report = Report(destination or Path())
        with report.step("render", watcher, fatal=True) as step:
            _render(staged, request)
            project = Project.read(staged)
            report.describe(project.answers())
            _refuse_useless_flags(report.answers, request)
            destination = report.path = destination or _checked(Path.cwd() / project.name)
            files = sorted(str(file.relative_to(staged)) for file in staged.rglob("*") if file.is_file())
            step.detail = f"{len(files)} files"
            if request.approve and not (request.dry_run or request.approve(report, files, request.level)):
                raise StoppedError("nothing was written")
        if request.dry_run:
            report.files = files
            return report
        _initialise(staged, destination, request, report, watcher)
        _move(staged, destination)
    if request.level is not Level.NONE:
        from kernel_new import verify

        with interrupted.proof(f"{destination} was written", destination):
            verify.prove(Project(destination, project.build), request.level, report, watcher)
    report.next = next_steps.commands(destination, report)
    return report


def command_line(report: Report, request: Request) -> str:
    """The command that creates the same repository without asking: what differs from the defaults."""
    flags = ["kernel-new", str(report.path), "--defaults"]
    form = Form(report.path, report.answers)
    for question in questions.asked().values():
        value = report.answers.get(question.name)
        if value is None:
            continue
        default = form.render(question, "default")
        if (yaml.safe_load(default) if isinstance(value, list) else default) == value:
            continue
        for part in value if isinstance(value, list) else [value]:
            flags += [question.flag, str(part)]
    if url := request.answers.get("template_url"):
        flags += ["--template-url", str(url)]
    if request.level is not Level.TEST:
        flags += ["--verify", str(request.level)]
    return shlex.join(flags if request.git else [*flags, "--no-git"])


UNUSABLE = re.compile(r"[%:\x00-\x1f\x7f-\x9f]")
"""What cargo or the linker does not take in the path of a target directory, or no terminal can show."""


def _checked(destination: Path) -> Path:
    """`destination` as an absolute path, refused unless it is absent or an empty directory where cargo can build."""
    path = _absolute(destination)
    try:
        physical = path.resolve()
        file = next((parent for parent in path.parents if parent.exists() and not parent.is_dir()), None)
        occupied = path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir())))
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise KernelNewError(f"{path} cannot be used: {reason}", "Choose another destination.") from error
    if file:
        raise UsageError(f"{file} is not a directory", "Choose another destination.")
    if occupied:
        verify = f"\nOr prove what is there: kernel-new verify {shlex.quote(str(path))}"
        hint = f"Choose another destination.{verify * (path / 'build.toml').is_file()}"
        raise UsageError(f"{path} already exists and is not an empty directory", hint)
    for part in (path, physical):
        if reason := _unusable(part):
            raise UsageError(f"{part} has {reason} in its path, where cargo cannot build", "Choose another directory.")
    return path


def _absolute(path: Path) -> Path:
    """The path as the user sees it: without `..`, and with its links."""
    try:
        return Path(os.path.abspath(path))  # noqa: PTH100  (resolve() would follow the links)
    except FileNotFoundError as error:
        raise KernelNewError("the current directory no longer exists", "cd to another one.") from error


def _unusable(path: Path) -> str:
    """The character in a path that cannot be there, in words; empty where all is well."""
    try:
        found = UNUSABLE.search(os.fsencode(path).decode("utf-8"))
    except UnicodeDecodeError:
        return "bytes that are not UTF-8"
    return "" if not found else repr(found[0]) if found[0].isprintable() else "a control character"


def _render(staged: Path, request: Request) -> None:
    """Ask what has no answer, check all answers and render, with copier."""
    # Imported here: it takes longer than everything else that kernel-new does before building.
    import copier
    from copier.errors import CopierError

    answers = request.answers
    if not request.defaults:
        from kernel_new import asking

        free = None if request.destination else lambda name: _checked(Path.cwd() / name)
        answers = asking.ask(staged, answers, free)
    with template.rendered_from() as source:
        try:
            copier.run_copy(
                str(source),
                staged,
                data=answers,
                defaults=True,
                quiet=True,
                settings=copier.Settings(),
            )
        except ValueError as error:
            refusal = refusals.read(str(error))
            raise refusal.error() if refusal else UsageError(str(error)) from error
        except CopierError as error:
            raise KernelNewError(f"the template cannot be rendered: {error}") from error


def _refuse_useless_flags(answers: dict[str, Any], request: Request) -> None:
    """Raise `UsageError` for an option whose question is not asked with these answers."""
    for name in sorted(request.flags):
        if name not in answers:
            flag = questions.asked()[name].flag
            raise UsageError(f"{flag} does not apply to {answers['backend']}", "Leave it out.")


def _initialise(staged: Path, destination: Path, request: Request, report: Report, watcher: Watcher) -> None:
    """`git init`, unless it is unwanted or the destination lies in a repository already."""
    if not request.git:
        report.skip("git", "--no-git", watcher)
    elif shutil.which("git") is None:
        report.skip("git", "git is not installed, and updates will need it", watcher)
    elif outer := git.enclosing(destination.parent) or git.marked(destination.parent):
        report.skip("git", f"it lies in the repository {outer}", watcher)
    else:
        with report.step("git", watcher, fatal=True) as step:
            git.initialise(staged)
            step.detail = "initialised, nothing committed yet"


def _move(staged: Path, destination: Path) -> None:
    """Make the repository appear, in one rename; file by file only in an empty directory that has to stay."""
    moved: list[Path] = []
    try:
        if not _must_stay(destination, staged):
            with suppress(FileNotFoundError):
                shutil.copymode(destination, staged)
            try:
                return _rename(staged, destination)
            except OSError as error:
                if error.errno != errno.EBUSY:  # a mount point
                    raise
        if any(destination.iterdir()):
            raise FileExistsError(errno.ENOTEMPTY, "it is not empty")
        for entry in sorted(staged.iterdir()):
            moved.append(entry.rename(destination / entry.name))
    except BaseException as error:
        for entry in moved:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if not isinstance(error, OSError):
            raise
        raise KernelNewError(
            f"{destination} appeared meanwhile and was left as it is: {error.strerror or error}"
        ) from error


def _must_stay(destination: Path, staged: Path) -> bool:
    """Whether an empty directory is there that no other may replace: the user's shell is in it, or it is another's."""
    try:
        there, ours, here = destination.stat(), staged.stat(), Path().stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(there, here) or (there.st_uid, there.st_gid) != (ours.st_uid, ours.st_gid)


def _rename(staged: Path, destination: Path) -> None:
    """The step in which the repository appears: an empty directory gives way, whatever else is there does not."""
    staged.rename(destination)
