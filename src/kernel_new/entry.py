"""Runs the command line: every failure that a user can cause ends in a message and an exit code."""

import errno
import io
import os
import sys
from contextlib import suppress

import typer

from kernel_new.cli import app
from kernel_new.errors import KernelNewError, StoppedError, UsageError

INTERRUPTED = 130


def main() -> None:
    """Run the command; every failure that a user can cause ends in a message and an exit code."""
    _open_streams()
    _start_in_utf8()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=sys._xoptions.get("output"), errors="backslashreplace")
    try:
        code = _run()
        sys.stdout.flush()
    except OSError as error:
        code = _unwritable(error)
    finally:
        _let_go_of_output()
    sys.exit(code)


def _open_streams() -> None:
    """Open what the caller closed, so that no file of ours becomes a standard stream."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin, sys.stdout, sys.stderr = (
        stream or open(number, mode, encoding="utf-8")  # noqa: SIM115, PTH123
        for number, mode, stream in ((0, "r", sys.stdin), (1, "w", sys.stdout), (2, "w", sys.stderr))
    )


def _start_in_utf8() -> None:
    """Start again in Python's UTF-8 mode where the locale has another encoding: file names of the template are UTF-8.

    What is shown keeps the locale's encoding.
    """
    if sys.getfilesystemencoding() == "utf-8":
        return
    command = [sys.executable, "-P", "-X", f"output={sys.stdout.encoding}", "-m", "kernel_new", *sys.argv[1:]]
    os.execve(sys.executable, command, {**os.environ, "PYTHONUTF8": "1"})  # noqa: S606


def _unwritable(error: OSError) -> int:
    """What the system refused: mostly our own output, whose reader has gone or whose disk is full."""
    if not isinstance(error, BrokenPipeError):
        with suppress(OSError):
            what = error.filename or ("the current directory" if error.errno == errno.ENOENT else "the output")
            sys.stderr.write(f"error: {what}: {error.strerror or error}\n")
            sys.stderr.flush()
    return 1


def _let_go_of_output() -> None:
    """Write what is left to write, now: at exit, Python makes an exit code of its own of what it cannot write."""
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is not None:
            try:
                stream.flush()
            except OSError:
                setattr(sys, name, None)


def _run() -> int:
    from kernel_new import process

    try:
        with process.terminated_is_interrupted():
            code = app(standalone_mode=False)
    except StoppedError as stopped:
        from kernel_new import console

        typer.echo(console.plain(stopped.message), err=True)
        return stopped.exit_code
    except KernelNewError as error:
        return _failed(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        # typer's own complaints about options: it has no public base class for them.
        if not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        command = f"{context.info_name} " if context and context.parent else ""
        return _failed(UsageError(error.format_message(), f"kernel-new {command}--help"))
    if code == INTERRUPTED:  # Newer versions of typer make this of Ctrl-C.
        typer.echo("interrupted", err=True)
    return code if isinstance(code, int) else 0


def _failed(error: KernelNewError) -> int:
    from kernel_new import console

    (console.show_error_json if "--json" in sys.argv else console.show_error)(error)
    return error.exit_code
