"""Publishes what was built: the same branches and files as `kernel-builder upload`, once it is fit to be published."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_new import card, layout, metadata, record, release_check
from kernel_new.errors import KernelNewError, UsageError
from kernel_new.hub import Hub, Remote
from kernel_new.project import Project
from kernel_new.report import Level, Report, Watcher

MAIN = "main"
PLACEHOLDER = "your-org/"
"""The owner in a `repo-id` that was never answered."""


@dataclass(frozen=True)
class Request:
    """What to publish where, and what to publish all the same."""

    repo_id: str | None = None
    private: bool = False
    dry_run: bool = False
    allow_unproven: bool = False
    allow_dirty: bool = False
    allow_stale: bool = False


@dataclass(frozen=True)
class Upload:
    """A file to send: where to, where from, and its content's size and SHA-256."""

    branch: str
    path: str
    file: Path = field(repr=False)
    size: int
    sha256: str


@dataclass(frozen=True)
class Deletion:
    """A file on the Hub that this build no longer has."""

    branch: str
    path: str


@dataclass
class Publication:
    """All that is sent, in the order in which it is, and how it went. `remote` is None where the Hub was not asked."""

    report: Report
    repo_id: str
    branch: str
    remote: Remote | None = None
    uploads: list[Upload] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    url: str = ""

    def as_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            **self.report.as_json(),
            "repo_id": self.repo_id,
            "branch": self.branch,
            "creates": {"repository": not self.remote.exists, "branch": not self.remote.has_branch}
            if self.remote
            else None,
            "uploads": [
                {"branch": one.branch, "path": one.path, "size": one.size, "sha256": one.sha256} for one in self.uploads
            ],
            "deletions": [{"branch": one.branch, "path": one.path} for one in self.deletions],
            "url": self.url,
        }


def publish(project: Project, request: Request, watcher: Watcher) -> Publication:
    """Send what was built to the Hub, or say what would be sent.

    Raises:
        UsageError: It is not said where to.
        KernelNewError: Nothing is built, it is not fit to be published, or the Hub refuses.
    """
    repo_id = _repo_id(project, request)
    directories = layout.variants(project.path / "build")
    report = Report(project.path)
    with report.step("check", watcher, fatal=True) as step:
        step.detail = _fit(project, directories, request)
    publication = Publication(report, repo_id, _branch(project))
    hub = Hub(repo_id)
    with report.step("plan", watcher, fatal=True) as step:
        if not request.dry_run:
            hub.require_login()
        publication.remote, unknown = _look(hub, publication.branch, request)
        _plan(project, directories, publication)
        deleted = unknown or f"{len(publication.deletions)} to delete"
        step.detail = f"{release_check.count(publication.uploads, 'file')} to send, {deleted}"
        if repo_id != project.repo_id:
            step.hint = f"The card names {project.repo_id or 'no repository'}, by build.toml."
    if not request.dry_run:
        _send(hub, publication, request, watcher)
        publication.url = hub.url(publication.branch)
    return publication


def _repo_id(project: Project, request: Request) -> str:
    found = request.repo_id or project.repo_id
    if not found or found.startswith(PLACEHOLDER):
        raise UsageError(
            f"{project.path / 'build.toml'} does not say where on the Hub the kernel goes"
            + (f": {found} is a placeholder" if found else ""),
            "Set repo-id in [general.hub], or say it: --repo-id OWNER/NAME",
        )
    return found


def _look(hub: Hub, branch: str, request: Request) -> tuple[Remote | None, str]:
    """What is on the Hub; where a dry run cannot ask, None and what is not known without."""
    try:
        return hub.look(branch), ""
    except UsageError:
        raise
    except KernelNewError as error:
        if not request.dry_run:
            raise
        return None, f"and what it would delete is not known: {error.message}"


def _branch(project: Project) -> str:
    """The branch that `kernels` looks for the version on, unless build.toml names another."""
    hub = project.build["general"].get("hub") or {}
    return str(hub.get("branch") or f"v{project.version}")


def _fit(project: Project, directories: Sequence[Path], request: Request) -> str:
    """Refuse what was not proven, what is of no commit, and what is older than its sources, unless allowed.

    Raises:
        KernelNewError: It is refused; the hint names the flag that allows it.
    """
    if not directories:
        raise KernelNewError(f"nothing is built in {project.path / 'build'}", "kernel-new build --release-check")
    _refuse_versions(project, directories)
    remembered = record.read(project.path / "build")
    entries = {directory: remembered.get(directory.name) for directory in directories}
    allowed = []
    for reason, flag, wanted in (
        (_unproven(entries), "--allow-unproven", request.allow_unproven),
        (_stale(project, entries), "--allow-stale", request.allow_stale),
        (_dirty(directories), "--allow-dirty", request.allow_dirty),
    ):
        if reason and not wanted:
            raise KernelNewError(reason, f"kernel-new build makes it anew. To publish it all the same: {flag}")
        allowed += [f"{reason} ({flag})"] if reason else []
    if not request.allow_unproven:
        release_check.check(directories)
    return "; ".join([release_check.count(directories, "variant"), *allowed])


