"""The first run: questions, preview, progress, next steps, the doctor's commands; on any terminal."""

import io
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pexpect
import pytest
from conftest import COMBINATIONS, Run, combination_id, ended_by, make
from rich.console import Console
from rich.progress import Progress

from kernel_new import asking, checkup, console, doctor, preview, questions
from kernel_new.errors import KernelNewError
from kernel_new.form import Form
from kernel_new.report import Level, Report, Step

Start = Callable[..., "pexpect.spawn[str]"]
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts kernel-new in a terminal of a given width."""
    children: list[pexpect.spawn[str]] = []

    def start(*arguments: str, columns: int = 80, lines: int = 40, **env: str) -> "pexpect.spawn[str]":
        environment = {**os.environ, "TERM": "xterm-256color", **env}
        environment.pop("COLUMNS", None)
        command = ["-m", "kernel_new", *arguments]
        terminal = {"dimensions": (lines, columns), "encoding": "utf-8", "timeout": 120}
        child = pexpect.spawn(sys.executable, command, cwd=tmp_path, env=environment, **terminal)
        children.append(child)
        return child

    yield start
    for child in children:
        child.close(force=True)


def rest(child: "pexpect.spawn[str]") -> str:
    """What it prints until it ends, as a reader sees it."""
    child.expect(pexpect.EOF)
    child.close()
    return ESCAPE.sub("", child.before or "")


def test_what_is_typed_replaces_the_default(start: Start, tmp_path: Path) -> None:
    child = start("--backend=rust-cuda", "--kernel=relu", "--device-compiler=nvptx", "--license=MIT", "--verify=none")
    child.expect_exact("[my-kernel]: ")
    child.sendline("typed-name")
    child.expect_exact("[8.0]: ")
    child.sendline("9.0a, 8.0")
    child.expect_exact("[your-org/typed-name]: ")
    child.sendline("")
    child.expect_exact("[The typed-name authors]: ")
    child.sendline("")
    child.expect_exact("Write it?")
    child.sendline("y")
    shown = rest(child)
    assert child.exitstatus == 0, shown
    again = next(line for line in shown.splitlines() if line.startswith("Again"))
    assert "--cuda-capabilities 9.0a --cuda-capabilities 8.0" in again
    assert (tmp_path / "typed-name/kernels-ptx/typed_name_device.sm_90a.ptx").is_file()


def test_a_refused_answer_is_asked_again_with_the_reason(start: Start) -> None:
    child = start(columns=40)
    child.expect_exact("[my-kernel]: ")
    child.sendline("Bad Name")
    child.expect_exact("try bad-name")
    child.expect_exact("[my-kernel]: ")
    assert "interrupted" in ended_by(child, child.sendeof)
    assert child.exitstatus == 130


def test_a_refused_option_is_said_before_anything_is_asked(start: Start) -> None:
    child = start("--name", "fn", "--verify=none")
    shown = rest(child)
    assert (child.exitstatus, "belongs to Rust" in shown) == (2, True)
    assert "[" not in shown


def test_nothing_is_written_where_the_preview_is_declined(start: Start, tmp_path: Path) -> None:
    child = start("declined", "--backend=rust-cpu", "--kernel=relu", "--license=MIT", "--repo-id=a/b", "--author=Ada")
    child.expect_exact("[declined]: ")
    child.sendline("")
    child.expect_exact("tests against a reference")
    child.expect_exact("Write it? [Y/n] ")
    child.sendline("n")
    assert "nothing was written" in rest(child)
    assert child.exitstatus == 130
    assert list(tmp_path.iterdir()) == []


def test_no_line_of_a_question_is_cut_in_a_narrow_terminal(start: Start) -> None:
    child = start("demo-kernel", columns=40)
    child.sendline("")
    child.expect_exact("CPU,")
    child.expect_exact("vectorised")
    child.expect_exact("device code in Rust too")


def test_questions_take_their_words_from_copier_yml() -> None:
    answers = {"name": "demo-kernel", "backend": "rust-cuda", "second_backend": "none"}
    form = Form(Path("demo-kernel"), answers)
    asked = questions.asked()
    assert form.render(asked["repo_id"], "default") == "your-org/demo-kernel"
    assert form.applies(asked["cuda_capabilities"])
    assert not Form(Path("x"), {**answers, "backend": "rust-cpu"}).applies(asked["cuda_capabilities"])
    assert form.refusal(asked["name"], "fn").startswith("try fn-kernel: ")
    assert form.refusal(asked["license"], "beer") == "none of the choices"
    assert [form.refusal(asked["cuda_capabilities"], value) for value in (["8.0"], ["9.0a", "8.0"])] == ["", ""]


@pytest.mark.parametrize(
    "typed", ["8.0, 9.0a", "8.0 9.0a", '["8.0", "9.0a"]', "[8.0, 9.0a]", '"8.0", "9.0a"', "'8.0' '9.0a'", "['8.0' 9.0a"]
)
def test_a_list_is_typed_in_any_way(typed: str) -> None:
    assert asking._listed(typed) == ["8.0", "9.0a"]


@pytest.mark.parametrize(
    ("question", "typed"),
    [("name", "Bad"), ("name", "fn"), ("repo_id", "second-kernel"), ("author", ""), ("cuda_oxide", "x")]
    + [("cuda_capabilities", typed) for typed in ("eight", "7.5", "9.0a", "8.0 8.0", "8.0 8.6a", "")],
)
def test_what_is_proposed_can_be_typed(question: str, typed: str) -> None:
    form = Form(Path("demo-kernel"), {"name": "demo-kernel", "backend": "rust-cuda"})
    asked = questions.asked()[question]

    def refused(text: str) -> str:
        return asking._refusal(form, asked, asking._listed(text) if question == "cuda_capabilities" else text, None)

    proposed = refused(typed).removeprefix("try ").partition(": ")[0]
    assert refused(proposed) == ""
    assert not set(proposed) & set("[]\"'")


def test_an_occupied_name_is_asked_again_at_once(start: Start, tmp_path: Path) -> None:
    make(tmp_path / "my-kernel")
    (tmp_path / "other-kernel").mkdir()
    (tmp_path / "other-kernel/mine").write_text("mine")
    child = start()
    for name, hint in (("", "kernel-new verify"), ("other-kernel", "Choose another destination.")):
        child.expect_exact("[my-kernel]: ")
        child.sendline(name)
        child.expect_exact("already exists and is not an empty directory")
        child.expect_exact(hint)
    child.expect_exact("[my-kernel]: ")
    child.sendline("free-kernel")
    child.expect_exact("rust-cpu")
    given = start("--name=other-kernel")
    shown = rest(given)
    assert (given.exitstatus, "already exists" in shown, "[" in shown) == (2, True, False)


COLUMNS = pytest.mark.parametrize("columns", [40, 80, 100])


def words(shown: str) -> set[str]:
    return set(ESCAPE.sub("", shown).split())


@COLUMNS
def test_no_word_is_cut_on_any_terminal(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a step, a refused answer, the preview and a table; what is longer than the terminal stays whole, too."""
    path = tmp_path / "-".join(["a-long-name"] * 12)
    detail = f"silu: {', '.join(f'src/file_{i}.rs' for i in range(7))} and 6 more in {path}"
    screen = Console(force_terminal=True, width=columns, highlight=False, soft_wrap=True)
    monkeypatch.setattr(console, "stdout", lambda: screen)
    for name in ("build", "test"):
        with screen.capture() as capture:
            console.show_step(Step(name, detail=detail), screen)
        lines = ESCAPE.sub("", capture.get()).splitlines()
        assert words(capture.get()) <= {*detail.split(), "✓", name, "(0.0", "s)"}
        assert all(line.startswith(" " * 9) for line in lines[1:])
        assert all(len(line) <= columns for line in lines if path.name not in line)
    monkeypatch.setattr("builtins.input", lambda text: "n")
    for parent in (tmp_path, Path("/home/ada"), path):
        with screen.capture() as capture:
            preview.approve(
                Report(parent / "demo-kernel"), ["src/lib.rs", *[f"tests/{i}.py" for i in range(47)]], Level.TEST
            )
        shown = ESCAPE.sub("", capture.get())
        assert f"{parent / 'demo-kernel'} will hold 48 files:".split() == shown.split()[:5]
    with screen.capture() as capture:
        asked = questions.asked()["device_compiler"]
        rows = [(asked.flag, choice.value, choice.about) for choice in asked.choices]
        console.show_table(rows, screen)
    assert words(capture.get()) == {word for row in rows for cell in row for word in cell.split()}
    answers = iter(["Bad Name", "fine-name"])
    monkeypatch.setattr("builtins.input", lambda text: next(answers))
    form = Form(Path("demo-kernel"), {})
    with screen.capture() as capture:
        assert asking._ask(form, questions.asked()["name"], screen, None) == "fine-name"
    refused = asking._refusal(form, questions.asked()["name"], "Bad Name", None)
    asked_again = ESCAPE.sub("", capture.get()).partition("my-kernel\n")[2]
    assert words(asked_again) <= words(refused)
    assert all(line.startswith("  ") for line in asked_again.splitlines() if line)


