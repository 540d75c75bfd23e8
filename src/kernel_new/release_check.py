"""The release check: what `kernel-builder check-builds` and `check-abi` look at, and what loads nowhere else."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from kernel_new import crossbuild, manylinux, metadata
from kernel_new.errors import CommandError, KernelNewError, MissingToolError
from kernel_new.loading import symbols
from kernel_new.verify import check_symbols

PYTHON_ABI = "3.9"
MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}


def check(directories: Sequence[Path]) -> str:
    """Check variants for the Hub; a line about what was looked at.

    Raises:
        MissingToolError: kernel-abi-check is not installed.
        KernelNewError: There is nothing to check.
        CommandError: One would not pass; `output` has every reason.
    """
    require()
    if not directories:
        raise KernelNewError("there is no variant to check", "kernel-new build")
    problems = [f"{directory.name}: {problem}" for directory in directories for problem in _problems(directory)]
    if problems:
        raise CommandError(
            f"{count(problems, 'problem')} with what the Hub requires of kernels",
            "Build it anew, without --local: kernel-new build --release-check",
            "\n".join(problems),
        )
    return f"{count(directories, 'variant')}: metadata, digest, {manylinux.NAME}, Python {PYTHON_ABI} ABI, exports"


def require() -> Any:
    """The module kernel_abi_check.

    Raises:
        MissingToolError: It is not installed.
    """
    try:
        import kernel_abi_check
    except ImportError as error:
        raise MissingToolError(
            "the release check needs kernel-abi-check, which is not installed", crossbuild.how_to_get_tools()
        ) from error
    return kernel_abi_check


def count(things: Sequence[object], noun: str) -> str:
    """How many there are, in words."""
    return f"{len(things)} {noun}{'s' * (len(things) != 1)}"


def _problems(directory: Path) -> Iterator[str]:
    """Everything that is wrong with one variant, a line each."""
    from kernels import Metadata

    file = directory / metadata.FILE
    try:
        read = Metadata.read_from_file(file)
    except ValueError as error:
        yield f"{file.name} is not what kernels reads: {error}"
        return
    if not (directory / "__init__.py").is_file():
        yield "it has no __init__.py"
    if read.digest is None:
        yield f"{file.name} has no digest"
    else:
        yield from _changed(dict(read.digest.files), metadata.digest(directory))
    libraries = sorted(path for path in directory.rglob("*") if path.suffix in (".so", ".pyd"))
    if not libraries:
        yield "it has no library"
    for library in libraries:
        yield from (f"{library.name} {problem}" for problem in _library_problems(library, directory.name))


def _changed(expected: dict[str, str], found: dict[str, str]) -> Iterator[str]:
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            yield f"{name} is in its digest, and missing"
        elif name not in expected:
            yield f"{name} is not in its digest"
        elif found[name] != expected[name]:
            yield f"{name} was changed after it was built"


def _library_problems(library: Path, variant: str) -> Iterator[str]:
    """What `check-abi` finds, and whether the library is of the variant's machine and exports its ops only."""
    opened = require().ObjectFile(library)
    try:
        with library.open("rb") as file:
            machine = MACHINES.get(ELFFile(file)["e_machine"], "another machine")
        too_new = opened.check_manylinux(manylinux.NAME)
        python = opened.check_python_abi(PYTHON_ABI)
        found = symbols(library)
        needed = list(manylinux.problems(library))
    except (ELFError, ValueError, OSError) as error:
        yield f"is no library for Linux: {error}"
        return
    if f"-{machine}-" not in variant:
        yield f"is built for {machine}"
    for symbol in too_new:
        yield f"needs {symbol.name} of {symbol.dep}_{symbol.version}, says kernel-abi-check"
    for symbol in python:
        yield f"needs {symbol.name}, which Python's stable ABI of {PYTHON_ABI} has not, says kernel-abi-check"
    yield from needed
    try:
        check_symbols(*(found or ([], [])))
    except KernelNewError as error:
        yield f": {error.message}"
