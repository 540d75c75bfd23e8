"""Rebuilds the PTX of a repository, by the repository's own command."""

import sys

from kernel_new import process
from kernel_new.errors import CommandError, KernelNewError
from kernel_new.project import Project

SCRIPT = "kernels/build_ptx.py"


def rebuild(project: Project) -> str:
    """Compile the device crate and write its PTX; a line about it.

    Raises:
        KernelNewError: The repository has no device code.
        CommandError: The compiler is missing, refuses the code, or ptxas refuses the PTX; the old PTX is left.
    """
    return _run(project)


def check(project: Project) -> None:
    """Raise `CommandError` where the PTX is older than its sources. Needs no compiler."""
    _run(project, "--check")


def _run(project: Project, *options: str) -> str:
    if not (project.path / SCRIPT).is_file():
        lacking = "cuda" not in project.backends
        raise KernelNewError(f"{project.path} has no device code", "kernel-new add-backend rust-cuda" * lacking)
    command = [sys.executable, SCRIPT, *options]
    finished = process.run(command, cwd=project.path)
    if finished.code:
        raise CommandError("the PTX is not up to date" if options else "the PTX was not built", output=finished.stderr)
    lines = dict.fromkeys(finished.stdout.strip().splitlines())
    # What was built first, then what is said of it: that no ptxas was here is said before, and for each file.
    return "\n".join(sorted(lines, key=lambda line: not line.startswith("kernels-ptx/")))
