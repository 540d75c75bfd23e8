"""Missing, broken, old and hanging tools: what each one says. The doctor needs none of them."""

import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, make

from kernel_new import doctor, process
from kernel_new.errors import CommandError
from kernel_new.report import Level

RunJson = Callable[..., dict[str, Any]]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts programs of the test's own on a PATH that has nothing else but the system's basic commands."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))

    def add(**scripts: str) -> None:
        for name, script in scripts.items():
            program = directory / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)

    return add


@pytest.mark.parametrize(
    ("cargo", "said"),
    [
        (None, "cargo could not be run"),
        ("exit 1", "cargo does not start: it printed nothing"),
        ("echo error: no default toolchain >&2; exit 1", "no default toolchain"),
        ("echo hello", "cargo does not start: hello"),
        ("echo cargo 1.70.0", "cargo is 1.70.0, and the kernel needs 1.89 or newer"),
    ],
)
def test_without_a_working_cargo_the_files_are_written(
    cargo: str | None, said: str, tools: Callable[..., None], tmp_path: Path
) -> None:
    if cargo:
        tools(cargo=cargo, rustc=cargo.replace("cargo", "rustc"))
    report = make(tmp_path / "demo-kernel", Level.TEST)
    assert not report.ok
    assert (report.path / "Cargo.toml").is_file()
    failed = next(step for step in report.steps if not step.ok)
    assert (failed.name, said in failed.detail) == ("build", True), failed
    assert "https://rustup.rs" in failed.hint
    assert [step.skipped for step in report.steps if step.name in ("load", "test")] == [True, True]


def test_the_message_without_cargo(tools: Callable[..., None], tmp_path: Path, run: Run) -> None:
    finished = run(tmp_path / "demo-kernel", "--defaults", "--no-git")
    assert finished.returncode == 1
    assert "not proven: build, load, test" in finished.stdout
    assert "https://rustup.rs" in finished.stderr


def test_without_git_the_files_are_written(tools: Callable[..., None], tmp_path: Path) -> None:
    report = make(tmp_path / "demo-kernel")
    assert report.ok
    assert next(step for step in report.steps if step.name == "git").skipped


def test_with_a_broken_git_nothing_is_written(tools: Callable[..., None], tmp_path: Path) -> None:
    tools(git="echo broken >&2; exit 1")
    with pytest.raises(CommandError, match="git init failed") as failed:
        make(tmp_path / "demo-kernel")
    assert "--no-git" in failed.value.hint
    assert "broken" in failed.value.output
    assert not (tmp_path / "demo-kernel").exists()


def test_the_doctor_needs_nothing(tools: Callable[..., None]) -> None:
    found = {requirement.name: requirement for requirement in doctor.examine()}
    assert [name for name in ("cargo", "rustc", "git") if found[name].ok] == []
    assert all(requirement.how for requirement in found.values() if not requirement.ok)
    assert found["kernels"].ok


def test_the_doctor_reports_and_exits_with_what_is_missing(
    tools: Callable[..., None], run: Run, run_json: RunJson
) -> None:
    finished = run("doctor")
    assert finished.returncode == 1
    assert "https://rustup.rs" in finished.stdout
    assert run_json("doctor")["ok"] is False


def test_the_doctor_survives_broken_tools(tools: Callable[..., None]) -> None:
    garbage = "printf '\\377\\376\\000'; exit 0"
    tools(cargo=garbage, rustc=garbage, git=garbage, rustup=garbage, **{"nvidia-smi": garbage})
    assert doctor.examine()


def test_a_hanging_program_is_ended_with_its_children(tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    script = f"(sleep 2; touch {marker}) & sleep 60"
    started = time.monotonic()
    with pytest.raises(CommandError, match="sh did not end within 1 s"):
        process.run(["sh", "-c", script], timeout=1)
    assert time.monotonic() - started < 10
    time.sleep(2.5)
    assert not marker.exists()


def test_a_program_gets_its_arguments_as_they_are() -> None:
    hostile = ["$(id)", "`id`", "; rm -rf /", "a b", '"', "'", "*", "-n", ""]
    finished = process.run([sys.executable, "-c", "import sys; print(sys.argv[1:])", *hostile])
    assert finished.stdout == f"{hostile}\n"


def test_children_get_no_git_pointers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert "GIT_DIR" not in process.environment()
    assert os.environ["GIT_DIR"] == "/nowhere"
