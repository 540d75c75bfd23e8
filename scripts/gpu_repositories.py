"""Emit and build rust-cuda repositories for a machine that has a GPU and no cargo.

    python scripts/gpu_repositories.py DIRECTORY [--compiler nvptx]

One of each starter kernel and device compiler, and one that computes on CPUs too. Copy DIRECTORY there, and prove them
with `python tests/gpu/prove_gpu.py DIRECTORY/*`.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from kernel_new import questions


def answers(compilers: list[str]) -> dict[str, list[str]]:
    """The options of each repository, by its name."""
    kernels = questions.asked()["kernel"].values
    found = {
        f"{kernel}-{compiler}": ["--kernel", kernel, "--device-compiler", compiler]
        for kernel in kernels
        for compiler in compilers
    }
    # PTX for one architecture beside that for all: the check which is loaded wants it.
    found |= {
        f"relu-{compiler}-sm90a": [*found[f"relu-{compiler}"], *_capabilities("8.0", "9.0a")] for compiler in compilers
    }
    return found | {f"{kernel}-both": ["--kernel", kernel, "--second-backend", "rust-cpu"] for kernel in kernels}


def _capabilities(*values: str) -> list[str]:
    return [part for value in values for part in ("--cuda-capabilities", value)]


def run(*command: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "kernel_new", *command], check=True)


def git(path: Path, *arguments: str) -> None:
    who = ["-c", "user.name=kernel-new", "-c", "user.email=kernel-new@localhost"]
    subprocess.run(["git", *who, *arguments], cwd=path, check=True)


def main() -> None:
    compilers = questions.asked()["device_compiler"].values
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--compiler", choices=compilers, action="append")
    options = parser.parse_args()
    for name, given in answers(options.compiler or compilers).items():
        path = options.directory / name
        run(path, "--backend", "rust-cuda", *given, "--defaults", "--verify", "none", "--quiet")
        git(path, "add", "--all")
        git(path, "commit", "--quiet", "--message", "Start")
        run("build", path, "--verify", "load", "--quiet")
        shutil.rmtree(path / "target")
        print(path, flush=True)


if __name__ == "__main__":
    main()
