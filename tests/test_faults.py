"""Whatever goes wrong at whatever moment of creating: a whole repository or none, and what was there stays.

A step is each change of the file system and each program that is started, as Python itself announces them. Every
step is tried with HYPOTHESIS_PROFILE=nightly, otherwise a few spread over the whole.
"""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import make, tree

from kernel_new import create, git, process, staging
from kernel_new.errors import KernelNewError, UsageError

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
CHANGES = {"os.mkdir", "os.rename", "os.chmod", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def is_step(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        return isinstance(arguments[2], int) and bool(arguments[2] & WRITING) and arguments[0] != os.devnull
    return event in CHANGES or event == "subprocess.Popen"


def in_child(work: Callable[[], None], at_step: Callable[[int, str], None]) -> tuple[int, int]:
    """Do the work in a fork, where each step is announced first; its exit status, and how many steps it began."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code, steps = 1, 0

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal steps
            if is_step(event, arguments):
                steps += 1
                os.write(writer, b".")
                at_step(steps, event)

        try:
            for number in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            sys.addaudithook(hook)
            with process.terminated_is_interrupted():
                work()
            code = 0
        except KeyboardInterrupt:
            code = 130
        except KernelNewError:
            code = 3
        finally:
            os._exit(code)
    os.close(writer)
    steps = 0
    while some := os.read(reader, 4096):
        steps += len(some)
    os.close(reader)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), steps


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many steps it takes to create a repository."""
    destination = tmp_path_factory.mktemp("steps") / "demo-kernel"
    code, count = in_child(lambda: make(destination) and None, lambda number, event: None)
    assert code == 0
    assert count > 50
    return count


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return tree(make(tmp_path_factory.mktemp("whole") / "demo-kernel").path)


def moments(steps: int, *parts: float) -> list[int]:
    """The steps to try: all, or the first and the last ones and some between, mostly where the repository appears."""
    return list(range(1, steps + 1)) if NIGHTLY else [1, *(int(steps * part) for part in parts), steps - 1, steps]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_killed_at_any_step_there_is_a_whole_repository_or_none(
    number: int, steps: int, whole: dict[str, bytes], tmp_path: Path
) -> None:
    for moment in moments(steps, 0.4, 0.76, 0.84, 0.92, 0.98):
        parent = tmp_path / str(moment)
        parent.mkdir()
        (parent / "mine").write_text("mine")
        code, _ = in_child(
            lambda parent=parent: make(parent / "demo-kernel") and None,  # type: ignore[misc]
            lambda step, event, moment=moment: os.kill(os.getpid(), number) if step == moment else None,  # type: ignore[misc]
        )
        assert code in ((-9, 0) if number == signal.SIGKILL else (130, 0)), moment
        left = {entry.name for entry in parent.iterdir()} - {"mine"}
        if "demo-kernel" in left:
            assert tree(parent / "demo-kernel") == whole, moment
        if number == signal.SIGKILL:
            assert all(staging.NAME.fullmatch(name) for name in left - {"demo-kernel"}), left
        else:
            assert left <= {"demo-kernel"}, moment
        # The next run in that directory does not mind, and tidies up.
        make(parent / "next-kernel")
        assert {entry.name for entry in parent.iterdir()} == {"mine", "next-kernel"} | (left & {"demo-kernel"})
        assert (parent / "mine").read_text() == "mine"
        shutil.rmtree(parent)


def test_killed_in_an_empty_directory_there_is_a_whole_repository_or_none(steps: int, tmp_path: Path) -> None:
    """One that exists already gives way in the same single step."""
    for moment in moments(steps, 0.5, 0.8, 0.9, 0.97):
        destination = tmp_path / str(moment) / "demo-kernel"
        destination.mkdir(parents=True, mode=0o750)
        in_child(
            lambda destination=destination: make(destination) and None,  # type: ignore[misc]
            lambda step, event, moment=moment: os.kill(os.getpid(), 9) if step == moment else None,  # type: ignore[misc]
        )
        names = {entry.name for entry in destination.iterdir()}
        assert not names or {"Cargo.toml", "src", "tests", ".git"} <= names
        assert destination.stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
def test_a_disk_that_fails_at_any_step_leaves_nothing(error: int, steps: int, tmp_path: Path) -> None:
    """From that step on nothing can be written, though still removed."""

    def fail(step: int, event: str) -> None:
        if step >= moment and event in ("open", "os.mkdir"):
            raise OSError(error, os.strerror(error))

    for moment in moments(steps, 0.2, 0.5, 0.7, 0.8):
        parent = tmp_path / str(moment)
        parent.mkdir()
        code, began = in_child(lambda: make(parent / "a" / "demo-kernel") and None, fail)  # noqa: B023
        left = [str(entry.relative_to(parent)) for entry in parent.rglob("*") if ".git" not in entry.parts]
        assert (code, left) == (3, []) or (code == 0 and "a/demo-kernel/Cargo.toml" in left), (moment, began, left)
        shutil.rmtree(parent)


def sandbox(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a script that may mount; skip where no unprivileged sandbox is to be had."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec"]
    try:
        subprocess.run([*command, "mount -t tmpfs none /mnt"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no unprivileged sandbox with mounts here")
    tool = f"{sys.executable} -m kernel_new"
    given = [str(argument) for argument in arguments]
    return subprocess.run([*command, script, tool, *given], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("size", [4, 60, 100])
def test_a_full_disk_is_reported_and_nothing_is_left(size: int) -> None:
    """A real one, of so many KiB: a repository takes more."""
    script = f"mount -t tmpfs -o size={size}k none /mnt; $0 /mnt/a/demo-kernel --defaults --verify none || echo $?; "
    finished = sandbox(script + "ls -A /mnt")
    assert finished.stdout == "1\n", finished.stdout + finished.stderr
    assert "No space left on device" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_full_temporary_directory_is_reported_and_nothing_is_left(tmp_path: Path) -> None:
    script = "mount -t tmpfs -o size=4k none /mnt; TMPDIR=/mnt $0 $1/demo-kernel --defaults --verify none || echo $?"
    finished = sandbox(script, tmp_path)
    assert finished.stdout.endswith("1\n") or (tmp_path / "demo-kernel/Cargo.toml").is_file()
    assert "Traceback" not in finished.stderr
    assert [entry.name for entry in tmp_path.iterdir()] in ([], ["demo-kernel"])


def test_a_read_only_parent_is_reported() -> None:
    finished = sandbox("mount -t tmpfs -o ro none /mnt; $0 /mnt/demo-kernel --defaults --verify none || echo $?")
    assert finished.stdout == "1\n"
    assert "Read-only file system" in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_parent_without_permission_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(KernelNewError, match="Permission denied"):
        make(tmp_path / "demo-kernel")


@pytest.mark.parametrize("kind", ["file", "directory", "empty directory", "link to a directory", "broken link"])
def test_whatever_appears_meanwhile_at_the_destination_is_kept(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the last moment of all: between the last look at it and the step in which the repository appears."""
    destination, other = tmp_path / "demo-kernel", tmp_path / "other"
    other.mkdir()
    rename = create._rename

    def appear(staged: Path, destination: Path) -> None:
        if kind == "file":
            destination.write_text("theirs")
        elif "link" in kind:
            destination.symlink_to("nowhere" if "broken" in kind else "other")
        else:
            destination.mkdir()
            if kind == "directory":
                (destination / "theirs").write_text("theirs")
        rename(staged, destination)

    monkeypatch.setattr(create, "_rename", appear)
    if kind == "empty directory":
        assert (make(destination).path / "Cargo.toml").is_file()
        return
    with pytest.raises(KernelNewError, match="appeared meanwhile and was left as it is"):
        make(destination)
    assert list(other.iterdir()) == []
    assert {entry.name for entry in tmp_path.iterdir()} == {"demo-kernel", "other"}
    if kind in ("file", "directory"):
        assert b"theirs" in tree(tmp_path).values()


def test_many_creations_at_once_give_one_repository(tmp_path: Path, whole: dict[str, bytes]) -> None:
    """All begin before the first ends, and none mistakes the work of another for remains of a killed run."""
    results: list[str] = []
    together = threading.Barrier(6)
    command = [sys.executable, "-m", "kernel_new"]

    def run(name: str) -> None:
        together.wait()
        options = ["--defaults", "--verify=none", "--quiet"]
        done = subprocess.run([*command, tmp_path / name, *options], capture_output=True, text=True, check=False)
        results.append(f"{name} {done.returncode}")
        assert "Traceback" not in done.stderr

    names = ["demo-kernel"] * 3 + ["one-kernel", "two-kernel", "six-kernel"]
    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results).count("demo-kernel 0") == 1
    assert [result for result in results if result.startswith("demo")] != ["demo-kernel 0"] * 3
    assert {f"{name} 0" for name in names} <= set(results)
    assert {entry.name for entry in tmp_path.iterdir()} == set(names)
    assert tree(tmp_path / "demo-kernel") == whole


def test_only_remains_of_killed_runs_are_swept(tmp_path: Path) -> None:
    kept = [".kernel-new-cafe", ".kernel-new-cafecafex", "kernel-new-cafecafe", ".kernel-new-c0ffee00"]
    for name in kept[:3]:
        (tmp_path / name).mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/mine").write_text("mine")
    (tmp_path / kept[3]).symlink_to("elsewhere")
    (tmp_path / ".kernel-new-00000000").write_text("a file")
    (tmp_path / ".kernel-new-11111111/demo-kernel").mkdir(parents=True)
    with staging.beside(tmp_path / "alive-kernel") as alive:
        alive.mkdir()
        staging.sweep(tmp_path)
        assert alive.is_dir()
    names = {entry.name for entry in tmp_path.iterdir()}
    assert names == {*kept, "elsewhere", ".kernel-new-00000000"}
    assert (tmp_path / "elsewhere/mine").read_text() == "mine"


def test_the_directory_that_the_user_is_in_stays_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = tmp_path / "demo-kernel"
    destination.mkdir()
    before = destination.stat().st_ino
    monkeypatch.chdir(destination)
    make(destination)
    assert destination.stat().st_ino == before


def test_a_current_directory_that_is_gone_is_reported(tmp_path: Path) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && "$0" -m kernel_new "$@"'
    for arguments in (["demo-kernel", "--defaults"], ["--name=demo-kernel", "--defaults"], ["verify"], ["update"]):
        command = ["sh", "-c", script, sys.executable, *arguments]
        finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert finished.returncode == 1
        assert "error: the current directory" in finished.stderr
        assert "Traceback" not in finished.stderr


def test_nohup_is_obeyed(tmp_path: Path) -> None:
    """A signal that whoever started it had ignored stays ignored."""
    command = [sys.executable, "-m", "kernel_new", str(tmp_path / "demo-kernel"), "--defaults", "--verify=none"]
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    finally:
        signal.signal(signal.SIGHUP, before)
    while child.poll() is None:
        child.send_signal(signal.SIGHUP)
        time.sleep(0.05)
    assert child.returncode == 0
    assert (tmp_path / "demo-kernel/Cargo.toml").is_file()


def test_inside_a_damaged_repository_no_other_is_made(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    report = make(tmp_path / "kernels" / "demo-kernel")
    assert not (report.path / ".git").exists()
    assert next(step for step in report.steps if step.name == "git").skipped
    assert git.marked(report.path) == tmp_path


def test_a_refused_answer_leaves_an_empty_destination_as_it_was(tmp_path: Path) -> None:
    destination = tmp_path / "demo-kernel"
    destination.mkdir(mode=0o700)
    before = destination.stat()
    with pytest.raises(UsageError):
        make(destination, name="fn")
    after = destination.stat()
    assert (after.st_ino, after.st_mode, after.st_mtime) == (before.st_ino, before.st_mode, before.st_mtime)
    assert not re.search("kernel-new", str(list(tmp_path.iterdir())))
