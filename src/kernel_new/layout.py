"""Lays out the variants of a build in a directory of their own, and puts them into `build/` in one go."""

import filecmp
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kernel_new import metadata, record
from kernel_new.errors import KernelNewError
from kernel_new.metadata import Identity
from kernel_new.project import Project
from kernel_new.targets import Kernel, Platform, Variant

OPS = Path(__file__).parent / "_ops.py.in"
"""Becomes `_ops.py`, with the interface of the one that kernel-builder writes."""


@contextmanager
def staging(build: Path) -> Iterator[Path]:
    """A directory in `build` that is gone at the end; `build` as well, if it was made for it and nothing came of it.

    Raises:
        KernelNewError: It cannot be written.
    """
    staged = build / f".staging-{secrets.token_hex(4)}"
    try:
        staged.mkdir(parents=True)
        yield staged
    except OSError as error:
        raise KernelNewError(f"{error.filename or build}: {error.strerror}") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
        with suppress(OSError):
            build.rmdir()  # Only where it is empty.


def lay_out(project: Project, kernel: Kernel, variant: Variant, identity: Identity, library: Path, into: Path) -> Path:
    """Lay out one variant as kernel-builder installs it: Python, the library, `_ops.py`, metadata.json."""
    directory = into / variant.name
    for file in record.package_files(project):
        destination = directory / file.relative_to(project.package)
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, destination)
    add_library(library, identity.of(project, kernel.backend), directory)
    document = metadata.document(project, kernel, identity, directory)
    (directory / metadata.FILE).write_bytes(document)
    for file in directory.rglob("*"):
        file.chmod(0o755 if file.is_dir() or file.suffix == ".so" else 0o644)
    return directory


def add_library(library: Path, unique: str, directory: Path) -> None:
    """Put a library into a variant under a unique name, beside `_ops.py`, which loads it."""
    name = f"{unique}{library.suffix}"
    shutil.copy(library, directory / name)
    module = OPS.read_text(encoding="utf-8").replace("@OPS_NAME@", unique).replace("@LIBRARY@", name)
    (directory / "_ops.py").write_text(module, encoding="utf-8")


def put_into_place(staged: Path, build: Path, platforms: Sequence[Platform]) -> list[str]:
    """Move what is staged into `build`, where it replaces all variants of these platforms; the files, by path.

    Each directory appears and disappears whole.
    """
    discarded = staged / ".discarded"
    discarded.mkdir()
    replaced = [old for old in variants(build) if old.name.endswith(tuple(f"-{platform}" for platform in platforms))]
    moved: list[Path] = []
    for entry in sorted(staged.iterdir()):
        if entry != discarded:
            destination = build / entry.name
            if destination in replaced:
                destination.rename(discarded / entry.name)
            moved.append(entry.replace(destination))
    for old in replaced:
        if old not in moved:
            old.rename(discarded / old.name)
    files = [file for entry in moved for file in ([entry] if entry.is_file() else sorted(entry.rglob("*")))]
    return sorted(file.relative_to(build.parent).as_posix() for file in files if file.is_file())


def put(staged: Path, variant: Path) -> None:
    """Make the directory `variant` hold what is staged, and nothing else.

    What is the same stays, and the rest is replaced file by file: another process may be loading it.
    """
    variant.mkdir(exist_ok=True)
    kept = {"__pycache__"}
    for new in sorted(staged.iterdir()):
        kept.add(new.name)
        old = variant / new.name
        if new.is_dir():
            put(new, old)
        elif not old.is_file() or not filecmp.cmp(new, old, shallow=False):
            new.replace(old)
    for old in variant.iterdir():
        if old.name not in kept:
            shutil.rmtree(old) if old.is_dir() else old.unlink()


@contextmanager
def left_alone(build: Path, staged: Path) -> Iterator[None]:
    """Keep the variants in `build` as they are, whatever is staged there meanwhile, such as by a repository's tests."""
    aside = staged / ".aside"
    aside.mkdir()
    for entry in variants(build):
        shutil.copytree(entry, aside / entry.name)
    try:
        yield
    finally:
        for entry in variants(build):
            if not (aside / entry.name).exists():
                shutil.rmtree(entry)
        for entry in aside.iterdir():
            put(entry, build / entry.name)
        shutil.rmtree(aside)


def variants(build: Path) -> list[Path]:
    """The variants in `build`: its directories with a metadata.json, as kernel-builder finds them."""
    if not build.is_dir():
        return []
    return sorted(entry for entry in build.iterdir() if entry.is_dir() and (entry / metadata.FILE).is_file())
