"""What a repository declares to be built: its Rust kernels, the platforms, and the build variants of both."""

import platform
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from kernel_new.errors import KernelNewError
from kernel_new.project import Project

CUDA_SETS = ("12.6", "13.0", "13.2")
"""CUDA versions of kernel-builder's official tvm-ffi variants. The library links no CUDA, so one serves them all."""

RUST = ("rust", "cuda-oxide")
"""The languages in build.toml that cargo builds."""


class Platform(StrEnum):
    """A platform to build for, as the names of variants end."""

    X86_64 = "x86_64-linux"
    AARCH64 = "aarch64-linux"

    @property
    def machine(self) -> str:
        return self.value.partition("-")[0]

    @property
    def triple(self) -> str:
        """The platform as Rust names it."""
        return f"{self.machine}-unknown-linux-gnu"


@dataclass(frozen=True)
class Kernel:
    """The Rust kernel of one backend, as `[kernel.*]` of build.toml declares it."""

    backend: str
    manifest: str
    """Cargo.toml of its host crate, relative to the repository."""
    features: tuple[str, ...]
    capabilities: tuple[str, ...]


@dataclass(frozen=True)
class Variant:
    """One directory below `build/`."""

    name: str
    backend: str
    platform: Platform


def here() -> Platform | None:
    """The platform of this machine; None where it is none that can be built for."""
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    name = f"{machine}-{platform.system().lower()}"
    return Platform(name) if name in set(Platform) else None


def kernels(project: Project) -> list[Kernel]:
    """The kernel of each backend that the repository declares.

    Raises:
        KernelNewError: A backend has no kernel in Rust, or more than one: two cannot be linked into one library.
    """
    file = project.path / "build.toml"
    found: list[Kernel] = []
    for backend in project.backends:
        if backend not in ("cpu", "cuda"):
            raise KernelNewError(f"{file} declares the backend {backend}", "kernel-new builds for cpu and cuda.")
        tables = [table for table in project.build["kernel"].values() if table.get("backend") == backend]
        if any(table.get("dsl") not in RUST for table in tables):
            raise KernelNewError(f"{file} has a {backend} kernel that is not Rust", "kernel-builder builds those.")
        if len(tables) != 1:
            raise KernelNewError(
                f"{file} has {len(tables)} kernels for {backend}, and one crate makes one library",
                f'Put one [kernel.*] with backend = "{backend}" there, with the sources of all its ops.',
            )
        found.append(_kernel(tables[0], backend, project))
    return found


def variants(project: Project, backend: str, on: Platform) -> list[Variant]:
    """The variants of one backend on one platform."""
    from importlib.metadata import version

    major, minor = version("apache-tvm-ffi").split(".")[:2]
    computes = ["cpu"] if backend == "cpu" else [f"cu{cuda.replace('.', '')}" for cuda in _cuda_sets(project)]
    return [Variant(f"tvm-ffi{major}{minor}-{compute}-{on}", backend, on) for compute in computes]


def _kernel(table: dict[str, Any], backend: str, project: Project) -> Kernel:
    manifest = next(
        (str(source) for source in table.get("src", ()) if PurePosixPath(source).name == "Cargo.toml"), None
    )
    if manifest is None or not (project.path / manifest).is_file():
        raise KernelNewError(
            f"{project.path / 'build.toml'} names no Cargo.toml for {backend} that exists",
            "List the host crate's Cargo.toml first in src.",
        )
    features = tuple(str(feature) for feature in table.get("features") or ())
    return Kernel(backend, manifest, features, tuple(str(c) for c in table.get("cuda-capabilities") or ()))


def _cuda_sets(project: Project) -> list[str]:
    """The CUDA versions between `minver` and `maxver` of `[general.cuda]`.

    Raises:
        KernelNewError: One of these is no version, or none is left between them.
    """
    from packaging.version import InvalidVersion, Version

    file, limits = project.path / "build.toml", project.build["general"].get("cuda") or {}
    try:
        least, most = Version(str(limits.get("minver", "0"))), Version(str(limits.get("maxver", "999")))
    except InvalidVersion as error:
        raise KernelNewError(f"{file}, [general.cuda]: {error}", 'Versions are such as "12.6".') from error
    if not (found := [cuda for cuda in CUDA_SETS if least <= Version(cuda) <= most]):
        raise KernelNewError(
            f"{file}, [general.cuda] leaves none of {', '.join(CUDA_SETS)}", "Widen minver and maxver."
        )
    return found
