"""`kernel-new explain` and shell completion."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Run

from kernel_new import explain
from kernel_new.errors import UsageError

ROOT = Path(__file__).parent.parent


def test_without_a_topic_it_lists_them(run: Run) -> None:
    shown = " ".join(run("explain").stdout.split())
    for topic in explain.topics().values():
        assert f"{topic.name} {topic.about}" in shown
    assert {"build.toml", "variants", "ptx", "tvm-ffi", "device-compilers"} <= set(explain.topics())


@pytest.mark.parametrize("name", explain.topics())
def test_a_topic_is_short_and_begins_with_a_line_about_it(name: str, run: Run) -> None:
    topic = explain.topics()[name]
    assert run("explain", name).stdout == topic.text
    assert topic.text.startswith("# ")
    assert topic.text.isascii()
    assert len(topic.text.splitlines()) <= 45
    assert 10 < len(topic.about) < 130
    assert "<!--" not in topic.text


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("PTX", "ptx"),
        ("variant", "variants"),
        ("buildtoml", "build.toml"),
        ("tvm_ffi", "tvm-ffi"),
        ("nix", "kernel-builder"),
        ("cuda-oxide", "device-compilers"),
        ("error", "errors"),
    ],
)
def test_a_word_that_is_nearly_a_topic_finds_it(word: str, name: str) -> None:
    assert explain.find(word).name == name


def test_an_unknown_topic_names_the_near_ones(run: Run) -> None:
    finished = run("explain", "varaints")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert "try: kernel-new explain variants" in finished.stderr
    with pytest.raises(UsageError) as refused:
        explain.find("zzzz")
    assert "lists them" in refused.value.hint


def test_every_other_word_leads_to_a_topic() -> None:
    assert set(explain.ALSO.values()) <= set(explain.topics())
    assert not set(explain.ALSO) & set(explain.topics())


def test_the_wheel_holds_the_topics() -> None:
    assert '"docs/explain" = "kernel_new/topics"' in (ROOT / "pyproject.toml").read_text()


def test_quoted_errors_are_what_the_code_says() -> None:
    sources = [*(ROOT / "templates").rglob("*.rs"), *(ROOT / "templates").rglob("build_ptx.py")]
    code = " ".join(re.sub(r'["\\\s]+', " ", file.read_text(encoding="utf-8")) for file in sources)
    for part in ("must be contiguous", "is older than its sources", "and cannot run kernels compiled for", "overlaps"):
        assert part in code
        assert part in explain.topics()["errors"].text


def completed(words: str) -> list[str]:
    """What bash would offer for the last word."""
    before = words.split(" ")
    environment = {"_KERNEL_NEW_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(before) - 1)}
    program = Path(sys.executable).parent / "kernel-new"
    finished = subprocess.run([program], env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    return finished.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("kernel-new ver", ["verify"]),
        ("kernel-new upd", ["update"]),
        ("kernel-new --back", ["--backend"]),
        ("kernel-new --ver", ["--version", "--verify"]),
        ("kernel-new demo --back", ["--backend"]),
        ("kernel-new --backend ", ["rust-cpu", "rust-cuda"]),
        ("kernel-new new --device-compiler c", ["cuda-oxide"]),
        ("kernel-new explain var", ["variants"]),
    ],
)
def test_completion_of(words: str, offered: list[str]) -> None:
    assert completed(words) == offered


def test_the_first_word_completes_to_every_command(run: Run) -> None:
    assert {"new", "verify", "update", "explain", "doctor"} <= set(completed("kernel-new "))


@pytest.mark.parametrize(
    ("shell", "file", "said"),
    [
        ("bash", ".bash_completions/kernel-new.sh", "complete -o default -F"),
        ("zsh", ".zfunc/_kernel-new", "#compdef kernel-new"),
        ("fish", ".config/fish/completions/kernel-new.fish", "complete --command kernel-new"),
    ],
)
def test_completion_is_installed(shell: str, file: str, said: str, tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "kernel-new"
    environment = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    environment.pop("XDG_CONFIG_HOME", None)
    installed = subprocess.run(
        [program, "--install-completion", shell], env=environment, capture_output=True, text=True, check=False
    )
    assert installed.returncode == 0, installed.stderr
    assert said in (tmp_path / file).read_text()
    shown = subprocess.run(
        [program, "--show-completion", shell], env=environment, capture_output=True, text=True, check=False
    )
    assert said in shown.stdout
    if found := shutil.which(shell):
        assert subprocess.run([found, "-n", tmp_path / file], check=False).returncode == 0