@COLUMNS
def test_the_list_cuts_no_word(columns: int, start: Start, run: Run) -> None:
    whole = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    assert words(rest(start("list", columns=columns))) == words(run("list", env=whole).stdout)


@pytest.mark.parametrize("error", [KernelNewError("x"), OSError(28, "full"), KeyboardInterrupt(), ValueError("bug")])
@pytest.mark.parametrize("fatal", [True, False])
def test_no_progress_stays_on_the_screen_after_an_error(error: BaseException, fatal: bool) -> None:
    live = console.Live()
    live.bar = Progress(console=Console(force_terminal=True, file=io.StringIO()), transient=True)
    with suppress(type(error)), Report(Path()).step("add", live, fatal=fatal):
        assert live.bar.live.is_started
        raise error
    assert not live.bar.live.is_started
    assert not live.bar.tasks


@pytest.mark.parametrize("combination", COMBINATIONS, ids=combination_id)
def test_the_preview_explains_every_file_at_the_top(combination: dict[str, str], tmp_path: Path) -> None:
    made = make(tmp_path / "demo-kernel", **combination).path
    files = [str(file.relative_to(made)) for file in made.rglob("*") if file.is_file()]
    tops = set(preview.tops(files)) - {".git"}
    assert tops <= set(preview.ABOUT)
    assert {"src", "tests", "build.toml"} <= tops


