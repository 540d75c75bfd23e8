"""Makes a repository serve a second backend: what the template has more for two goes in, the author's edits stay."""

import shlex
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from kernel_new import cargo, git, interrupted, lists, next_steps, process, questions, verify
from kernel_new.add import current_answers
from kernel_new.create import Request as Creation
from kernel_new.create import create
from kernel_new.errors import KernelNewError, UsageError
from kernel_new.project import ANSWERS, Project
from kernel_new.report import Level, Quiet, Report, Watcher

LISTS = ("build.toml", "Cargo.toml", "src/lib.rs")
"""Where the lines of both sides are wanted, should they meet."""


@dataclass(frozen=True)
class Request:
    """Which backend to add, with the answers that only it needs; `cpu` and `cuda` will do."""

    path: Path
    backend: str | None
    answers: dict[str, Any] = field(default_factory=dict)
    level: Level = Level.TEST


def add_backend(request: Request, watcher: Watcher) -> Report:
    """Add the backend, and prove the repository.

    Raises:
        UsageError: There is no such backend, or an answer is refused.
        KernelNewError: It cannot be added; the repository is as it was.
    """
    backend = _backend(request)
    project = Project.read(request.path)
    answers = _checked(project, backend, request)
    report = Report(project.path)
    with git.undone_on_error(project.path):
        with report.step("add", watcher, fatal=True) as step, tempfile.TemporaryDirectory() as directory:
            before = _render(Path(directory, "one", project.name), answers)
            more = {"second_backend": backend, **request.answers}
            after = _render(Path(directory, "two", project.name), {**answers, **more})
            written, kept = _grow(project.path, before, after)
            if cargo.LOCK in kept:
                kept.remove(cargo.LOCK)
                cargo.resolve(project.path)
            others = _restrict_other_ops(project, after)
            step.detail = f"{written} files{f'; for {project.backend} only: ' * bool(others)}{', '.join(others)}"
            step.hint = f"Yours are kept, since both changed the same lines: {', '.join(kept)}" if kept else ""
        project = Project.read(project.path)
        report.describe(project.answers())
    with interrupted.proof(f"{backend} was added to {project.path}", project.path):
        verify.prove(project, request.level, report, watcher)
    report.next = next_steps.after(project.path, report, [git.COMMIT, "pytest"])
    return report


def _backend(request: Request) -> str:
    """The backend by its whole name.

    Raises:
        UsageError: There is no such backend; the one that the repository lacks is proposed.
    """
    known = questions.asked()["backend"].values
    given = request.backend or ""
    if (name := f"rust-{given.removeprefix('rust-')}") in known:
        return name
    reason = f"backend {given!r} is none of" if given else "no backend was named: it is one of"
    # What was given may be the repository, with the backend forgotten.
    place = given if given and Path(given, "build.toml").is_file() else ""
    project = Project.read(Path(place).resolve() if place else request.path)
    raise UsageError(f"{reason} {', '.join(known)}", _proposal(project, place))


def _proposal(project: Project, place: str = "") -> str:
    """The command that adds what the repository lacks; empty where it has all."""
    known = questions.asked()["backend"].values
    missing = [backend for backend in known if backend.removeprefix("rust-") not in project.backends]
    return shlex.join(["kernel-new", "add-backend", missing[0], *([place] if place else [])]) if missing else ""


def _checked(project: Project, backend: str, request: Request) -> dict[str, object]:
    """The recorded answers.

    Raises:
        UsageError: The backend is there already, or an answer is not asked with it.
        KernelNewError: The repository is not one that can grow.
    """
    if backend.removeprefix("rust-") in project.backends:
        raise UsageError(f"{project.path} has the backend {backend} already", _proposal(project))
    if backend == "rust-cpu" and request.answers:
        flag = questions.asked()[next(iter(request.answers))].flag
        raise UsageError(f"{flag} does not apply to rust-cpu", "Leave it out.")
    answers = current_answers(project)
    op = questions.op(answers["kernel"])
    if not (project.path / f"src/{op}.rs").is_file():
        raise KernelNewError(
            f"{project.path / 'src'} has no {op}.rs any more, beside which the second backend would put its own",
            f"kernel-new add {op} --kernel {answers['kernel']}",
        )
    return answers


