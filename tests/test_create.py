"""Creating is all or nothing: the whole repository appears in one step, or the file system is as it was."""

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, make, tree

from kernel_new import create, git
from kernel_new.errors import KernelNewError, UsageError


def test_missing_parents_are_made(tmp_path: Path) -> None:
    report = make(tmp_path / "a" / "b" / "demo-kernel")
    assert report.ok
    assert (tmp_path / "a/b/demo-kernel/Cargo.toml").is_file()
    assert [entry.name for entry in (tmp_path / "a/b").iterdir()] == ["demo-kernel"]


def test_missing_parents_are_removed_after_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        make(tmp_path / "a" / "b" / "fn")
    assert list(tmp_path.iterdir()) == []


def test_where_a_kernel_is_already_its_proof_is_proposed(tmp_path: Path, run: Run) -> None:
    made = make(tmp_path / "a b" / "demo-kernel").path
    with pytest.raises(UsageError, match="already exists") as refused:
        make(made)
    proposed = shlex.split(refused.value.hint.partition("Or prove what is there: kernel-new ")[2])
    assert run(*proposed, "--level=none").returncode == 0


@pytest.mark.parametrize("kind", ["file", "directory", "link", "broken link"])
def test_an_occupied_destination_is_refused_and_kept(kind: str, tmp_path: Path) -> None:
    destination, other = tmp_path / "demo-kernel", tmp_path / "other"
    if kind == "file":
        destination.write_text("mine")
    elif kind == "directory":
        (destination / "mine").mkdir(parents=True)
    else:
        if kind == "link":
            other.mkdir()
        destination.symlink_to(other)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="already exists") as refused:
        make(destination)
    assert refused.value.hint == "Choose another destination."
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_an_empty_destination_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = tmp_path / "demo-kernel"
    destination.mkdir()
    monkeypatch.chdir(destination)
    assert make(Path()).path == destination
    assert (destination / "Cargo.toml").is_file()
    assert Path("Cargo.toml").is_file(), "the current directory is still the same one"
    assert [entry.name for entry in tmp_path.iterdir()] == ["demo-kernel"]


def test_a_destination_that_appears_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = tmp_path / "demo-kernel"

    def appear(staged: Path) -> None:
        destination.mkdir()
        (destination / "theirs").write_text("theirs")

    monkeypatch.setattr(git, "initialise", appear)
    with pytest.raises(KernelNewError, match="appeared meanwhile"):
        make(destination)
    assert tree(tmp_path) == {"demo-kernel/theirs": b"theirs"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError(28, "No space left on device")])
@pytest.mark.parametrize("stage", ["_render", "_initialise", "_move"])
def test_nothing_is_left_after_an_error_at_any_stage(
    stage: str, error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Callable[..., None] = getattr(create, stage)

    def fail(staged: Path, *others: Any) -> None:
        if stage != "_move":
            original(staged, *others)
        raise error

    monkeypatch.setattr(create, stage, fail)
    with pytest.raises(KernelNewError if isinstance(error, OSError) else error):
        make(tmp_path / "a" / "demo-kernel")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_any_moment_leaves_all_or_nothing(number: int, tmp_path: Path) -> None:
    whole = sorted(tree(make(tmp_path / "whole" / "demo-kernel").path))
    ends = set()
    for delay in (0.15, 0.5, 0.75, 0.85, 0.95, 1.05, 1.2):
        directory = tmp_path / f"after-{delay}"
        directory.mkdir()
        command = [
            sys.executable,
            "-m",
            "kernel_new",
            str(directory / "demo-kernel"),
            "--defaults",
            "--verify=none",
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            time.sleep(delay)
            child.send_signal(number)
            child.wait()
        left = list(directory.iterdir())
        assert left in ([], [directory / "demo-kernel"])
        if left:
            assert sorted(tree(left[0])) == whole
        ends.add(bool(left))
    assert ends, "it ran"


@pytest.mark.parametrize("parent", ["file", "/proc/version", "/proc/self", "x" * 300, "loop"])
def test_a_parent_that_cannot_be_used_is_reported(parent: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    finished = run(tmp_path / parent / "demo-kernel", "--defaults")
    assert finished.returncode in (1, 2)
    assert finished.stderr.startswith("error: ")
    assert "Traceback" not in finished.stderr
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "loop"]


def test_git_is_initialised_with_nothing_of_the_users_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = tmp_path / "template" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "post-checkout").write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(tmp_path / "template"))
    made = make(tmp_path / "demo-kernel").path
    head = subprocess.run(["git", "symbolic-ref", "HEAD"], cwd=made, capture_output=True, text=True, check=True)
    assert head.stdout == "refs/heads/main\n"
    assert not (made / ".git/hooks/post-checkout").exists()


@pytest.mark.parametrize("kind", ["repository", "worktree"])
def test_no_git_inside_a_repository(kind: str, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    subprocess.run(["git", "init", "--quiet", outer], check=True)
    if kind == "worktree":
        subprocess.run(["git", "-C", outer, "commit", "--quiet", "--allow-empty", "-m", "x"], check=True)
        subprocess.run(["git", "-C", outer, "worktree", "add", "--quiet", tmp_path / "tree"], check=True)
        outer = tmp_path / "tree"
    report = make(outer / "kernels" / "demo-kernel")
    assert not (report.path / ".git").exists()
    assert next(step for step in report.steps if step.name == "git").skipped


def test_an_exported_git_dir_is_not_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    assert (make(tmp_path / "demo-kernel").path / ".git").is_dir()
    assert not (tmp_path / "elsewhere").exists()


def test_two_creations_at_once_give_one_repository(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kernel_new", str(tmp_path / "demo-kernel"), "--defaults", "--verify=none"]
    children = [subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(2)]
    errors = [child.communicate()[1].decode() for child in children]
    assert sorted(child.returncode for child in children) in ([0, 1], [0, 2])
    assert not any("Traceback" in error for error in errors)
    assert [entry.name for entry in tmp_path.iterdir()] == ["demo-kernel"]


def test_a_dry_run_writes_nothing_and_shows_everything(run: Run, tmp_path: Path) -> None:
    finished = run(tmp_path / "a" / "demo-kernel", "--defaults", "--dry-run")
    assert finished.returncode == 0
    assert list(tmp_path.iterdir()) == []
    made = make(tmp_path / "demo-kernel").path
    for file in tree(made):
        assert Path(file).name in finished.stdout
    assert "your-org/demo-kernel" in finished.stdout


def test_no_file_is_executable_or_writable_by_others(tmp_path: Path) -> None:
    made = make(tmp_path / "demo-kernel").path
    for file in tree(made):
        assert (made / file).stat().st_mode & 0o133 == 0, file
