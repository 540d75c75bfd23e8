"""What to do next, as commands that work on this machine, ready to be pasted."""

import shlex
import shutil
import sysconfig
from pathlib import Path

from kernel_new import git, process, questions
from kernel_new.errors import KernelNewError
from kernel_new.report import Report


def commands(destination: Path, report: Report) -> list[str]:
    """From the repository as it was written to a changed kernel; after a failure, how to find out more."""
    here = shlex.quote(str(destination))
    if not report.ok:
        return after(destination, report, [])
    steps = {step.name: step for step in report.steps}
    initialised = "git" in steps and not steps["git"].skipped
    cuda = report.answers.get("backend") == "rust-cuda"
    op = questions.op(report.answers["kernel"])
    source = f"kernels/src/{op}.rs" if cuda else f"src/{op}.rs"
    return [
        f"cd {here}",
        *(_commit(destination) if initialised else []),
        f"${{EDITOR:-vi}} {source}",
        *(["kernel-new ptx"] if cuda else []),
        _test(),
        *(["kernel-new explain gpu  # to test on a GPU, which this machine lacks"] if cuda and not _has_gpu() else []),
    ]


def after(path: Path, report: Report, work: list[str]) -> list[str]:
    """`work`, where the repository at `path` was proven; otherwise how to find out what failed."""
    return work if report.ok else ["kernel-new doctor", f"kernel-new verify {shlex.quote(str(path))}"]


def _commit(destination: Path) -> list[str]:
    """The first commit, and before it who makes it where git does not know yet."""
    commit = f"{git.COMMIT} -m 'Start from kernel-new'"
    if all(git.succeeds(destination, "var", f"GIT_{who}_IDENT") for who in ("COMMITTER", "AUTHOR")):
        return [commit]
    return ["git config user.name 'Your Name' && git config user.email you@example.org", commit]


def _test() -> str:
    """`pytest`, where that is the one which has what the tests need."""
    found = shutil.which("pytest")
    own = found and Path(found).parent == Path(sysconfig.get_path("scripts"))
    return "pytest" if own else "kernel-new verify"


def _has_gpu() -> bool:
    try:
        return process.run(["nvidia-smi", "--list-gpus"], timeout=20).code == 0
    except KernelNewError:
        return False
