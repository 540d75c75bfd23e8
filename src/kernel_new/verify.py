"""Proves a kernel repository, level by level: it builds, Python loads it, its tests pass."""

import json
import shlex
import sys
from pathlib import Path

from kernel_new import cargo, process, sources, variant, warm
from kernel_new.errors import CommandError, KernelNewError
from kernel_new.project import Project
from kernel_new.report import Level, Report, Watcher

CUDA_LIBRARIES = ("libcuda.", "libcudart.", "libnvrtc.", "libcublas.")
"""Libraries of CUDA that a kernel must not be linked to: it opens the driver at run time."""


def prove(project: Project, level: Level, report: Report, watcher: Watcher) -> None:
    """Add the steps up to `level` to `report`. After one that failed, the others are skipped."""
    if level is Level.NONE:
        return
    wanted = list(Level)[1 : list(Level).index(level) + 1]
    library: Path | None = None
    for name in wanted:
        if not report.ok:
            report.skip(name, "a step before it failed", watcher)
            continue
        with report.step(name, watcher) as step:
            if name is Level.BUILD:
                cargo.require()
                sources.check_listed(project)
                warm.target(project.path, watcher.progress)
                # Features may not be missing where the library is built without them.
                for features in [[], project.features] if project.features else [[]]:
                    options = [f"--features={feature}" for feature in features]
                    built = cargo.build(project.path, watcher.progress, options=options)
                    sources.check_compiled(project, features, built.library)
                library = built.library
                step.detail = f"{library.name}, {library.stat().st_size / 1e6:.1f} MB{cargo.toolchain()}"
                step.hint = "\n".join(built.warnings)
            elif name is Level.LOAD:
                assert library is not None  # noqa: S101
                step.detail = load(project, library)
            else:
                step.detail = test(project, None)


def load(project: Project, library: Path) -> str:
    """Stage the variants and load that of this machine through `kernels` in a process of its own.

    Raises:
        CommandError: It cannot be loaded.
        KernelNewError: It has no function, exports more than its ops, or is linked to CUDA.
    """
    with variant.locked(project):
        return load_variant(project, variant.stage(project, library))


def load_variant(project: Project, directory: Path) -> str:
    """Load the variant laid out in `directory`, in a process of its own, and check what its library exports and needs.

    Raises:
        CommandError: It cannot be loaded.
        KernelNewError: It has no function, exports more than its ops, or is linked to CUDA.
    """
    # -P: a module of the kernel's that is called like one of Python's must not take its place.
    command = [sys.executable, "-P", "-m", "kernel_new.loading", str(directory)]
    finished = process.run(command, cwd=directory, env=_quiet(), timeout=300)
    if finished.code:
        raise CommandError(f"kernels cannot load {directory.name}", output=finished.stderr)
    found = json.loads(finished.stdout.splitlines()[-1])
    if not found["functions"]:
        raise KernelNewError(
            "the kernel has no functions", f"List them in __all__ of {project.package / '__init__.py'}."
        )
    if found["exports"] is not None:
        check_symbols(found["exports"], found["needed"])
    return f"{directory.name}: {', '.join(found['functions'])}"


def is_chosen(variants: Path) -> bool:
    """Whether `kernels` finds a variant for this machine in the directory `variants`: for CUDA, a GPU must be there."""
    code = "import kernels, pathlib, sys; kernels.get_local_kernel(pathlib.Path(sys.argv[1]))"
    return process.run([sys.executable, "-c", code, str(variants)], env=_quiet(), timeout=300).code == 0


def check_symbols(exports: list[str], needed: list[str]) -> None:
    """Raise `KernelNewError` unless a library exports its ops only, and needs nothing of CUDA."""
    if foreign := [symbol for symbol in exports if not symbol.startswith("__tvm_ffi_")]:
        raise KernelNewError(
            f"the library exports more than its ops: {', '.join(foreign[:5])}",
            "Export ops with tvm_ffi_dll_export_typed_func! only.",
        )
    if not exports:
        raise KernelNewError("the library exports no op", "Export ops with tvm_ffi_dll_export_typed_func!.")
    if linked := [library for library in needed if library.startswith(CUDA_LIBRARIES)]:
        raise KernelNewError(
            f"the library is linked to {', '.join(linked)}",
            "Open the driver at run time, as src/launch.rs does.",
        )


def test(project: Project, variants: Path | None) -> str:
    """Run the repository's own tests; their closing line.

    They load the kernel from the directory `variants`, or build it and lay it out themselves.

    Raises:
        CommandError: One failed, or none ran.
    """
    command = [sys.executable, "-P", "-m", "pytest", "-q", "--color=no"]
    environment = _quiet()
    if variants:
        environment["LOCAL_KERNELS"] = f"{project.repo_id}={variants}"
    finished = process.run(command, cwd=project.path, env=environment)
    lines = finished.stdout.strip().splitlines()
    if finished.code:
        raise CommandError(
            lines[-1] if lines else "pytest did not run",
            f"cd {shlex.quote(str(project.path))} && python -m pytest",
            finished.stdout + finished.stderr,
        )
    return lines[-1]


def _quiet() -> dict[str, str]:
    """The environment of the proof: nothing is fetched, and no option from outside changes the tests."""
    env = process.environment({"HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"})
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONOPTIMIZE", "LOCAL_KERNELS"):
        env.pop(name, None)
    return env