@pytest.mark.parametrize("columns", [40, 80])
def test_progress_is_one_line(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(force_terminal=True, width=columns, file=open(os.devnull, "w"), record=True)  # noqa: PTH123, SIM115
    monkeypatch.setattr(console, "stderr", lambda: screen)
    live = console.Live()
    live.bar.add_task("Building with cargo", total=None, text="")
    live.progress("a-crate-with-a-very-long-name-that-does-not-fit-anywhere-at-all", 3, 70)
    with screen.capture() as capture:
        screen.print(live.bar.get_renderable())
    lines = ESCAPE.sub("", capture.get()).rstrip("\n").splitlines()
    assert len(lines) == 1
    assert len(lines[0].rstrip()) <= columns
    assert re.search(r"\d:\d\d:\d\d$", lines[0].rstrip())


def test_a_long_error_leaves_the_step_that_failed_on_the_screen() -> None:
    screen = Console(force_terminal=True, width=80, height=24)
    with screen.capture() as capture:
        console.show_step(Step("build", ok=False, detail="it does not compile", output="x\n" * 200), screen)
    lines = capture.get().splitlines()
    assert "it does not compile" in lines[0]
    assert len(lines) < 24 - 8
    piped = Console(width=80, height=24)
    with piped.capture() as capture:
        console.show_step(Step("build", ok=False, output="x\n" * 200), piped)
    assert len(capture.get().splitlines()) == console.OUTPUT_LINES + 2


@pytest.mark.parametrize("backend", ["rust-cpu", "rust-cuda"])
def test_the_next_steps_are_true_for_this_machine(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    report = make(tmp_path / "demo-kernel", backend=backend)
    steps = report.next
    assert any(step == "git add --all && git commit -m 'Start from kernel-new'" for step in steps)
    assert not any("user.email" in step for step in steps)
    source = next(step for step in steps if step.startswith("${EDITOR")).split()[-1]
    assert (report.path / source).is_file()
    assert "pytest" in steps
    assert any("kernel-new explain gpu" in step for step in steps) == (backend == "rust-cuda")
    for step in steps:
        assert subprocess.run(["bash", "-n", "-c", step], check=False).returncode == 0


def test_the_next_steps_without_an_identity_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(variable)
    nobody = tmp_path / "gitconfig"
    nobody.write_text("[user]\n  useConfigOnly = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(nobody))
    configure, commit = [step for step in make(tmp_path / "demo-kernel").next if step.startswith("git ")]
    assert configure.startswith("git config user.name")
    for step in (configure, commit):
        subprocess.run(["bash", "-euc", step], cwd=tmp_path / "demo-kernel", check=True, capture_output=True)


def test_the_next_steps_inside_another_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert not any("git " in step for step in make(tmp_path / "demo-kernel").next)


def test_where_pytest_is_another_environments_it_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    steps = make(tmp_path / "demo-kernel").next
    assert "kernel-new verify" in steps
    assert "pytest" not in steps


def test_the_doctor_ends_with_commands(run: Run, tmp_path: Path) -> None:
    (tmp_path / "apt-get").write_text("#!/bin/sh\n")
    (tmp_path / "apt-get").chmod(stat.S_IRWXU)
    shown = run("doctor", env={**os.environ, "PATH": str(tmp_path)}).stdout
    needed, optional = shown.split("To get what is missing, run:\n")[1].split("\n\nNeeded for some work only:\n")
    commands = [line.strip() for line in needed.splitlines()]
    assert "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y" in commands
    assert any(line.endswith("apt-get install -y git") for line in commands)
    assert "cargo oxide setup" in optional
    assert "kernel-new explain gpu" in optional
    for line in [*commands, *optional.splitlines()]:
        assert subprocess.run(["bash", "-n", "-c", line.strip()], check=False).returncode == 0


@pytest.mark.parametrize("manager", checkup.MANAGERS)
def test_every_manager_of_packages_installs_a_linker(
    manager: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / manager).write_text("#!/bin/sh\n")
    (tmp_path / manager).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path))
    (command,) = checkup.commands(doctor.Requirement("cc", "any", "missing", False))
    package = {"apt-get": "gcc libc6-dev", "apk": "gcc musl-dev"}.get(manager, "gcc")
    assert command == f"{checkup.MANAGERS[manager]} {package}"


def test_packages_that_are_wanted_for_the_same_come_with_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        doctor.Requirement("numpy", ">= 1.26", "missing", False, "python -m pip install 'numpy>=1.26'"),
        doctor.Requirement("pytest", ">= 8.0", "7.0", False, "python -m pip install 'pytest>=8.0'"),
        doctor.Requirement("a", "to build", "missing", False, "python -m pip install a", optional=True),
        doctor.Requirement("b", "to build", "missing", False, "python -m pip install b", optional=True),
        doctor.Requirement("ptxas", "to check", "missing", False, "python -m pip install c", optional=True),
    ]
    checkup.show(found)
    pip = [line.split(" install ")[1] for line in capsys.readouterr().out.splitlines() if " install " in line]
    assert pip == ["'numpy>=1.26' 'pytest>=8.0'", "a b", "c"]


