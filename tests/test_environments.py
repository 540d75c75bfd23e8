"""Odd machines: the proof holds in any environment that cargo and Python themselves work in."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import make, tree

from kernel_new import process, verify, warm
from kernel_new.project import Project
from kernel_new.report import Level, Quiet, Report


def script(file: Path, text: str) -> str:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


def wrapper(directory: Path) -> dict[str, str]:
    """A compiler cache, such as sccache, whose server stays; and a wrapper for the own crate's compiler."""
    program = script(directory / "wrapper", 'setsid sleep 30 >/dev/null 2>&1 &\nexec "$@"')
    return {"RUSTC_WRAPPER": program, "RUSTC_WORKSPACE_WRAPPER": program}


def terminal(directory: Path) -> dict[str, str]:
    """ASCII only and narrow, with colours where there should be none; and Python with wrong modules on its path."""
    for name in ("conftest", "frameworks", "test_relu", "kernel", "demo_kernel", "tests/__init__"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    return {
        "PYTHONPATH": str(directory),
        "PYTHONOPTIMIZE": "2",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "0",
        "PYTHONWARNINGS": "always",
        "LC_ALL": "C",
        "COLUMNS": "40",
        "TERM": "dumb",
        "CI": "1",
        "FORCE_COLOR": "1",
        "PY_COLORS": "1",
        "CARGO_TERM_COLOR": "always",
        "CARGO_TERM_VERBOSE": "true",
        "CARGO_TERM_PROGRESS_WHEN": "always",
        "CARGO_TERM_PROGRESS_WIDTH": "20",
    }


def settings(directory: Path) -> dict[str, str]:
    """What changes cargo's build: another home, target directory and target, by variables of its configuration."""
    home, real = directory / "cargo home", Path(os.environ["CARGO_HOME"])
    home.mkdir()
    for part in ("registry", "git", "bin"):
        if (real / part).exists():
            (home / part).symlink_to(real / part)
    return {
        "CARGO_HOME": str(home),
        "CARGO_BUILD_TARGET": process.run(["rustc", "-vV"]).stdout.partition("host: ")[2].split()[0],
        "CARGO_BUILD_TARGET_DIR": str(directory / "elsewhere"),
        "CARGO_INCREMENTAL": "1",
        "RUST_BACKTRACE": "full",
        **toolchain(),
    }


def toolchain() -> dict[str, str]:
    """An override that names the toolchain in use; none without rustup."""
    if not shutil.which("rustup"):
        return {}
    shown = subprocess.run(["rustup", "show", "active-toolchain"], capture_output=True, text=True, check=False)
    return {"RUSTUP_TOOLCHAIN": shown.stdout.split()[0]} if shown.stdout else {}


@pytest.mark.parametrize("change", [wrapper, terminal, settings], ids=lambda change: change.__name__)
def test_a_kernel_is_proven_in_any_environment(change: Callable[[Path], dict[str, str]], tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    environment = {**os.environ, **change(aside)}
    command = [sys.executable, "-m", "kernel_new", str(tmp_path / "demo-kernel"), "--defaults", "--quiet"]
    with (tmp_path / "output").open("wb") as output:
        # Its input is closed, too.
        done = subprocess.run(
            ["sh", "-c", '"$@" <&-', "sh", *command], env=environment, stdout=output, stderr=output, check=False
        )
    assert done.returncode == 0, (tmp_path / "output").read_text(errors="replace")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["aside", "demo-kernel", "output"]


def test_a_wrapper_that_does_not_work_is_shown(cpu: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RUSTC_WRAPPER", script(tmp_path / "wrapper", "echo no cache today >&2; exit 7"))
    report = Report(cpu)
    verify.prove(Project.read(cpu), Level.BUILD, report, Quiet())
    (build,) = report.steps
    assert not build.ok
    assert "no cache today" in build.output


def test_without_a_home_nothing_is_written_into_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no home, `~` stays `~`: that is no place for a cache."""
    report = make(tmp_path / "demo-kernel")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(warm, "user_cache_path", lambda name: Path("~/.cache") / name)
    assert not warm.target(report.path)
    assert list((tmp_path / "here").iterdir()) == []


def test_no_home_no_locale_and_nothing_else(tmp_path: Path) -> None:
    """As of a service or `env -i`: only what finds cargo."""
    kept = {name: os.environ[name] for name in ("PATH", "CARGO_HOME", "RUSTUP_HOME")}
    command = [sys.executable, "-m", "kernel_new", str(tmp_path / "demo-kernel"), "--defaults", "--verify=load"]
    environment = {**kept, "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["demo-kernel"]


def test_a_module_of_the_kernels_may_be_called_like_one_of_pythons(cpu: Path) -> None:
    """It is loaded from a process whose current directory has it: that must not put it before Python's own."""
    package = cpu / "tvm-ffi-ext/demo_kernel"
    for name in ("json", "queue", "statistics", "typing"):
        (package / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    report = Report(cpu)
    verify.prove(Project.read(cpu), Level.TEST, report, Quiet())
    assert report.ok, report.steps


def test_a_full_disk_while_proving_is_a_failed_step(cpu: Path) -> None:
    """Whatever the system refuses: here the place of the variant is taken."""
    shutil.rmtree(cpu / "build", ignore_errors=True)
    (cpu / "build").write_text("mine")
    report = Report(cpu)
    verify.prove(Project.read(cpu), Level.TEST, report, Quiet())
    assert [step.ok for step in report.steps] == [True, False, True]
    assert "build" in report.steps[1].detail
    assert (cpu / "build").read_text() == "mine"


@pytest.fixture(scope="module")
def odd_cuda(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A kernel for GPUs with hyphens and digits in its name, made where CUDA is of no version that anyone knows."""
    directory = tmp_path_factory.mktemp("odd")
    script(directory / "nvcc", "echo 'Cuda compilation tools, release 99.9, V99.9.999'; exit 1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
        for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"):
            patch.setenv(name, str(directory / "nowhere"))
        return make(directory / "a1-b2-c3", Level.TEST, backend="rust-cuda")


def test_a_cuda_that_nobody_knows_changes_nothing(odd_cuda: Report) -> None:
    assert odd_cuda.ok, odd_cuda.steps


def test_a_name_with_hyphens_and_digits_is_one_name_everywhere(odd_cuda: Report) -> None:
    """As Rust and Python write it wherever they look for it: the library, the package, the PTX."""
    assert odd_cuda.steps[2].detail.startswith("liba1_b2_c3.so")
    assert [file.name for file in (odd_cuda.path / "kernels-ptx").iterdir()] == ["a1_b2_c3_device.ptx"]
    assert (odd_cuda.path / "tvm-ffi-ext/a1_b2_c3/__init__.py").is_file()
    (library,) = (odd_cuda.path / "build").glob("*/_a1_b2_c3_cuda_*.so")
    assert library.is_file()


def test_a_checkout_has_the_same_bytes_whatever_git_is_told(tmp_path: Path) -> None:
    """core.autocrlf and core.eol, as on Windows."""
    made = make(tmp_path / "demo-kernel").path
    settings = ("-c", "core.autocrlf=true", "-c", "core.eol=crlf")
    for command in (["add", "--all"], ["commit", "--quiet", "-m", "x"]):
        subprocess.run(["git", *settings, *command], cwd=made, check=True, capture_output=True)
    copy = tmp_path / "copy"
    subprocess.run(["git", *settings, "clone", "--quiet", str(made), str(copy)], check=True)
    assert tree(copy) == tree(made)
