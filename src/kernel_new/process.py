"""Runs other programs: an argument list and never a shell, a time limit, and no child left behind."""

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread, Timer
from types import FrameType
from typing import IO

from kernel_new.errors import CommandError, MissingToolError

TIME_LIMIT = 1800.0
"""Seconds after which a program counts as hanging."""


@dataclass(frozen=True)
class Finished:
    """A program that ended: its exit code and what it printed on each stream."""

    code: int
    stdout: str
    stderr: str


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's environment for children, with this interpreter's scripts found first.

    `tvm-ffi-config`, which tvm-ffi's build script calls, is among those scripts also when no virtual environment
    is active. Variables that point git at another repository are left out.
    """
    scripts = sysconfig.get_path("scripts")
    path = os.environ.get("PATH", os.defpath)
    if scripts not in path.split(os.pathsep):
        path = os.pathsep.join([scripts, path])
    kept = {key: value for key, value in os.environ.items() if key not in _GIT_POINTERS}
    return {**kept, "PATH": path, **(extra or {})}


_GIT_POINTERS = frozenset(
    f"GIT_{name}"
    for name in ("DIR", "WORK_TREE", "INDEX_FILE", "OBJECT_DIRECTORY", "COMMON_DIR", "NAMESPACE", "PREFIX")
)


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = TIME_LIMIT,
    on_line: Callable[[str], None] | None = None,
) -> Finished:
    """Run a program to its end. `on_line` sees each line of its standard output as it comes.

    Raises:
        MissingToolError: There is no such program, or it cannot be executed.
        CommandError: It did not end within `timeout` seconds, and was killed with its children.
    """
    name = Path(command[0]).name
    try:
        child = subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd,
            env=dict(env) if env is not None else environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise MissingToolError(f"{name} could not be run: {reason}", "kernel-new doctor") from error
    _running.add(child)
    expired: list[bool] = []

    def expire() -> None:
        expired.append(True)
        _kill(child)

    timer = Timer(timeout, expire)
    timer.start()
    stderr: list[str] = []
    reader = Thread(target=lambda stream: stderr.append(stream.read()), args=(child.stderr,))
    reader.start()
    try:
        stdout = "".join(_lines(child.stdout, on_line))
        reader.join()
        code = child.wait()
    finally:
        timer.cancel()
        _kill(child)
        _running.discard(child)
    if expired:
        raise CommandError(
            f"{name} did not end within {timeout:.0f} s and was stopped",
            "Run it by hand to see what it waits for.",
            "".join(stderr),
        )
    return Finished(code, stdout, "".join(stderr))


def _lines(stream: IO[str] | None, on_line: Callable[[str], None] | None) -> list[str]:
    lines: list[str] = []
    for line in stream or ():
        lines.append(line)
        if on_line is not None:
            on_line(line)
    return lines


def _kill(child: subprocess.Popen[str]) -> None:
    """End a program and all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            child.kill()
        else:
            os.killpg(child.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(timeout=5)


_running: set[subprocess.Popen[str]] = set()


def stop_all() -> None:
    """End every program that any thread runs now; each `run` then returns as after a failure."""
    for child in list(_running):
        _kill(child)


@contextmanager
def terminated_is_interrupted() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind like Ctrl-C, so that what was begun is undone."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
