"""Runs other programs: an argument list and never a shell, a time limit, and no child left behind."""

import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import IO

from kernel_new.errors import CommandError, MissingToolError

TIME_LIMIT = 1800.0
"""Seconds after which a build, a test run or any other real work counts as hanging."""
PROBE_LIMIT = 20.0
"""Seconds for a program to say its version, or something else that takes no work."""
GRACE = 1.0
"""Seconds to wait for output after a program's end: what it left running may hold its output open for ever."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals by which a user or the system ends a command."""


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
    timeout: float | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Finished:
    """Run a program to its end. `on_line` sees each line of its standard output as it comes.

    Raises:
        MissingToolError: There is no such program, or it cannot be executed.
        CommandError: It did not end within `timeout` seconds (`TIME_LIMIT`), and was killed with its children.
    """
    name = Path(command[0]).name
    limit = TIME_LIMIT if timeout is None else timeout
    child: Child | None = None
    stderr: list[str] = []
    try:
        with undisturbed():  # Otherwise nobody would know of a child that was just started.
            child = _start(name, command, cwd, env)
            _running.add(child)
        lines: SimpleQueue[str | None] = SimpleQueue()
        _thread(child.stdout, lines.put, lambda: lines.put(None))
        errors = _thread(child.stderr, stderr.append)
        stdout = list(_until(time.monotonic() + limit, child, lines, on_line))
        code = child.wait(timeout=limit)  # It may have closed its output, and go on.
        errors.join(GRACE)
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        raise CommandError(
            f"{name} did not end within {limit:.0f} s and was stopped",
            "Run it by hand to see what it waits for.",
            "".join(stderr),
        ) from error
    finally:
        if child is not None:
            _kill(child)
            _running.discard(child)
    return Finished(code, "".join(stdout), "".join(stderr))


def _start(name: str, command: Sequence[str | Path], cwd: Path | None, env: Mapping[str, str] | None) -> "Child":
    """Start a program in a session of its own, so that all of it can be ended."""
    try:
        return subprocess.Popen(
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


def _thread(
    stream: IO[str] | None, take: Callable[[str], None], done: Callable[[], None] = lambda: None
) -> threading.Thread:
    """Reads a stream line by line in the background, where nobody has to wait for its end."""

    def read() -> None:
        with suppress(ValueError, OSError), stream or nullcontext():
            for line in stream or ():
                take(line)
        done()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def _until(
    deadline: float, child: "Child", lines: "SimpleQueue[str | None]", on_line: Callable[[str], None] | None
) -> Iterator[str]:
    """The lines of a program's output, to its end; `TimeoutError` at the deadline."""
    ended: float | None = None
    while True:
        now = time.monotonic()
        if ended is None and child.poll() is not None:
            ended = now
        if now >= deadline and ended is None:
            raise TimeoutError
        if now >= deadline or (ended is not None and lines.empty() and now >= ended + GRACE):
            return
        try:
            line = lines.get(timeout=0.1)
        except Empty:
            continue
        if line is None:
            return
        yield line
        if on_line is not None:
            on_line(line)


def _kill(child: "Child") -> None:
    """End a program and all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            child.kill()
        else:
            os.killpg(child.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(timeout=5)


Child = subprocess.Popen[str]
_running: set[Child] = set()


def stop_all() -> None:
    """End every program that any thread runs now; each `run` then returns as after a failure."""
    for child in list(_running):
        _kill(child)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold Ctrl-C and its like back, until what was begun is undone."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Signals reach the main thread only.
        return
    held: list[int] = []
    numbers = [number for number in ENDING if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, lambda number, frame: held.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if held:
        raise KeyboardInterrupt


@contextmanager
def terminated_is_interrupted() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind like Ctrl-C, so that what was begun is undone."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # What is ignored stays so: `nohup` ignores SIGHUP.
    before = {number: handler for number in ENDING[1:] if (handler := signal.getsignal(number)) != signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, interrupt)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
