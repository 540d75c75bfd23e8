"""Builds every variant that a repository declares, proves what this machine can run, and puts them into `build/`."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kernel_new import card, crossbuild, layout, metadata, ptx, record, release_check, sources, targets, verify
from kernel_new.errors import KernelNewError, UsageError
from kernel_new.metadata import Identity
from kernel_new.project import Project
from kernel_new.report import Level, Report, Watcher
from kernel_new.targets import Kernel, Platform, Variant


@dataclass(frozen=True)
class Request:
    """How to build. No platform means this machine's; `local` links against this machine's glibc."""

    platforms: tuple[Platform, ...] = ()
    local: bool = False
    release_check: bool = False
    level: Level = Level.TEST


def build(project: Project, request: Request, watcher: Watcher) -> Report:
    """Build the variants; `build/` is as it was unless every step was right.

    Raises:
        UsageError: There is no platform to build for.
        KernelNewError: Something that building takes is missing, or build.toml declares what cannot be built.
    """
    platforms = _platforms(request)
    kernels = targets.kernels(project)
    for platform in platforms:
        crossbuild.require(project, platform, request.local)
    if request.release_check:
        release_check.require()
    report = Report(project.path)
    report.describe(project.answers())
    directory = project.path / "build"
    with layout.staging(directory) as staging:
        work = _Work(project, request, report, watcher, staging)
        work.compile_all(kernels, platforms)
        work.prove()
        if request.release_check:
            work.step("check", lambda: release_check.check([path for _, path in work.staged]))
        if report.ok:
            work.remember(directory, platforms)
            report.files = layout.put_into_place(staging, directory, platforms)
            report.next = [f"kernel-new publish {shlex.quote(str(project.path))} --dry-run"]
    return report


def _platforms(request: Request) -> list[Platform]:
    """The platforms to build for, each once.

    Raises:
        UsageError: None was named, and this machine is none of them.
    """
    if request.platforms:
        return list(dict.fromkeys(request.platforms))
    if not (found := targets.here()):
        raise UsageError("variants cannot be built for this machine", f"Choose: --platform {Platform.X86_64}")
    return [found]


@dataclass
class _Work:
    """One build under way: what was asked for, and the variants laid out so far, each with its directory."""

    project: Project
    request: Request
    report: Report
    watcher: Watcher
    staging: Path
    staged: list[tuple[Variant, Path]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sources = record.sources(self.project)
        self.identity: Identity = metadata.identify(self.project, self.sources)

    def step(self, name: str, work: Callable[[], str]) -> None:
        """Run a step whose line is what `work` returns, or skip it after a failure."""
        if not self.report.ok:
            self.report.skip(name, "a step before it failed", self.watcher)
            return
        with self.report.step(name, self.watcher) as step:
            step.detail = work()

    def compile_all(self, kernels: list[Kernel], platforms: list[Platform]) -> None:
        """Compile for each platform and backend, and lay out the variants of each."""
        if (self.project.path / ptx.SCRIPT).is_file():
            self.step("ptx", self._fresh_ptx)
        for platform in platforms:
            for kernel in kernels:
                if not self.report.ok:
                    self.report.skip("build", "a step before it failed", self.watcher)
                    continue
                with self.report.step("build", self.watcher) as step:
                    step.detail, step.hint = self._compile_one(kernel, platform)
        if (self.project.path / card.FILE).is_file():
            self.step("card", self._fill_card)
        self.step("layout", self._describe)

    def _fresh_ptx(self) -> str:
        ptx.check(self.project)
        return "built from the sources in kernels/"

    def _compile_one(self, kernel: Kernel, platform: Platform) -> tuple[str, str]:
        """Compile and lay out; a line about it, and what the compiler warned of."""
        variants = targets.variants(self.project, kernel.backend, platform)
        sources.check_listed(self.project)
        built = crossbuild.compile_crate(self.project, kernel, platform, self.request.local, self.watcher.progress)
        sources.check_compiled(self.project, kernel.features, built.library)
        for variant in variants:
            path = layout.lay_out(self.project, kernel, variant, self.identity, built.library, self.staging)
            self.staged.append((variant, path))
        glibc = "this machine's glibc: the Hub may refuse it" if self.request.local else f"glibc {crossbuild.GLIBC}"
        size = f"{built.library.stat().st_size / 1e6:.1f} MB"
        return f"{platform} {kernel.backend}, {size}, for {glibc}", "\n".join(built.warnings)

    def _fill_card(self) -> str:
        (self.staging / card.FILE).write_text(card.fill(self.project), encoding="utf-8")
        return f"build/{card.FILE}"

    def _describe(self) -> str:
        commit, dirty = self.identity.commit, self.identity.dirty
        of = f"commit {commit[:7]}" if commit else "no commit: it is in no git repository, or nothing is committed"
        return f"{release_check.count(self.staged, 'variant')} of {of}{' and uncommitted changes' * dirty}"

    def prove(self) -> None:
        """Load each variant that this machine can, and run the repository's tests, as far as was asked for."""
        ours = [(variant, path) for variant, path in self.staged if variant.platform is targets.here()]
        if self.request.level in (Level.LOAD, Level.TEST):
            for _, path in ours:
                self.step("load", partial(verify.load_variant, self.project, path))
            if self.report.ok and not ours:
                self.report.skip("load", "this machine cannot load libraries of another platform", self.watcher)
        if self.request.level is Level.TEST:
            self.step("test", self._test)

    def _test(self) -> str:
        """Run the tests on the new variant that `kernels` chooses here, or on a build of their own if there is none."""
        on_ours = bool(self.project.repo_id) and verify.is_chosen(self.staging)
        with layout.left_alone(self.project.path / "build", self.staging):
            line = verify.test(self.project, self.staging if on_ours else None)
        return line if on_ours else f"{line} (on a build for this machine)"

    def remember(self, build: Path, platforms: list[Platform]) -> None:
        """Write beside the variants what they are of, and keep what is remembered of other platforms'.

        Raises:
            KernelNewError: A source was changed meanwhile, so nobody knows which content was built.
        """
        if record.sources(self.project) != self.sources:
            raise KernelNewError(f"{self.project.path} was changed while it was built", "Once more: kernel-new build")
        ending = tuple(f"-{platform}" for platform in platforms)
        entries = {name: entry for name, entry in record.read(build).items() if not name.endswith(ending)}
        for variant, path in self.staged:
            digest = record.sha256(path / metadata.FILE).hex()
            entries[variant.name] = record.Entry(digest, self.request.level, self.request.release_check, self.sources)
        record.write(self.staging, entries)
