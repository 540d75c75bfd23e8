"""An interrupt while a proof runs: what was written before stays, and the user is told so."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_new.errors import StoppedError


@contextmanager
def proof(done: str, path: Path) -> Iterator[None]:
    """Say what was done to the repository at `path`, and how to prove it, where its proof is interrupted.

    Raises:
        StoppedError: It was.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        how = f"Next: kernel-new verify {shlex.quote(str(path))}"
        raise StoppedError(f"{done}, and is not proven.\n{how}\ninterrupted") from interrupt