def test_every_requirement_has_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    for requirement in doctor.examine():
        for line in checkup.commands(requirement):
            assert shlex.split(line, comments=True)


@pytest.mark.parametrize(
    ("found", "command"),
    [("1.70.0", "rustup update"), ("cargo does not start: no default", "rustup default stable")],
)
def test_rustup_that_is_there_is_used(
    found: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rustup").write_text("#!/bin/sh\n")
    (tmp_path / "rustup").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert checkup.commands(doctor.Requirement("cargo", "", found, False)) == [command]


def test_the_toolchain_is_the_one_that_repositories_pin() -> None:
    root = Path(__file__).parent.parent
    pinned = (root / "templates/rust-cuda/kernels/rust-toolchain.toml").read_text()
    assert f'channel = "{doctor.NVPTX_TOOLCHAIN}"' in pinned


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("command", ["doctor", "list", "explain"])
def test_nothing_is_wider_than_the_terminal(command: str, columns: int, start: Start) -> None:
    shown = rest(start(command, columns=columns))
    pasted = ("cargo +", "cargo oxide", "kernel-new", "/", "error", "rustup")
    for line in shown.splitlines():
        assert len(line.rstrip()) <= columns or line.strip().startswith(pasted) or ": /" in line, line


@pytest.mark.parametrize("columns", [40, 80])
def test_help_cuts_no_name_and_no_sentence(columns: int, run: Run) -> None:
    environment = {**os.environ, "COLUMNS": str(columns)}
    options = run("new", "--help", env=environment).stdout
    commands = run("--help", env=environment).stdout
    for name in ("--cuda-capabilities", "--device-compiler", "--template-url", "none|build|load|test"):
        assert name in options
    assert "--install-completion" in commands
    assert not re.search(r"\w(\.\.\.|\u2026)", options + commands)
    lines = [line.rstrip() for line in (options + commands).splitlines() if "|MIT|" not in line]
    assert max(map(len, lines)) <= max(columns, 44)  # typer gives each column no less


@pytest.mark.parametrize("command", [["list"], ["explain"], ["doctor"], ["explain", "variants"]])
def test_in_a_pipe_there_is_neither_colour_nor_folding(command: list[str], run: Run) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"CI": "1"}
    shown = run(*command, env=environment).stdout
    assert max(map(len, shown.splitlines())) > 80
    assert "\x1b" not in shown
    assert not re.search(r"[ ]$", shown, re.MULTILINE)


def test_no_colour_of_the_background_and_none_at_all_where_unwanted(start: Start) -> None:
    child = start("explain", "build.toml")
    child.expect(pexpect.EOF)
    assert not re.search(r"\x1b\[[0-9;]*\b(4[0-8]|10[0-7])\b[0-9;]*m", child.before or "")
    plain = start("explain", "build.toml", NO_COLOR="1")
    plain.expect(pexpect.EOF)
    assert not re.search(r"\x1b\[[0-9;]*\b(3[0-8]|4[0-8]|9[0-7])\b[0-9;]*m", plain.before or "")
