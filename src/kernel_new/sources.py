"""Compares the sources that build.toml lists with those that cargo compiles: kernel-builder gives cargo no others."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from kernel_new import cargo
from kernel_new.errors import KernelNewError
from kernel_new.project import Project
from kernel_new.targets import RUST


def check_listed(project: Project) -> None:
    """Raise `KernelNewError` where build.toml lists what is no file; where the lock is none, cargo will tell."""
    for name, table in project.build["kernel"].items():
        listed = [file for file in _listed(table) if file != cargo.LOCK]
        if absent := [file for file in listed if not (project.path / file).is_file()]:
            raise KernelNewError(
                f"build.toml lists in src of [kernel.{name}] what is no file: {', '.join(absent)}",
                f"Correct it or take it out, in {project.path / 'build.toml'}.",
            )


def check_compiled(project: Project, features: Sequence[str], library: Path) -> None:
    """Compare with the dependencies that cargo wrote beside a library, which it built with these features.

    Raises:
        KernelNewError: build.toml does not list one that is in the repository.
    """
    root, target = project.path.resolve(), cargo.target_directory(project.path).resolve()
    read = [path for path in _dependencies(library, root) if path.is_relative_to(root)]
    read = [path for path in read if not path.is_relative_to(target)]  # OUT_DIR is there.
    for name, table in project.build["kernel"].items():
        if table.get("dsl") not in RUST or list(table.get("features") or ()) != list(features):
            continue
        listed = {PurePosixPath(file) for file in _listed(table)}
        needed = sorted(PurePosixPath(file.relative_to(root)) for file in _needed(root, read, table))
        unlisted = [str(file) for file in needed if file not in listed]
        if unlisted:
            of = "what the library is compiled from"
            raise KernelNewError(
                f"build.toml does not list in src of [kernel.{name}] {of}: {', '.join(unlisted)}",
                f"Add to src of [kernel.{name}] in {project.path / 'build.toml'}:\n"
                + "\n".join(f'  "{file}",' for file in unlisted),
            )


def _listed(table: dict[str, Any]) -> list[str]:
    return [str(file) for file in table.get("src") or ()]


def _needed(root: Path, read: list[Path], table: dict[str, Any]) -> set[Path]:
    """The files without which cargo cannot build the library of a table: those it read, their manifests, the locks."""
    needed = {path for path in read if path.is_file()} - {root / "build.toml"}  # kernel-builder always takes that.
    if table.get("backend") == "cuda":
        for directory in filter(Path.is_dir, read):
            needed |= _device_code(directory, [str(one) for one in table.get("cuda-capabilities") or ()])
    for file in list(needed):
        manifests = (parent / "Cargo.toml" for parent in file.parents if parent.is_relative_to(root))
        needed |= set([found for found in manifests if found.is_file()][:1])
    # A device crate has no lock of its own that the host's build reads.
    return needed | {file for file in (root / "Cargo.toml", root / cargo.LOCK) if file.is_file()}


def _device_code(directory: Path, capabilities: list[str]) -> set[Path]:
    """What a build script reads that watches a directory of device code; PTX of a capability only if it is declared."""
    targets = {f"sm_{capability.removesuffix('+PTX').replace('.', '')}" for capability in capabilities}
    of = re.compile(r"\.(sm_\w+)\.ptx$")
    ptx = {file for file in directory.glob("*.ptx") if not (found := of.search(file.name)) or found[1] in targets}
    manifests = {file for file in (directory / "Cargo.toml", directory / "rust-toolchain.toml") if file.is_file()}
    return ptx | manifests | set((directory / "src").rglob("*.rs"))


def _dependencies(library: Path, root: Path) -> Iterator[Path]:
    """What cargo's dep-info of a library names: `LIBRARY: FILE FILE`, with blanks escaped; nothing without one."""
    file = library.with_suffix(".d")
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        for name in re.findall(r"(?:\\ |\S)+", line.partition(": ")[2]):
            yield (root / name.replace("\\ ", " ")).resolve()
