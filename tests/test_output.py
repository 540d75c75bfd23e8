"""Terminals, pipes and closed streams: whatever our output goes to, there is no traceback and no lost result."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import make

from kernel_new import console

KERNEL_NEW = [sys.executable, "-m", "kernel_new"]
COMMANDS = [
    ["list"],
    ["list", "--json"],
    ["--help"],
    ["demo-kernel", "--defaults", "--verify=none"],
    ["demo-kernel", "--defaults", "--verify=none", "--json"],
    ["fn", "--defaults"],
    ["fn", "--defaults", "--json"],
]
each = pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)


def complaints(error: str) -> list[str]:
    """What Python says of a stream that it cannot write, at once or at exit."""
    return re.findall("Traceback|Exception ignored|BrokenPipe|NoneType", error)


@each
def test_a_reader_that_has_gone_is_no_traceback(arguments: list[str], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    finished = subprocess.run(
        [*KERNEL_NEW, *arguments], cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    both = subprocess.run([*KERNEL_NEW, *arguments], cwd=tmp_path, stdout=writer, stderr=writer, check=False)
    os.close(writer)
    assert complaints(finished.stderr) == []
    assert finished.returncode in (1, 2)
    assert both.returncode in (1, 2)


@each
def test_a_full_disk_behind_the_output_is_reported(arguments: list[str], tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        finished = subprocess.run(
            [*KERNEL_NEW, *arguments], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert finished.returncode in (1, 2)
    assert complaints(finished.stderr) == []
    if arguments != ["fn", "--defaults"]:  # It has nothing to say on stdout.
        assert finished.stderr.endswith("error: the output: No space left on device\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_nothing(closed: str, tmp_path: Path) -> None:
    for arguments in (
        ["demo-kernel", "--defaults", "--verify=none"],
        ["other-kernel", "--defaults", "--verify=none", "--json"],
    ):
        finished = subprocess.run(
            ["sh", "-c", f'"$@" {closed}', "sh", *KERNEL_NEW, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        assert complaints(finished.stderr) == []
    for name in ("demo-kernel", "other-kernel"):
        files = [entry for entry in (tmp_path / name).rglob("*") if entry.is_file() and ".git" not in entry.parts]
        assert not [entry for entry in files if "✓ render" in entry.read_text(encoding="utf-8")]


@pytest.mark.parametrize("columns", [1, 40, 80])
def test_a_narrow_terminal_shows_everything(columns: int, tmp_path: Path) -> None:
    """Words may be folded, but none is cut; tables keep to the width."""
    environment = {**os.environ, "COLUMNS": str(columns), "PYTHONUTF8": "1"}

    def shown(*arguments: str) -> str:
        command = [*KERNEL_NEW, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        return done.stdout

    for table in (shown("list"), shown("doctor").partition("\n\n")[0]):
        assert "…" not in table
        if columns > 1:
            assert max(len(line.rstrip()) for line in table.splitlines()) <= columns
    command = shown("demo-kernel", "--defaults", "--verify=none")
    assert f"cd {tmp_path}/demo-kernel\n" in command, "what can be pasted is not folded"


def test_no_text_of_others_commands_the_terminal(tmp_path: Path) -> None:
    hostile = "red\x1b[31m\x1b]0;title\x07 bell\x9b2J back\b"
    assert console.plain(hostile) == "red\\x1b]0;title\\x07 bell\\x9b2J back\\x08"
    assert console.plain("two\nlines\tand ünïcode 🦀") == "two\nlines\tand ünïcode 🦀"
    (tmp_path / ".copier-answers.yml").write_text("_src_path: x\n")
    build = '[general]\nname = "a"\nversion = 1\nlicense = "MIT"\nbackends = ["\x1b[2J"]\n'
    (tmp_path / "build.toml").write_text(build)
    for arguments in (["verify"], ["update"], ["\x1b[31mkernel", "--defaults"], ["--name=\x1b[31m", "--defaults"]):
        done = subprocess.run([*KERNEL_NEW, *arguments], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode
        assert b"\x1b" not in done.stdout + done.stderr


def test_the_document_is_the_same_wherever_it_goes(tmp_path: Path) -> None:
    """As JSON in ASCII too, for a path and an author that are not."""
    documents = []
    for encoding in ("utf-8", "ascii"):
        destination = tmp_path / encoding / "ünï" / "demo-kernel"
        command = [*KERNEL_NEW, str(destination), "--defaults", "--verify=none", "--json", "--author=李四"]
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        documents.append(json.loads(done.stdout.decode(encoding)))
        assert documents[-1]["path"] == str(destination)
    assert documents[0]["answers"] == documents[1]["answers"] == make(tmp_path / "demo-kernel", author="李四").answers
