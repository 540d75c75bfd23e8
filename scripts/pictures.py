"""Takes the pictures of docs/pictures/: real runs of kernel-new in tmux, drawn as SVG by rich.

    python scripts/pictures.py [NAME...]

It needs tmux, and cargo for those that build.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURES = Path(__file__).parent.parent / "docs/pictures"
SOCKET = ["tmux", "-L", f"pictures-{os.getpid()}", "-f", os.devnull]
COLUMNS = 88


class Terminal:
    """A shell in tmux, in an empty home, with kernel-new on its PATH."""

    def __init__(self, home: Path, lines: int) -> None:
        scripts = Path(sys.executable).parent
        cargo = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
        rustup = os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup"))
        kept = {
            "HOME": str(home),
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "CARGO_HOME": cargo,
            "RUSTUP_HOME": rustup,
            "LANG": "C.UTF-8",
            "GIT_AUTHOR_NAME": "Ada",
            "GIT_AUTHOR_EMAIL": "ada@example.org",
            "GIT_COMMITTER_NAME": "Ada",
            "GIT_COMMITTER_EMAIL": "ada@example.org",
            "TERM": "tmux-256color",
        }
        self.home = home
        env = ["env", "-i", *(f"{name}={value}" for name, value in kept.items())]
        self.tmux(
            "new-session",
            "-d",
            "-x",
            str(COLUMNS),
            "-y",
            str(lines),
            "-c",
            str(home),
            shlex.join([*env, "bash", "--norc"]),
        )
        time.sleep(0.5)
        self.type("PS1='$ ' PROMPT_COMMAND='echo >> ~/.prompts'; clear", "Enter")
        time.sleep(1)

    def tmux(self, *arguments: str) -> str:
        return subprocess.run([*SOCKET, *arguments], check=True, capture_output=True, text=True).stdout

    def type(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-e").rstrip()

    def wait(self, text: str, seconds: float = 180) -> None:
        """Until the screen shows a text."""
        until = time.monotonic() + seconds
        while not re.search(text, re.sub(r"\x1b\[[0-9;]*m", "", self.screen()), re.MULTILINE):
            assert time.monotonic() < until, f"the screen never showed {text!r}:\n{self.screen()}"
            time.sleep(0.1)

    def command(self, line: str) -> None:
        """Run a command to its end, which is the next prompt."""
        prompts, until = self.home / ".prompts", time.monotonic() + 300
        before = prompts.stat().st_size
        self.type(line, "Enter")
        while prompts.stat().st_size == before:
            assert time.monotonic() < until, f"{line} did not end:\n{self.screen()}"
            time.sleep(0.1)
        time.sleep(0.5)

    def close(self) -> None:
        self.tmux("kill-server")


def first_run(terminal: Terminal) -> None:
    terminal.command("kernel-new my-kernel --defaults")


def questions(terminal: Terminal) -> None:
    terminal.type("kernel-new --verify none", "Enter")
    terminal.wait(r"name \[my-kernel\]:")
    terminal.type("soft-relu", "Enter")
    terminal.wait("arrow keys")
    terminal.type("Down")
    time.sleep(0.5)


def preview(terminal: Terminal) -> None:
    terminal.type(
        "kernel-new soft-relu --backend rust-cpu --kernel relu --repo-id ada/soft-relu --license MIT --author Ada",
        "Enter",
    )
    terminal.wait(r"name \[soft-relu\]:")
    terminal.type("", "Enter")
    terminal.wait("Write it")


def doctor(terminal: Terminal) -> None:
    terminal.command("kernel-new doctor")


def explain(terminal: Terminal) -> None:
    terminal.command("kernel-new explain variants")


ALL: dict[str, tuple[Callable[[Terminal], None], int]] = {
    "first-run": (first_run, 20),
    "questions": (questions, 16),
    "preview": (preview, 34),
    "doctor": (doctor, 26),
    "explain": (explain, 34),
}
"""Each picture: what is done, and lines of the terminal."""


def draw(screen: str, title: str) -> str:
    """The screen as SVG."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(screen), end="")
    svg = console.export_svg(title="kernel-new", unique_id=title)
    # The font is named, not fetched: a picture must not call a server.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main(names: list[str]) -> None:
    PICTURES.mkdir(exist_ok=True)
    for name in names or ALL:
        act, lines = ALL[name]
        with tempfile.TemporaryDirectory(prefix="kernel-new-", ignore_cleanup_errors=True) as directory:
            terminal = Terminal(Path(directory), lines)
            try:
                act(terminal)
                screen = terminal.screen().removesuffix("$").rstrip().replace(directory, "/home/ada")
            finally:
                terminal.close()
        (PICTURES / f"{name}.svg").write_text(draw(screen, name), encoding="utf-8")
        print(f"docs/pictures/{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
