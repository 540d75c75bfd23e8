"""Runs cargo and reads its JSON messages: progress, the library's path, and rustc's own rendering of errors."""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from kernel_new import git, process
from kernel_new.errors import CommandError, KernelNewError, MissingToolError

MINIMUM = Version("1.89")
"""The `rust-version` of the emitted crates."""

GET_RUST = "Install Rust from https://rustup.rs, or run `rustup update stable`."

LOCK = "Cargo.lock"

LINKER = "cc"
"""The program by which rustc links, where nothing is configured."""

NO_LINKER = re.compile(r"linker `([^`]+)` not found|(cannot find|cannot open) \S*crt1\.o")
UNLOCKED = "--locked was passed to prevent this"
"""What cargo of any version says of a lock that is missing, or that it would have to change."""

Progress = Callable[[str, int, int], None]
"""Called with a crate's name, how many crates are done and how many there are about."""


@dataclass(frozen=True)
class Built:
    """A host crate that cargo built: where its library is, and what cargo warned of."""

    library: Path
    warnings: tuple[str, ...]


def version(program: str = "cargo") -> Version:
    """The installed version of `cargo` or `rustc`.

    Raises:
        MissingToolError: It is missing, does not start, or says nothing that is a version.
    """
    finished = process.run([program, "--version"], timeout=process.PROBE_LIMIT)
    found = re.match(rf"{program} (\d+\.\d+\.\d+)", finished.stdout)
    if finished.code or not found:
        said = (finished.stderr or finished.stdout).strip().splitlines() or ["it printed nothing"]
        line = next((line for line in said if line.startswith("error: ")), said[-1])
        reason = f"{line.removeprefix('error: ')}{toolchain()}"
        raise MissingToolError(f"{program} does not start: {reason}", GET_RUST)
    return Version(found[1])


def toolchain() -> str:
    """Which toolchain the user's environment orders rustup to use, for a message; usually nothing."""
    override = os.environ.get("RUSTUP_TOOLCHAIN")
    return f" (RUSTUP_TOOLCHAIN is {override})" if override else ""


def require() -> None:
    """Raise `MissingToolError` unless cargo and rustc are there and new enough for an emitted repository."""
    for program in ("cargo", "rustc"):
        try:
            found = version(program)
        except MissingToolError as error:
            raise MissingToolError(error.message, GET_RUST) from error
        if found < MINIMUM:
            needed = f"the kernel needs {MINIMUM} or newer"
            raise MissingToolError(f"{program} is {found}, and {needed}{toolchain()}", GET_RUST)


def target_directory(path: Path) -> Path:
    """Where cargo puts what it builds of the crate in `path`, by its own word."""
    finished = process.run(["cargo", "metadata", "--no-deps", "--format-version=1", "--offline"], cwd=path)
    if finished.code:
        raise CommandError("cargo cannot read the crate", output=finished.stderr)
    return Path(json.loads(finished.stdout)["target_directory"])


def is_locked(path: Path) -> bool:
    """Whether the lock of the crate in `path` holds for its manifest."""
    return process.run(["cargo", "metadata", "--locked", "--format-version=1"], cwd=path).code == 0


def resolve(path: Path) -> None:
    """Let cargo complete the lock of the crate in `path`, with as few changes as can be.

    Raises:
        CommandError: It cannot, as without a network.
    """
    finished = process.run(["cargo", "metadata", "--format-version=1"], cwd=path)
    if finished.code:
        raise CommandError("cargo cannot resolve the dependencies", output=finished.stderr)


def build(
    path: Path,
    progress: Progress | None = None,
    *,
    command: Sequence[str] = ("cargo", "build"),
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    again: str = "cargo build --release --locked",
) -> Built:
    """Build the host crate in `path` for release, with its lock as it is, by a cargo that `require` found.

    `command` is another than `cargo build` with the same messages, with `options` of its own; `again` is what a user
    runs after a failure.

    Raises:
        CommandError: It does not compile; `output` is what rustc or a build script printed.
    """
    total = _crates(path)
    messages: list[dict[str, Any]] = []
    done: set[str] = set()

    def on_line(line: str) -> None:
        for message in _parse(line):
            messages.append(message)
            if message["reason"] == "compiler-artifact" and progress:
                done.add(message["package_id"])
                progress(message["target"]["name"], len(done), max(total, len(done)))

    line = [*command, "--release", "--locked", "--message-format=json", *options]
    finished = process.run(line, cwd=path, env=env, on_line=on_line)
    if finished.code:
        rendered = "\n".join(_errors(messages)) or finished.stderr
        if UNLOCKED in finished.stderr:
            raise CommandError(*_unlocked(path), finished.stderr)
        if found := NO_LINKER.search(f"{rendered}\n{finished.stderr}"):
            what = f"linker {found[1]}, which is not installed" if found[1] else "C library, whose crt1.o is missing"
            raise CommandError(f"the crate cannot be linked: it needs the {what}", "kernel-new doctor")
        raise CommandError("the crate does not compile", f"Once it is mended: {again}", rendered)
    libraries = [Path(file) for message in messages for file in _libraries(message)]
    if not libraries:
        raise KernelNewError('cargo built no dynamic library: crate-type in Cargo.toml must contain "cdylib"')
    warnings = tuple(line for line in finished.stderr.splitlines() if line.startswith("warning: "))
    return Built(libraries[-1], warnings)


def _unlocked(path: Path) -> tuple[str, str]:
    """What is wrong with the lock of the crate in `path`, and the command that mends it: git's, where one was lost."""
    here = f"cd {shlex.quote(str(path))} && "
    if (path / LOCK).is_file():
        return f"{LOCK} does not fit Cargo.toml", f"{here}cargo update --workspace"
    return f"{LOCK} is missing", here + (
        f"git checkout {LOCK}" if git.holds(path, f"HEAD:./{LOCK}") else "cargo update --workspace"
    )


def _crates(path: Path) -> int:
    lock = path / "Cargo.lock"
    return lock.read_text(encoding="utf-8").count("[[package]]") if lock.is_file() else 0


def _parse(line: str) -> Iterator[dict[str, Any]]:
    try:
        message = json.loads(line)
    except ValueError:
        return  # A build script of a dependency may print anything.
    if isinstance(message, dict) and "reason" in message:
        yield message


def _errors(messages: list[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        if message["reason"] == "compiler-message" and message["message"]["level"] == "error":
            yield message["message"]["rendered"]


def _libraries(message: dict[str, Any]) -> Iterator[str]:
    if message["reason"] == "compiler-artifact" and "cdylib" in message["target"]["kind"]:
        yield from (file for file in message["filenames"] if file.endswith((".so", ".dylib")))