def _refuse_versions(project: Project, directories: Sequence[Path]) -> None:
    """Raise unless every variant is of the version in build.toml, which names the branch."""
    from kernels import Metadata

    for directory in directories:
        try:
            found = Metadata.read_from_file(directory / metadata.FILE).version
        except ValueError as error:
            raise KernelNewError(f"{directory / metadata.FILE} cannot be read: {error}", "kernel-new build") from error
        if found != project.version:
            raise KernelNewError(
                f"build/{directory.name} is of version {found}, and build.toml says {project.version}",
                "kernel-new build, or delete that directory",
            )


def _unproven(entries: dict[Path, record.Entry | None]) -> str:
    """Which variant `kernel-new build` did not make as it is, or did not prove by the tests."""
    for directory, entry in entries.items():
        name = f"build/{directory.name}"
        if entry is None:
            return f"{name} was not made by kernel-new build, so nothing says that it was proven"
        if record.sha256(directory / metadata.FILE).hex() != entry.metadata:
            return f"{name} was replaced after kernel-new build made it, as the repository's own tests do"
        if entry.level is not Level.TEST:
            return f"{name} was built with --verify {entry.level}, so its tests were not run"
    return ""


def _stale(project: Project, entries: dict[Path, record.Entry | None]) -> str:
    """Which source differs from what a variant was built from."""
    now = record.sources(project)
    for directory, entry in entries.items():
        before = entry.sources if entry else now
        if changed := sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name)):
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            return f"build/{directory.name} is older than {', '.join(changed[:3])}{more}"
    return ""


def _dirty(directories: Sequence[Path]) -> str:
    """Which variant is of no commit that anybody else could build."""
    from kernels import Metadata

    for directory in directories:
        provenance = Metadata.read_from_file(directory / metadata.FILE).provenance
        if provenance is None or provenance.kernel is None:
            return f"build/{directory.name} does not say which commit it is of"
        if provenance.dirty:
            return f"build/{directory.name} was built with uncommitted changes"
    return ""


def _plan(project: Project, directories: Sequence[Path], publication: Publication) -> None:
    """All that `kernel-builder upload` sends: the card on main, benchmarks and variants on the version's branch."""
    build, branch = project.path / "build", publication.branch
    if (build / card.FILE).is_file():
        publication.uploads.append(_upload(MAIN, "README.md", build / card.FILE))
    benchmarks = sorted(file for file in (project.path / "benchmarks").glob("benchmark*.py") if file.is_file())
    uploads = [_upload(branch, f"benchmarks/{file.name}", file) for file in benchmarks]
    for directory in directories:
        files = sorted(file for file in directory.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        uploads += [_upload(branch, f"build/{file.relative_to(build).as_posix()}", file) for file in files]
    publication.uploads += uploads
    prefixes = tuple(f"build/{directory.name}/" for directory in directories)
    sent, has_benchmarks = {one.path for one in uploads}, (project.path / "benchmarks").is_dir()
    deleted = _deleted(publication.remote, sent, prefixes, has_benchmarks)
    publication.deletions += [Deletion(branch, path) for path in deleted]


def _upload(branch: str, path: str, file: Path) -> Upload:
    return Upload(branch, path, file, file.stat().st_size, record.sha256(file).hex())


def _deleted(remote: Remote | None, sent: set[str], variants: tuple[str, ...], has_benchmarks: bool) -> list[str]:
    """Files to delete on the version's branch, by kernel-builder's rule.

    A new branch begins as a copy of main, of which builds and benchmarks go. On an older one, only what these
    variants no longer have goes, and benchmarks that are no longer there.
    """

    def goes(path: str) -> bool:
        folder, name = path.partition("/")[0], path.rpartition("/")[2]
        if folder == "benchmarks":
            return has_benchmarks and (new or (name.startswith("benchmark") and name.endswith(".py")))
        return path.startswith("build/" if new else variants)

    if remote is None:
        return []
    new = not remote.has_branch
    return sorted(path for path in remote.files - sent if goes(path))


def _send(hub: Hub, publication: Publication, request: Request, watcher: Watcher) -> None:
    """Create what is missing, then commit to main and to the version's branch."""
    report, remote = publication.report, publication.remote
    assert remote is not None  # noqa: S101
    if not remote.exists:
        with report.step("create", watcher, fatal=True) as step:
            hub.create(request.private)
            step.detail = f"{publication.repo_id}{' (private)' * request.private}"
    if not remote.has_branch and publication.branch != MAIN:
        with report.step("branch", watcher, fatal=True) as step:
            hub.create_branch(publication.branch)
            step.detail = publication.branch
    for branch in dict.fromkeys([MAIN, publication.branch]):
        uploads = [(one.path, one.file) for one in publication.uploads if one.branch == branch]
        deletions = [one.path for one in publication.deletions if one.branch == branch]
        if uploads or deletions:
            with report.step("send", watcher, fatal=True) as step:
                hub.commit(branch, uploads, deletions)
                step.detail = f"{release_check.count(uploads, 'file')} to {branch}"
