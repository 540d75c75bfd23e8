"""The command line: what goes where, exit codes, and nothing that drifts from copier.yml."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest
from conftest import COMBINATIONS, Run, combination_id, ended_by, make, tree

import kernel_new
from kernel_new import questions
from kernel_new.cli import app
from kernel_new.create import Request, command_line
from kernel_new.report import Level

RunJson = Callable[..., dict[str, Any]]


def test_version_and_help(run: Run) -> None:
    assert run("--version").stdout == f"kernel-new {kernel_new.version()}\n"
    for arguments in (["--help"], ["-h"], ["new", "--help"], ["verify", "--help"]):
        finished = run(*arguments)
        assert (finished.returncode, finished.stderr) == (0, "")
        assert ("doctor" in finished.stdout) == (arguments[0].startswith("-"))


def test_every_question_has_a_flag_with_its_help_and_choices(run: Run) -> None:
    shown = re.sub(r"[│\s]+", " ", run("new", "--help", env={"COLUMNS": "300", "PATH": "/usr/bin"}).stdout)
    for question in questions.asked().values():
        assert question.flag in shown
        assert question.help in shown
        for choice in question.choices:
            assert choice.value in shown


def test_list_shows_every_choice(run: Run, run_json: RunJson) -> None:
    shown = run("list", env={**os.environ, "COLUMNS": "200"}).stdout
    for name in ("backend", "kernel", "device_compiler"):
        for choice in questions.asked()[name].choices:
            assert choice.value in shown
            assert choice.about in shown
            assert run_json("list")[name][choice.value] == choice.about


def test_the_json_document(run: Run, tmp_path: Path) -> None:
    finished = run(tmp_path / "demo-kernel", "--defaults", "--verify", "none", "--json")
    document = json.loads(finished.stdout)
    assert finished.stderr == ""
    assert list(document) == ["ok", "path", "answers", "template", "steps", "next"]
    assert document["ok"] is True
    assert document["path"] == str(tmp_path / "demo-kernel")
    assert document["answers"]["backend"] == "rust-cpu"
    assert list(document["template"]) == ["url", "version"]
    for step in document["steps"]:
        assert list(step) == ["name", "ok", "skipped", "seconds", "detail"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--name", "fn", "--defaults"],
        ["--no-such-option"],
        ["demo-kernel", "another", "--defaults"],
        ["demo-kernel", "--verify", "everything"],
        ["demo-kernel"],
        ["demo-kernel", "--defaults", "--cuda-capabilities", "8.0"],
        ["demo-kernel", "--defaults", "--device-compiler", "nvptx"],
        ["--defaults"],
        ["demo-kernel", "--defaults", "--data", "name"],
        ["demo-kernel", "--defaults", "--data", "colour=blue"],
        ["demo-kernel", "--defaults", "--data-file", "missing.yml"],
        ["demo-kernel", "--defaults", "--data-file", "list.yml"],
        ["demo-kernel", "--defaults", "--data-file", "broken.yml"],
    ],
)
def test_wrong_usage_ends_with_2_a_message_and_no_traceback(arguments: list[str], run: Run, tmp_path: Path) -> None:
    (tmp_path / "list.yml").write_text("- a\n")
    (tmp_path / "broken.yml").write_text("a: [\n")
    before = tree(tmp_path)
    finished = run(*arguments, cwd=tmp_path)
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert finished.stderr.startswith("error: ")
    assert "Traceback" not in finished.stderr
    assert tree(tmp_path) == before
    document = json.loads(run(*arguments, "--json", cwd=tmp_path).stdout)
    assert document["ok"] is False
    assert document["error"]


@pytest.mark.parametrize("command", [command.name or command.callback.__name__ for command in app.registered_commands])
def test_wrong_usage_of_a_command_proposes_its_own_help(command: str, run: Run) -> None:
    finished = run(command, "--no-such-option")
    assert finished.returncode == 2
    proposed = finished.stderr.splitlines()[-1].removeprefix("try: kernel-new ").split()
    assert proposed == [command, "--help"]
    assert re.search(rf"Usage: .* {command} \[OPTIONS\]", run(*proposed).stdout)


def test_answers_by_flag_beat_data_beats_file(run_json: RunJson, tmp_path: Path) -> None:
    (tmp_path / "answers.yml").write_text("author: file\nlicense: MIT\nrepo_id: file/file\n_commit: v9\n")
    document = run_json(
        tmp_path / "demo-kernel", "--defaults", "--verify=none", "--data-file", tmp_path / "answers.yml",
        "--data", "author=data", "--data", "repo_id=data/data", "--author", "flag",
    )  # fmt: skip
    assert (document["answers"]["author"], document["answers"]["repo_id"]) == ("flag", "data/data")
    assert document["answers"]["license"] == "MIT"
    assert document["template"]["version"] != "v9"


def test_capabilities_are_repeatable(run_json: RunJson, tmp_path: Path) -> None:
    flags = ["--backend", "rust-cuda", "--cuda-capabilities", "9.0", "--cuda-capabilities", "8.0"]
    document = run_json(tmp_path / "demo-kernel", "--defaults", "--verify=none", *flags)
    assert document["answers"]["cuda_capabilities"] == ["9.0", "8.0"]


@pytest.mark.parametrize("directory", ["plain", "my dir", "it's", "ünï", "$HOME"])
def test_the_printed_commands_can_be_pasted(directory: str, run: Run, tmp_path: Path) -> None:
    finished = run(tmp_path / directory / "demo-kernel", "--defaults", "--verify", "none", "--author", "Ada L.")
    again = next(line for line in finished.stdout.splitlines() if line.startswith("Again"))
    arguments = shlex.split(again.partition(": ")[2])[1:]
    made = tmp_path / directory / "demo-kernel"
    assert arguments == [str(made), "--defaults", "--author", "Ada L.", "--verify", "none"]
    cd = next(line.strip() for line in finished.stdout.splitlines() if line.startswith("  cd "))
    assert subprocess.check_output(["sh", "-c", f"{cd} && pwd"], text=True).strip() == str(made)


@pytest.mark.parametrize("combination", COMBINATIONS, ids=combination_id)
def test_the_printed_command_says_what_differs_from_the_defaults(combination: dict[str, str], tmp_path: Path) -> None:
    """A default may depend on other answers, as the capabilities do on the kernel."""
    report = make(tmp_path / "demo-kernel", **combination)
    printed = command_line(report, Request(None, level=Level.NONE))
    given = {name: value for name, value in combination.items() if value != questions.asked()[name].default}
    flags = [
        part
        for name in ("backend", "kernel", "device_compiler")
        if name in given
        for part in (questions.asked()[name].flag, given[name])
    ]
    assert shlex.split(printed) == ["kernel-new", str(report.path), "--defaults", *flags, "--verify", "none"]


def test_quiet_prints_nothing(run: Run, tmp_path: Path) -> None:
    finished = run(tmp_path / "demo-kernel", "--defaults", "--verify", "none", "--quiet")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


def test_plain_ascii_where_the_terminal_has_nothing_else(run: Run, tmp_path: Path) -> None:
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": "/usr/bin:/bin"}
    finished = run(tmp_path / "demo-kernel", "--defaults", "--verify", "none", env=environment)
    assert finished.returncode == 0
    assert (finished.stdout + finished.stderr).isascii()


@pytest.mark.parametrize("output", [[], ["--json"]])
def test_files_are_utf8_whatever_the_locale(output: list[str], tmp_path: Path) -> None:
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": "/usr/bin:/bin"}
    command = [
        sys.executable,
        "-m",
        "kernel_new",
        str(tmp_path / "demo-kernel"),
        "--defaults",
        "--verify=none",
        *output,
    ]
    finished = subprocess.run(
        [*command, "--author", "李四 & Söhne"],
        capture_output=True,
        env=environment,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert finished.returncode == 0, finished.stderr.decode()
    assert (finished.stdout + finished.stderr).isascii()
    assert "Copyright 李四 & Söhne\n" in (tmp_path / "demo-kernel/LICENSE").read_text(encoding="utf-8")
    assert tree(tmp_path / "demo-kernel") == tree(make(tmp_path / "ours" / "demo-kernel", author="李四 & Söhne").path)
    refused = subprocess.run([*command, "--author", b"\xff\xfe"], capture_output=True, env=environment, check=False)
    assert (refused.returncode, b"Traceback" in refused.stderr) == (2, False)


def test_a_reader_that_closes_early_is_no_traceback(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-m", "kernel_new", "list"])
    finished = subprocess.run(["sh", "-c", f"{command} | true"], capture_output=True, text=True, check=False)
    assert "Traceback" not in finished.stderr


def test_the_questions_are_asked_in_a_terminal(tmp_path: Path) -> None:
    child = pexpect.spawn(
        sys.executable,
        ["-m", "kernel_new", str(tmp_path / "asked"), "--verify", "none"],
        encoding="utf-8",
        timeout=120,
    )
    asked = questions.asked()
    child.expect_exact(asked["name"].help)
    child.sendline("")
    child.expect_exact(asked["backend"].help)
    child.expect_exact("rust-cuda: on NVIDIA GPUs")
    child.send("\x1b[B\r")
    for name in ("kernel", "device_compiler", "cuda_capabilities", "repo_id", "license", "author"):
        child.expect_exact(asked[name].help[:40])
        child.sendline("")
    child.expect_exact("Write it?")
    child.sendline("")
    child.expect("was written, and not proven")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert make(tmp_path / "made" / "asked", backend="rust-cuda").answers["backend"] == "rust-cuda"
    assert tree(tmp_path / "asked") == tree(tmp_path / "made" / "asked")


def test_control_c_at_a_question_leaves_nothing(tmp_path: Path) -> None:
    child = pexpect.spawn(sys.executable, ["-m", "kernel_new", str(tmp_path / "asked")], encoding="utf-8", timeout=120)
    child.expect_exact("name [asked]: ")
    shown = ended_by(child, child.sendintr)
    assert child.exitstatus == 130
    assert shown.endswith("interrupted\r\n")
    assert "Traceback" not in shown
    assert list(tmp_path.iterdir()) == []
