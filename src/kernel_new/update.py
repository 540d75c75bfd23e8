"""Updates repositories to a newer template, by copier's three-way merge, and says what changed and what to do."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernel_new import cargo, git, interrupted, process, ptx, refusals, releases, removed, updating, verify
from kernel_new.errors import CommandError, KernelNewError, StoppedError, UsageError
from kernel_new.project import ANSWERS, Project
from kernel_new.releases import Releases
from kernel_new.report import Level, Quiet, Report, Step, Watcher


@dataclass(frozen=True)
class Request:
    """What to do with each repository. `wanted` is the newest release that is known where it is None."""

    wanted: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    defaults: bool = False
    check: bool = False
    dry_run: bool = False
    level: Level = Level.TEST
    url: str | None = None


@dataclass
class Result:
    """What became of one repository.

    `status` is `current`, `behind` (only checked), `updated`, `conflicts` or `failed`.
    """

    path: Path
    status: str = "failed"
    recorded: str = ""
    wanted: str = ""
    changed: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    rebuild: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    diff: str = ""
    error: str = ""
    hint: str = ""

    @property
    def ok(self) -> bool:
        return self.status in ("current", "updated") and all(step.ok for step in self.steps)

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self), "path": str(self.path)}


def update(paths: list[Path], request: Request, watcher: Watcher) -> list[Result]:
    """Update each repository; one that fails does not stop the others.

    Repositories of different git repositories are updated side by side, those of one after the other.
    """
    git.probe()
    paths = list(dict.fromkeys(paths))
    groups: dict[Path, list[Path]] = {}
    for path in paths:
        groups.setdefault(git.enclosing(path) or path, []).append(path)
    single = len(paths) == 1
    interactive = single and not request.defaults and sys.stdin.isatty()
    with releases.known(request.url) as template:

        def work(group: list[Path]) -> list[Result]:
            return [_update_one(path, request, template, watcher if single else Quiet(), interactive) for path in group]

        done = _side_by_side(work, list(groups.values()))
    return sorted(done, key=lambda result: paths.index(result.path))


def _side_by_side(work: Callable[[list[Path]], list[Result]], groups: list[list[Path]]) -> list[Result]:
    """The results of all groups. An interrupt ends what is running, each of which then undoes itself."""
    if len(groups) == 1:
        return work(groups[0])
    pool = ThreadPoolExecutor(max_workers=os.cpu_count() or 1)
    try:
        return [result for results in pool.map(work, groups) for result in results]
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        process.stop_all()
        raise
    finally:
        pool.shutdown(wait=True)


def _update_one(path: Path, request: Request, template: Releases, watcher: Watcher, interactive: bool) -> Result:
    result = Result(path)
    try:
        answers = _checked(path, template, request, result)
        if request.check or (result.recorded == result.wanted and not request.data):
            result.status = "current" if result.recorded == result.wanted else "behind"
            return result
        if request.dry_run:
            _dry_run(result, answers, request, template)
            return result
        with git.undone_on_error(path):
            _merge(path, result, answers, request, template, interactive)
            _describe(result)
        if result.status == "updated":
            report = Report(path)
            with interrupted.proof(f"{path} was updated to {result.wanted}", path):
                verify.prove(Project.read(path), request.level, report, watcher)
            result.steps = report.steps
    except StoppedError:
        raise
    except KernelNewError as error:
        result.status, result.error, result.hint = "failed", _without(path, error.message), error.hint
        if isinstance(error, CommandError) and error.output:
            result.error += f": {error.output.strip()}"
    except Exception as error:
        # One repository must not stop the others, whatever is in it.
        result.status, result.error = "failed", f"{type(error).__name__}: {error}"
    return result


def _without(path: Path, message: str) -> str:
    """A message without the path of the repository, which is shown before it."""
    about_it = f"it {message.removeprefix(f'{path} ')}" if message.startswith(f"{path} ") else message
    return about_it.replace(f"{path}{os.sep}", "").replace(f" in {path}", "")


def _checked(path: Path, template: Releases, request: Request, result: Result) -> dict[str, Any]:
    """The recorded answers of a repository that can be updated.

    Raises:
        KernelNewError: It cannot; nothing was touched.
    """
    answers = Project.read(path).answers()
    url, result.recorded = str(answers.pop("_src_path", "")), str(answers.pop("_commit", ""))
    if not url or not result.recorded:
        raise KernelNewError(f"it has no {ANSWERS} that says what it was made from")
    if url != template.url:
        raise KernelNewError(
            f"it was made from {url}, and not from {template.url}",
            f"If you trust it: --template-url {shlex.quote(url)}",
        )
    git.require_clean(path, changes=request.check)
    known = ", ".join(template.versions)
    if result.recorded not in template.versions:
        raise KernelNewError(f"it was made by {result.recorded}, which is not known here; known are {known}")
    wanted = request.wanted or template.versions[-1]
    result.wanted = wanted if wanted.startswith("v") else f"v{wanted}"
    if result.wanted not in template.versions:
        raise UsageError(f"{result.wanted} is no release of the template; known are {known}")
    if template.versions.index(result.wanted) < template.versions.index(result.recorded):
        raise KernelNewError(f"it is at {result.recorded}: a template cannot be downgraded to {result.wanted}")
    return answers


def _merge(
    path: Path, result: Result, answers: dict[str, Any], request: Request, template: Releases, interactive: bool
) -> None:
    """Let copier merge, in a process of its own, then put the lock in order."""
    job = {
        "path": str(path),
        "url": template.url,
        "recorded": result.recorded,
        "wanted": result.wanted,
        "answers": answers,
        "data": request.data,
        "defaults": not interactive,
    }
    command = [sys.executable, "-P", "-m", "kernel_new.updating", json.dumps(job, default=str)]
    with tempfile.TemporaryDirectory(prefix="kernel-new-") as cache:
        environment = process.environment({**template.environment(), "COPIER_CACHE_DIR": cache})
        if interactive:
            code, said = subprocess.run(command, env=environment, check=False).returncode, ""
        else:
            finished = process.run(command, env=environment)
            code, said = finished.code, finished.stderr
    if code == updating.REFUSED:
        raise KernelNewError(f"{ANSWERS} holds answers that are not valid: {said.strip()}", "Correct them.")
    if code == updating.REFUSED_NEW:
        raise _refused(said.strip(), request, result)
    if code:
        raise CommandError("copier could not update it", output=said)
    removed.take_away(path, answers)
    _resolve_lock(path)


def _refused(said: str, request: Request, result: Result) -> KernelNewError:
    """Whose answer the wanted release refuses: one given with --data, or a recorded one."""
    refusal = refusals.read(said)
    if refusal and refusal.question.name in request.data:
        name = refusal.question.name
        hint = " ".join(f"--data {shlex.quote(f'{name}={value}')}" for value in refusal.proposed[:1])
        return UsageError(f"--data {name}: {refusal.reason}", hint)
    return KernelNewError(f"{result.wanted} refuses an answer in {ANSWERS}: {said}", "Give another: --data KEY=VALUE")


def _resolve_lock(path: Path) -> None:
    """Leave a lock that holds: the merged one, or else the author's, which cargo completes for the new manifest.

    Raises:
        CommandError: The lock is in conflict, and cargo cannot resolve it.
    """
    lock = path / cargo.LOCK
    unmerged = cargo.LOCK in _unmerged(path)
    if not lock.is_file() or shutil.which("cargo") is None or (not unmerged and cargo.is_locked(path)):
        return
    merged = lock.read_bytes()
    lock.write_text(git.run(path, "show", f"HEAD:./{cargo.LOCK}"), encoding="utf-8")
    try:
        cargo.resolve(path)
    except CommandError:
        if unmerged:
            raise
        lock.write_bytes(merged)  # Without a network it can still be right: the proof will tell.
    git.run(path, "reset", "--quiet", "--", cargo.LOCK)


def _describe(result: Result) -> None:
    """What the merge changed, where it needs the author, and what must be built again."""
    path = result.path
    result.changed = _status(path)
    result.conflicts = _unmerged(path)
    result.status = "conflicts" if result.conflicts else "updated"
    script = path / ptx.SCRIPT
    if script.is_file() and process.run([sys.executable, str(script), "--check"], cwd=path).code:
        result.rebuild = [f"{Path(sys.executable).name} {ptx.SCRIPT}"]


def _status(path: Path) -> list[str]:
    """Changed files, each behind A (added), D (deleted), M (modified) or U (unmerged)."""
    prefix = git.run(path, "rev-parse", "--show-prefix").removesuffix("\n")
    listed = git.run(path, "status", "--porcelain", "--no-renames", "--untracked-files=all", "-z", "--", ".")
    lines = [line for line in listed.split("\0") if line]
    return [f"{_letter(line[:2])} {line[3:].removeprefix(prefix)}" for line in lines]


def _letter(status: str) -> str:
    return next((letter for letter in "UDA" if letter in status.replace("?", "A")), "M")


def _unmerged(path: Path) -> list[str]:
    listed = git.run(path, "ls-files", "--unmerged", "-z", "--", ".").split("\0")
    return sorted({entry.partition("\t")[2] for entry in listed if entry})


def _dry_run(result: Result, answers: dict[str, Any], request: Request, template: Releases) -> None:
    """Update a clone of the repository, and keep the difference."""
    top = git.enclosing(result.path)
    assert top is not None  # noqa: S101
    with tempfile.TemporaryDirectory(prefix="kernel-new-") as directory:
        clone = Path(directory, top.name)
        git.run(top, "clone", "--quiet", "--shared", "--template=", str(top), str(clone))
        copy = clone / result.path.relative_to(top)
        trial = Result(copy, recorded=result.recorded, wanted=result.wanted)
        _merge(copy, trial, answers, request, template, interactive=False)
        _describe(trial)
        git.run(copy, "add", "--all", "--intent-to-add", "--", ".")
        result.diff = git.run(copy, "diff", "--no-ext-diff", "--no-color", "--relative", "HEAD", "--", ".")
    result.status, result.changed = "behind", trial.changed
    result.conflicts, result.rebuild = trial.conflicts, trial.rebuild
