"""Time to the first kernel: kernel-new beside plain copier, `cargo new` and a bare cargo build, in one run.

    python benchmarks/first_kernel.py [--runs 5] [--backend rust-cpu]

Every figure is the median of whole processes, taken in turn, with caches of their own.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent


def timed(command: list[str], directory: Path, environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started


@contextmanager
def scratch() -> Iterator[tuple[Path, dict[str, str]]]:
    """An empty directory and an environment whose caches are empty too."""
    with tempfile.TemporaryDirectory() as name:
        scripts = Path(sys.executable).parent
        environment = {**os.environ, "XDG_CACHE_HOME": f"{name}/cache", "PATH": f"{scripts}:{os.environ['PATH']}"}
        environment.pop("CARGO_TARGET_DIR", None)
        yield Path(name), environment


def template_repository(directory: Path) -> Path:
    """The template as a tagged git repository, which is what plain copier copies from."""
    clone = directory / "template"
    clone.mkdir()
    shutil.copy(ROOT / "copier.yml", clone)
    shutil.copytree(ROOT / "templates", clone / "templates")
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"], ["tag", "v0.1.0"]):
        subprocess.run(["git", *identity, *command], cwd=clone, check=True, stderr=subprocess.DEVNULL)
    return clone


def emission(backend: str, runs: int) -> dict[str, float]:
    """Seconds to write a repository, without proof."""
    times: dict[str, list[float]] = {}
    with scratch() as (directory, environment):
        clone = template_repository(directory)
        new = [sys.executable, "-m", "kernel_new", "--backend", backend, "--defaults", "--verify=none", "--quiet"]
        copier = [
            sys.executable,
            "-m",
            "copier",
            "copy",
            "--quiet",
            "--defaults",
            f"--data=backend={backend}",
            str(clone),
        ]
        commands: dict[str, Callable[[str], list[str]]] = {
            "kernel-new --verify none": lambda name: [*new, name],
            "copier copy": lambda name: [*copier, name],
            "cargo new --lib": lambda name: ["cargo", "new", "--quiet", "--lib", name],
        }
        for run in range(runs + 1):
            for index, (title, command) in enumerate(commands.items()):
                seconds = timed(command(f"kernel-{index}-{run}"), directory, environment)
                if run:  # The first of each only warms the file system.
                    times.setdefault(title, []).append(seconds)
    return {title: statistics.median(seconds) for title, seconds in times.items()}


def proof(backend: str, runs: int) -> dict[str, float]:
    """Seconds to a proven kernel, for a first and a second repository, and what the parts cost alone."""
    times: dict[str, list[float]] = {}
    for _ in range(runs):
        with scratch() as (directory, environment):
            new = [sys.executable, "-m", "kernel_new", "--backend", backend, "--defaults", "--quiet"]
            first = timed([*new, "first"], directory, environment)
            second = timed([*new, "second"], directory, environment)
            tests = timed([sys.executable, "-m", "pytest", "-q"], directory / "second", environment)
            shutil.rmtree(directory / "second/target")
            build = timed(["cargo", "build", "--release", "--locked"], directory / "second", environment)
        figures = {
            "first kernel-new, with proof": first,
            "second kernel-new, with proof": second,
            "its emitted tests alone": tests,
            "cargo build --release, empty target": build,
        }
        for title, seconds in figures.items():
            times.setdefault(title, []).append(seconds)
    return {title: statistics.median(seconds) for title, seconds in times.items()}


def show(figures: dict[str, float], base: str) -> None:
    print(f"| {'':36} | seconds | of {base} |\n| --- | ---: | ---: |")
    for title, seconds in figures.items():
        print(f"| {title:36} | {seconds:7.2f} | {seconds / figures[base]:.2f} |")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--backend", default="rust-cpu", choices=["rust-cpu", "rust-cuda"])
    arguments = parser.parse_args()
    print(f"{arguments.backend}, medians of {arguments.runs} runs\n")
    show(emission(arguments.backend, arguments.runs), "copier copy")
    show(proof(arguments.backend, max(arguments.runs // 2, 1)), "cargo build --release, empty target")


if __name__ == "__main__":
    main()
