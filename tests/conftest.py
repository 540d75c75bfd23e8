"""Isolation for every test (home, caches, git), and repositories that are made once."""

import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pexpect
import pytest
from filelock import FileLock

from kernel_new import questions
from kernel_new.create import Request, create
from kernel_new.report import Level, Quiet, Report

BACKENDS = questions.asked()["backend"].values
COMBINATIONS = [
    {"backend": backend, "kernel": kernel.value, **compiler}
    for backend in BACKENDS
    for kernel in questions.asked()["kernel"].choices
    for compiler in (
        [{"device_compiler": c.value} for c in questions.asked()["device_compiler"].choices]
        if backend == "rust-cuda"
        else [{}]
    )
]
"""Every combination of answers that changes which files there are."""


OXIDE_ENVIRONMENT = os.environ.get("CUDA_OXIDE_ENVIRONMENT")
"""A shell file that sets what cuda-oxide needs, where it is installed: CUDA_OXIDE_BACKEND, CARGO_HOME and company."""


@cache
def oxide_environment() -> dict[str, str]:
    """The variables of that file; none without it."""
    if not OXIDE_ENVIRONMENT:
        return {}
    printed = subprocess.check_output(["bash", "-euc", 'set -a; source "$0"; env -0', OXIDE_ENVIRONMENT], text=True)
    found = dict(line.split("=", 1) for line in printed.split("\0") if "=" in line)
    return {
        name: value for name, value in found.items() if os.environ.get(name) != value and name not in ("_", "SHLVL")
    }


@contextmanager
def compilers_of(combination: dict[str, str]) -> Iterator[None]:
    """cuda-oxide's variables, for the combinations that need them and for no other test."""
    with pytest.MonkeyPatch.context() as patch:
        if combination.get("device_compiler") == "cuda-oxide":
            for name, value in oxide_environment().items():
                patch.setenv(name, value)
        yield


@cache
def oxide_is_reachable() -> bool:
    """Whether cargo finds cuda-oxide's crates, which are in a git repository and in no registry."""
    combination = {"backend": "rust-cuda", "device_compiler": "cuda-oxide"}
    with compilers_of(combination), tempfile.TemporaryDirectory() as directory:
        made = make(Path(directory, "demo-kernel"), **combination).path
        command = ["cargo", "metadata", "--locked", "--format-version=1"]
        return subprocess.run(command, cwd=made, capture_output=True, check=False, timeout=300).returncode == 0


def needs_cargo(combination: dict[str, str]) -> None:
    """Skip a test whose combination cargo cannot resolve here."""
    if combination.get("device_compiler") == "cuda-oxide" and not oxide_is_reachable():
        pytest.skip("cuda-oxide's git repository cannot be reached")


@cache
def _cargo_has(component: str) -> bool:
    return subprocess.run(["cargo", component, "--version"], capture_output=True, check=False).returncode == 0


def needs_components(command: str) -> None:
    """Skip where cargo lacks what a command is of: Debian has clippy and rustfmt in packages of their own."""
    for component in ("clippy", "fmt"):
        if f"cargo {component}" in command and not _cargo_has(component):
            pytest.skip(f"cargo {component} is not installed")


@pytest.fixture(autouse=True)
def _device_compiler(request: pytest.FixtureRequest) -> Iterator[None]:
    parameters = getattr(request.node, "callspec", None)
    values = parameters.params.values() if parameters else ()
    with compilers_of(next((value for value in values if isinstance(value, dict)), {})):
        yield


def ops(repository: Path) -> list[str]:
    """What the library of a repository exports, as Python calls it."""
    text = (repository / "src/lib.rs").read_text(encoding="utf-8")
    return re.findall(r"^tvm_ffi::tvm_ffi_dll_export_typed_func!\((\w+),", text, re.MULTILINE)


def combination_id(combination: dict[str, str]) -> str:
    return "-".join(combination.values())


@pytest.fixture(scope="session", autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A home of its own, with the machine's Rust; nothing of the user's git or cargo settings applies."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A shell starts what it puts into the background so; what the tests start shall not be.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Under nohup, the programs that the tests run would ignore it too.
    with suppress(ValueError, AttributeError):  # in another thread than the first; not on Windows
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    home = Path.home()
    os.environ.setdefault("CARGO_HOME", str(home / ".cargo"))
    os.environ.setdefault("RUSTUP_HOME", str(home / ".rustup"))
    isolated = tmp_path_factory.mktemp("home")
    os.environ |= {"HOME": str(isolated), "XDG_CACHE_HOME": str(isolated / "cache"), "HF_HUB_OFFLINE": "1"}
    os.environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "COLUMNS": "100"}
    for who in ("AUTHOR", "COMMITTER"):
        os.environ |= {f"GIT_{who}_NAME": "Ada", f"GIT_{who}_EMAIL": "ada@example.org"}
    for name in ("CARGO_TARGET_DIR", "RUSTFLAGS", "RUSTC_WRAPPER", "RUSTUP_TOOLCHAIN", "PYTEST_ADDOPTS", "CI"):
        os.environ.pop(name, None)


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run() -> Run:
    """Runs the command line in a process of its own."""

    def run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kernel_new", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600, **options)

    return run