def _render(path: Path, answers: dict[str, object]) -> Path:
    path.parent.mkdir()
    return create(Creation(path, answers, defaults=True, git=False, level=Level.NONE), Quiet()).path


def _grow(path: Path, before: Path, after: Path) -> tuple[int, list[str]]:
    """Bring the difference of two fresh repositories into one; how many files, and which the author's were kept.

    Raises:
        KernelNewError: A new file is there already.
    """
    kept, count = [], 0
    for source in sorted(file for file in after.rglob("*") if file.is_file()):
        file = source.relative_to(after).as_posix()
        new, destination = source.read_bytes(), path / file
        base = (before / file).read_bytes() if (before / file).is_file() else None
        if new == base or (base is not None and not destination.is_file()):
            continue
        if base is None and destination.exists():
            raise KernelNewError(f"{destination} is there already", "Give it another name, and commit.")
        merged = new if base is None else _merged(file, destination, base, new)
        if merged is None:
            kept.append(file)
            continue
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_bytes(merged)
        count += 1
    return count, kept


def _merged(file: str, ours: Path, base: bytes, new: bytes) -> bytes | None:
    """The author's file with the template's change; None where both changed the same lines.

    Raises:
        KernelNewError: They did so in a list that the backend cannot do without.
    """
    text = ours.read_bytes()
    if text == base or file == ANSWERS:
        return new
    if file == cargo.LOCK:
        return None
    if file not in LISTS:
        return _merge_file(ours.parent, text, base, new)
    renew = lists.dispatched if file == "src/lib.rs" else partial(lists.renewed, before=base.decode())
    text, base = (renew(part.decode(), both=new.decode()).encode() for part in (text, base))
    merged = (_merge_file(ours.parent, text, base, new, "--union") or text).decode()
    if file == "src/lib.rs":
        return lists.gated(merged, new.decode()).encode()
    try:
        tomlkit.parse(merged)
    except TOMLKitError as error:
        raise KernelNewError(
            f"{ours}: you and the second backend change the same line: {error}",
            "Change it back, add it, change it again.",
        ) from error
    return merged.encode()


def _merge_file(directory: Path, text: bytes, base: bytes, new: bytes, *options: str) -> bytes | None:
    """git's three-way merge of one file; None where it is in conflict."""
    with tempfile.TemporaryDirectory() as temporary:
        names = [Path(temporary, name) for name in ("ours", "before", "after")]
        for name, content in zip(names, (text, base, new), strict=True):
            name.write_bytes(content)
        command = ["git", "merge-file", "--quiet", *options, *map(str, names)]
        finished = process.run(command, cwd=directory)
        return None if finished.code else names[0].read_bytes()


def _restrict_other_ops(project: Project, after: Path) -> list[str]:
    """The ops that only the first backend has: their tests say so, and the library for CUDA devices has them, too.

    Raises:
        KernelNewError: A test is no Python.
    """
    text = (project.path / "src/lib.rs").read_text(encoding="utf-8")
    dispatched = lists.exports((after / "src/lib.rs").read_text(encoding="utf-8"))
    for test in sorted((project.path / "tests").glob("test_*.py")):
        if not (after / "tests" / test.name).is_file():
            try:
                restricted = lists.restricted(test.read_text(encoding="utf-8"), project.backend)
            except (SyntaxError, UnicodeDecodeError) as error:
                raise KernelNewError(f"{test} cannot be read: {error}") from error
            test.write_text(restricted, encoding="utf-8")
    build = project.path / "build.toml"
    sources = [file for table in project.build["kernel"].values() for file in table.get("src", ())]
    build.write_text(lists.add_sources(build.read_text(encoding="utf-8"), sources, "cuda"), encoding="utf-8")
    return [op for op in lists.exports(text) if op not in dispatched]
