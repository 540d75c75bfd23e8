"""Missing, broken, old and hanging tools: what each one says. The doctor needs none of them."""

import os
import shlex
import shutil
import signal
import stat
import subprocess
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


FULL_PATH = os.environ["PATH"]


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
    assert [name for name in ("cargo", "rustc", "git", "cc") if found[name].ok] == []
    assert all(requirement.how for requirement in found.values() if not requirement.ok)
    assert found["kernels"].ok


def test_the_doctor_reports_and_exits_with_what_is_missing(
    tools: Callable[..., None], run: Run, run_json: RunJson
) -> None:
    finished = run("doctor")
    assert finished.returncode == 1
    assert "sh.rustup.rs | sh" in finished.stdout
    assert run_json("doctor")["ok"] is False


@pytest.mark.parametrize("there", [False, True])
def test_what_links_is_required_by_the_doctor_and_by_the_build(
    there: bool, tools: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a linker; or with one, and without the C library's objects."""
    rust = {name: str(shutil.which(name, path=FULL_PATH)) for name in ("cargo", "rustc")}
    tools(**{name: f'exec {shlex.quote(program)} "$@"' for name, program in rust.items()})
    if there:
        missing = "/usr/bin/ld: cannot find Scrt1.o: No such file or directory"
        tools(cc=f'[ "$1" = --version ] && echo cc 14 && exit\n[ "${{1#-print}}" != "$1" ] && echo crt1.o && exit\n'
              f"echo '{missing}' >&2; exit 1")  # fmt: skip
    linker = next(requirement for requirement in doctor.examine() if requirement.name == "cc")
    assert (linker.ok, linker.optional) == (False, False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    failed = next(step for step in make(tmp_path / "demo-kernel", Level.BUILD).steps if not step.ok)
    assert (failed.name, failed.hint) == ("build", "kernel-new doctor")
    assert ("crt1.o" if there else "linker cc") in failed.detail


def test_the_doctor_survives_broken_tools(tools: Callable[..., None]) -> None:
    garbage = "printf '\\377\\376\\000'; exit 0"
    tools(cargo=garbage, rustc=garbage, git=garbage, rustup=garbage, **{"nvidia-smi": garbage})
    assert doctor.examine()


def test_a_program_gets_its_arguments_as_they_are() -> None:
    hostile = ["$(id)", "`id`", "; rm -rf /", "a b", '"', "'", "*", "-n", ""]
    finished = process.run([sys.executable, "-c", "import sys; print(sys.argv[1:])", *hostile])
    assert finished.stdout == f"{hostile}\n"


def test_children_get_no_git_pointers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert "GIT_DIR" not in process.environment()
    assert os.environ["GIT_DIR"] == "/nowhere"


HANGING = "trap '' INT TERM; /bin/sleep 600 & echo $! >> {alive}; wait; /bin/sleep 600"
BAD_TOOLS = {
    "broken": ("exit 1", "it printed nothing"),
    "crashing": ("kill -SEGV $$", "it printed nothing"),
    "garbage": ("printf '\\377\\376\\000\\033[2J'", "does not start"),
    "ancient": ("echo {name} 1.70.0", "needs 1.89 or newer"),
    "hanging": (HANGING, "did not end within 3 s and was stopped"),
}
GOOD = "echo {name} 1.95.0"


def is_alive(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.rpartition(")")[2].split()[0] not in "ZX"


def left_running(alive: Path) -> list[str]:
    """Those that still run of the processes whose numbers a file holds. One that was killed takes a moment to end."""
    pids = alive.read_text().split() if alive.exists() else []
    deadline = time.monotonic() + 20
    while (running := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return running


def test_a_hanging_program_is_ended_with_its_children(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    started = time.monotonic()
    with pytest.raises(CommandError, match="sh did not end within 2 s"):
        process.run(["sh", "-c", f"echo $$ >> {alive}; (sleep 600 & echo $! >> {alive}; wait) & sleep 600"], timeout=2)
    assert time.monotonic() - started < 60
    assert len(alive.read_text().split()) == 2
    assert left_running(alive) == []


@pytest.mark.parametrize("bad", BAD_TOOLS)
@pytest.mark.parametrize("name", ["cargo", "rustc"])
def test_a_bad_compiler_is_named_and_the_files_are_written(
    name: str, bad: str, tools: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, said = BAD_TOOLS[bad]
    alive = tmp_path / "alive"
    scripts = {"cargo": GOOD, "rustc": GOOD} | {name: script}
    tools(**{tool: text.format(name=tool, alive=alive) for tool, text in scripts.items()})
    monkeypatch.setattr(process, "PROBE_LIMIT", 3.0)
    started = time.monotonic()
    report = make(tmp_path / "demo-kernel", Level.TEST)
    assert time.monotonic() - started < 30
    failed = next(step for step in report.steps if not step.ok)
    assert failed.name == "build"
    assert name in failed.detail
    assert said in failed.detail
    assert failed.hint
    assert (report.path / "Cargo.toml").is_file()
    assert left_running(alive) == []


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("exit 1", "git init failed"),
        ("kill -SEGV $$", "git init failed"),
        ("printf '\\377\\376\\000'; exit 1", "git init failed"),
        (HANGING, "git did not end within 3 s and was stopped"),
        # --initial-branch is of 2020.
        (
            '[ "$1" = --version ] && echo git version 2.11.0 || { echo "error: unknown option" >&2; exit 129; }',
            "git init",
        ),
    ],
)
@pytest.mark.parametrize("there", [False, True])
def test_with_a_bad_git_nothing_is_written(
    there: bool, bad: str, said: str, tools: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive, parent = tmp_path / "alive", tmp_path / "parent"
    (parent / "demo-kernel" if there else parent).mkdir(parents=True)
    tools(git=bad.format(alive=alive) if "alive" in bad else bad)
    monkeypatch.setattr(process, "PROBE_LIMIT", 3.0)
    with pytest.raises(CommandError, match=said) as failed:
        make(parent / "demo-kernel")
    assert failed.value.hint
    assert [str(entry.relative_to(parent)) for entry in parent.rglob("*")] == (["demo-kernel"] if there else [])
    assert left_running(alive) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("when", ["probe", "build"])
@pytest.mark.parametrize("output_option", [[], ["--json"], ["--quiet"]], ids=str)
def test_an_interrupt_ends_a_hanging_tool_at_once(
    output_option: list[str], when: str, number: int, tools: Callable[..., None], tmp_path: Path
) -> None:
    """And all that it started; the repository that was written before stays, whole, and is named."""
    alive = tmp_path / "alive"
    hanging = HANGING.format(alive=alive)
    version = '[ "$1" = --version ] && { echo cargo 1.95.0; exit; }\n' if when == "build" else ""
    tools(cargo=version + hanging, rustc="echo rustc 1.95.0")
    made = tmp_path / "demo-kernel"
    command = [sys.executable, "-m", "kernel_new", str(made), "--defaults", "--no-git", *output_option]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        deadline = time.monotonic() + 60
        while not (alive.exists() and alive.read_text().endswith("\n")) and time.monotonic() < deadline:
            time.sleep(0.05)
        pids = alive.read_text().split()
        assert any(is_alive(pid) for pid in pids)
        started = time.monotonic()
        child.send_signal(number)
        output, error = child.communicate(timeout=60)
    assert time.monotonic() - started < 20
    assert child.returncode == 130
    assert (output, error.decode().splitlines()[-1]) == (b"", "interrupted")
    assert f"{made} was written, and is not proven.\nNext: kernel-new verify {made}\n" in error.decode()
    assert left_running(alive) == []
    assert (made / "Cargo.toml").is_file()


def test_an_interrupt_while_a_program_starts_ends_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive, popen = tmp_path / "alive", subprocess.Popen

    def start(*arguments: Any, **options: Any) -> "subprocess.Popen[str]":
        child = popen(*arguments, **options)
        alive.write_text(str(child.pid))
        os.kill(os.getpid(), signal.SIGINT)
        return child

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        process.run(["sleep", "600"])
    assert left_running(alive) == []


def test_what_a_program_leaves_running_is_not_waited_for() -> None:
    """A server that it starts in a session of its own, such as a compiler cache, keeps its output open for ever."""
    started = time.monotonic()
    finished = process.run(["sh", "-c", "setsid sleep 60 & echo done; echo said >&2"])
    assert (finished.code, finished.stdout, finished.stderr) == (0, "done\n", "said\n")
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("script", ["yes", "exec >&- 2>&-; sleep 60", "sleep 60", "yes >&2"])
def test_a_time_limit_holds_whatever_a_program_does_with_its_output(script: str) -> None:
    started = time.monotonic()
    with pytest.raises(CommandError, match="did not end within 1 s"):
        process.run(["sh", "-c", script], timeout=1)
    assert time.monotonic() - started < 30


def test_the_time_limits_are_documented() -> None:
    reference = (Path(__file__).parent.parent / "docs/reference.md").read_text(encoding="utf-8")
    assert f"{process.PROBE_LIMIT:.0f} seconds" in reference
    assert f"{process.TIME_LIMIT / 60:.0f} minutes" in reference


def test_the_doctor_names_every_hanging_tool(
    tools: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "PROBE_LIMIT", 0.3)
    names = ("cargo", "rustc", "git", "rustup", "nvidia-smi")
    tools(**dict.fromkeys(names, "exec /bin/sleep 60"))
    found = {requirement.name: requirement for requirement in doctor.examine()}
    assert not any(found[name].ok for name in ("cargo", "rustc", "git"))
    assert "did not end" in found["cargo"].found


def test_an_override_of_the_toolchain_is_said(
    tools: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUSTUP_TOOLCHAIN", "stable-2020")
    tools(cargo="echo cargo 1.95.0", rustc="echo rustc 1.40.0")
    found = {requirement.name: requirement for requirement in doctor.examine()}
    assert found["cargo"].found == "1.95.0 (RUSTUP_TOOLCHAIN is stable-2020)"
    failed = next(step for step in make(tmp_path / "demo-kernel", Level.BUILD).steps if not step.ok)
    assert failed.detail.endswith("(RUSTUP_TOOLCHAIN is stable-2020)")
    tools(rustc="echo 'error: toolchain is not installed' >&2; echo ' 12: backtrace' >&2; exit 1")
    failed = next(step for step in make(tmp_path / "other-kernel", Level.BUILD).steps if not step.ok)
    assert failed.detail == "rustc does not start: toolchain is not installed (RUSTUP_TOOLCHAIN is stable-2020)"