@pytest.fixture(scope="session")
def run_json(run: Run) -> Callable[..., dict[str, Any]]:
    """Runs it with --json, and returns the document, which must be all that is on stdout."""

    def run_json(*arguments: str | Path, **options: Any) -> dict[str, Any]:
        document = json.loads(run(*arguments, "--json", **options).stdout)
        assert isinstance(document, dict)
        return document

    return run_json


def make(destination: Path, level: Level = Level.NONE, **answers: Any) -> Report:
    """Create a repository in this process, with the defaults for what is not given."""
    return create(Request(destination, answers, defaults=True, level=level), Quiet())


def ended_by(child: "pexpect.spawn[str]", key: Callable[[], object]) -> str:
    """What a program at a question prints from a key that ends it on.

    What is pressed before readline waits, it keeps for later: then, as a person would, press it again.
    """
    shown = ""
    for _ in range(12):
        key()
        found = child.expect([pexpect.EOF, pexpect.TIMEOUT], timeout=10)
        shown = child.before or ""
        if found == 0:
            break
    child.close()
    return shown


@contextmanager
def once(tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[tuple[Path, bool]]:
    """A directory for what one of the test processes makes for all, and whether it is there already.

    It is there once it has a file `done`.
    """
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / name
    with FileLock(f"{shared}.lock"):
        done = (shared / "done").exists()
        if not done:
            shutil.rmtree(shared, ignore_errors=True)
            shared.mkdir()
        yield shared, done
        (shared / "done").touch()


@pytest.fixture(scope="session", params=COMBINATIONS, ids=combination_id)
def proven(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A created and proven repository of each combination; not to be changed."""
    needs_cargo(request.param)
    with once(tmp_path_factory, f"proven-{combination_id(request.param)}") as (shared, done):
        kept = shared / "report"
        if not done:
            with compilers_of(request.param):
                kept.write_bytes(pickle.dumps(make(shared / "demo-kernel", Level.TEST, **request.param)))
        report = pickle.loads(kept.read_bytes())  # noqa: S301, which was written above
        assert isinstance(report, Report)
        return report


@pytest.fixture(scope="session")
def built_cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rust-cpu repository that was built; to be copied by the tests that change it."""
    report = make(tmp_path_factory.mktemp("built") / "demo-kernel", Level.BUILD)
    assert report.ok, report.steps
    return report.path


@pytest.fixture
def cpu(built_cpu: Path, tmp_path: Path) -> Path:
    """A built rust-cpu repository of one's own."""
    copy = tmp_path / built_cpu.name
    shutil.copytree(built_cpu, copy)
    return copy


def tree(directory: Path) -> dict[str, bytes]:
    """The content of each file below a directory, git's own aside."""
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in sorted(directory.rglob("*"))
        if file.is_file() and ".git" not in file.relative_to(directory).parts
    }


def identities(directory: Path) -> dict[str, tuple[int, int]]:
    """What tells whether a file is another than it was, for each below a directory, Python's caches aside."""
    return {
        file.relative_to(directory).as_posix(): (file.stat().st_ino, file.stat().st_mtime_ns)
        for file in sorted(directory.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }


def git(path: Path, *arguments: str) -> str:
    """Run git in a repository; what it prints."""
    return subprocess.run(["git", *arguments], cwd=path, check=True, capture_output=True, text=True).stdout.strip()


def committed(path: Path, **answers: Any) -> Path:
    """A new repository with everything in it committed."""
    made = make(path, **answers).path
    git(made, "add", "--all")
    git(made, "commit", "--quiet", "--message", "Start")
    return made


def shared_target() -> dict[str, str]:
    """What an environment needs so that dependencies are compiled once.

    Only for a repository that the test itself makes: cargo tells those of one name apart by the times of their files.
    """
    return {"CARGO_TARGET_DIR": str(Path(os.environ["HOME"]) / "target")}


@pytest.fixture(scope="session", params=BACKENDS)
def released(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, run: Run) -> Path:
    """A repository of each backend with its release build, made by one of the test processes; not to be changed.

    Its report is beside it, as `report.json`.
    """
    with once(tmp_path_factory, f"released-{request.param}") as (shared, done):
        if not done:
            made = committed(shared / "demo-kernel", backend=request.param)
            level = "test" if request.param == "rust-cpu" else "load"
            finished = run(
                "build", made, "--release-check", "--verify", level, "--json", env=os.environ | shared_target()
            )
            (shared / "report.json").write_text(finished.stdout)
        return shared / "demo-kernel"


@pytest.fixture
def release(released: Path, tmp_path: Path) -> Path:
    """A copy of one's own."""
    copy = tmp_path / released.name
    shutil.copytree(released, copy)
    return copy
