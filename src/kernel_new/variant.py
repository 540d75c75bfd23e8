"""Lays out `build/<variant>/` the way the `kernels` library loads it."""

import hashlib
import json
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kernel_new import layout
from kernel_new.project import Project

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

CUDA_DEFAULT = "13.0"
"""CUDA version in the variant's name where no torch says another. The library links no CUDA, so any would do."""


def name(backend: str) -> str:
    """The build variant of a backend for this machine, as in `tvm-ffi01-cpu-x86_64-linux`."""
    major, minor = version("apache-tvm-ffi").split(".")[:2]
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    compute = "cpu" if backend == "cpu" else f"cu{_cuda_version().replace('.', '')}"
    return f"tvm-ffi{major}{minor}-{compute}-{machine}-{platform.system().lower()}"


def stage(project: Project, library: Path) -> Path:
    """Lay out the variants around a built library, replacing those that were there; the directory of the foremost.

    Where there are two backends, both have the library for CUDA, which has the ops of the CPU, too.
    """
    return {backend: _stage(project, backend, library) for backend in project.backends}[project.backend]


@contextmanager
def locked(project: Project) -> Iterator[None]:
    """Keep the repository's tests in another terminal from staging meanwhile: they lock the same file."""
    with (project.path / "build.toml").open("rb+") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _stage(project: Project, backend: str, library: Path) -> Path:
    """Lay out one variant.

    The library's name and the metadata's id hold a digest of the library, so that two builds can be loaded into
    one process.
    """
    digest = hashlib.sha256(library.read_bytes()).hexdigest()[:8]
    unique = f"_{project.module}_{backend}_{digest}"
    build = project.path / "build"
    directory = build / name(backend)
    with layout.staging(build) as temporary:
        staged = temporary / directory.name
        shutil.copytree(project.package, staged, ignore=shutil.ignore_patterns("__pycache__", "_ops.py"))
        layout.add_library(library, unique, staged)
        document = json.dumps(_metadata(project, backend, unique), indent=2)
        (staged / "metadata.json").write_text(f"{document}\n", encoding="utf-8")
        layout.put(staged, directory)
    return directory


def _metadata(project: Project, backend: str, unique: str) -> dict[str, Any]:
    """The keys of kernel-builder's metadata.json that `kernels` requires."""
    archs = {"archs": project.capabilities} if backend == "cuda" else {}
    return {
        "id": unique,
        "name": project.name,
        "version": project.version,
        "license": project.license,
        "python-depends": project.python_depends,
        "backend": {"type": backend, **archs},
    }


def _cuda_version() -> str:
    if find_spec("torch"):
        import torch  # type: ignore[import-not-found,unused-ignore]

        return str(torch.version.cuda or CUDA_DEFAULT)
    return CUDA_DEFAULT
