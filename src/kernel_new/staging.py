"""A directory beside the destination, in which a repository is made before it appears. Nothing of it stays."""

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kernel_new import process
from kernel_new.errors import KernelNewError

try:
    import fcntl
except ImportError:  # Windows: without locks nothing is swept.
    fcntl = None  # type: ignore[assignment]

NAME = re.compile(r"\.kernel-new-[0-9a-f]{8}")


@contextmanager
def beside(destination: Path) -> Iterator[Path]:
    """A path of the destination's name in a directory beside it, removed at the end with any parent made for it.

    What a run left that was killed is removed too: whoever is still at work holds a lock on its directory.
    """
    made = [parent for parent in destination.parents if not parent.exists()]
    directory, lock = destination.parent, None
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        sweep(destination.parent)
        while lock is None:
            # Named before it is made, so that an interrupt between the two leaves nothing.
            directory = destination.parent / f".kernel-new-{secrets.token_hex(4)}"
            directory.mkdir(mode=0o700)
            lock = _lock(directory)
        yield directory / destination.name
    except OSError as error:
        where = error.filename or destination.parent
        raise KernelNewError(
            f"{where}: {error.strerror or error}", "Nothing was written. Choose another directory."
        ) from error
    finally:
        with process.undisturbed():
            if directory != destination.parent:
                _remove(directory)
            if lock is not None and lock >= 0:
                os.close(lock)
            for parent in made:
                with suppress(OSError):
                    parent.rmdir()  # Only what is empty: nothing came of it.


def sweep(parent: Path) -> None:
    """Remove what killed runs of this user's left in `parent`."""
    with suppress(OSError):
        for entry in os.scandir(parent):
            if NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    _sweep(Path(entry.path))


def _sweep(directory: Path) -> None:
    mine = directory.stat(follow_symlinks=False).st_uid == os.geteuid()
    lock = _lock(directory) if fcntl and mine else None
    if lock is not None and lock >= 0:
        _remove(directory)
        os.close(lock)


def _lock(directory: Path) -> int | None:
    """Hold `directory`, until the process ends: a file descriptor; negative where the file system has no locks.

    None where another process holds it, or has removed it.
    """
    if fcntl is None:
        return -1
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        return -1
    if os.fstat(descriptor).st_nlink == 0:
        os.close(descriptor)
        return None
    return descriptor


def _remove(directory: Path) -> None:
    """Remove a directory, in which a program that was interrupted at its very start may still write for a moment."""
    for _ in range(40):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(0.05)
