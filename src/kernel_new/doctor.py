"""What kernel-new and the repositories it makes need: what is wanted, what is here, how to get the rest."""

import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernel_new import cargo, process
from kernel_new.errors import KernelNewError

NVPTX_TOOLCHAIN = "1.96.0"
"""The Rust release that the emitted repositories pin for device code."""

PACKAGES = {"apache-tvm-ffi": "0.1.15", "kernels": "0.17.2", "numpy": "1.26", "pytest": "8.0"}
BUILD_PACKAGES = {
    "cargo-zigbuild": "to build for the Hub",
    "ziglang": "to build for the Hub",
    "kernel-abi-check": "to check builds, and to publish",
}


@dataclass(frozen=True)
class Requirement:
    """One requirement; `optional` ones are needed for some work only, which `wanted` names."""

    name: str
    wanted: str
    found: str
    ok: bool
    how: str = ""
    optional: bool = False


def examine() -> list[Requirement]:
    """Look at everything. Never raises, whatever is missing."""
    return [
        *(_rust(program) for program in ("cargo", "rustc")),
        _linker(),
        _git(),
        *(_package(name, minimum) for name, minimum in PACKAGES.items()),
        _tvm_ffi_config(),
        _nvptx(),
        _cuda_oxide(),
        _ptxas(),
        *(_optional(name, wanted) for name, wanted in BUILD_PACKAGES.items()),
        _gpu(),
    ]


def _first_line(*command: str) -> str:
    """The first line that a program prints; empty where it is missing or fails."""
    try:
        finished = process.run(command, timeout=process.PROBE_LIMIT)
    except KernelNewError:
        return ""
    lines = finished.stdout.strip().splitlines()
    return lines[0] if finished.code == 0 and lines else ""


def _rust(program: str) -> Requirement:
    wanted = f">= {cargo.MINIMUM}, to build kernels"
    try:
        found = cargo.version(program)
    except KernelNewError as error:
        return Requirement(program, wanted, error.message, False, cargo.GET_RUST)
    return Requirement(program, wanted, f"{found}{cargo.toolchain()}", found >= cargo.MINIMUM, cargo.GET_RUST)


def _linker() -> Requirement:
    """The C compiler by which rustc links, with the C library's own objects: a compiler alone links nothing."""
    found = shutil.which(cargo.LINKER) if _first_line(cargo.LINKER, "--version") else None
    objects = _first_line(cargo.LINKER, "-print-file-name=crt1.o")
    without = found and sys.platform == "linux" and objects == "crt1.o"  # It names what it does not find, too.
    how = "Install a C compiler with the development files of its C library, such as gcc and libc6-dev."
    said = f"{found}, without the C library's crt1.o" if without else found or "missing"
    return Requirement(cargo.LINKER, "any, to link kernels", said, bool(found and not without), how)


def _git() -> Requirement:
    found = _first_line("git", "--version").removeprefix("git version ")
    return Requirement(
        "git", "any, for updates", found or "missing", bool(found), "apt install git, or https://git-scm.com"
    )


def _package(name: str, minimum: str) -> Requirement:
    from packaging.version import Version

    how = f"{Path(sys.executable)} -m pip install '{name}>={minimum}'"
    try:
        found = version(name)
    except PackageNotFoundError:
        return Requirement(name, f">= {minimum}", "missing", False, how)
    return Requirement(name, f">= {minimum}", found, Version(found) >= Version(minimum), how)


def _optional(name: str, wanted: str) -> Requirement:
    how = f"{sys.executable} -m pip install {name}"
    try:
        found = version(name)
    except PackageNotFoundError:
        return Requirement(name, wanted, "missing", False, how, optional=True)
    return Requirement(name, wanted, found, True, how, optional=True)


def _tvm_ffi_config() -> Requirement:
    program = Path(sysconfig.get_path("scripts")) / "tvm-ffi-config"
    found = _first_line(str(program), "--libdir")
    how = f"{sys.executable} -m pip install --force-reinstall apache-tvm-ffi"
    return Requirement("tvm-ffi-config", "beside this Python", found or "missing", bool(found), how)


def _nvptx() -> Requirement:
    """A compiler whose library for NVIDIA GPUs is installed, or can be built from its sources."""
    sysroots = [
        _first_line("rustc", "--print", "sysroot"),
        _first_line("/usr/bin/rustc", "--print", "sysroot"),
    ]
    for line in _lines("rustup", "toolchain", "list"):
        sysroots.append(_first_line("rustup", "run", line.split()[0], "rustc", "--print", "sysroot"))
    found = next((root for root in sysroots if root and _has_nvptx(Path(root))), "")
    how = f"rustup toolchain install {NVPTX_TOOLCHAIN} --target nvptx64-nvidia-cuda"
    wanted = "to rebuild PTX (nvptx)"
    return Requirement("rustc for nvptx", wanted, found or "missing", bool(found), how, optional=True)


def _has_nvptx(sysroot: Path) -> bool:
    library = sysroot / "lib/rustlib"
    return any((library / part).is_dir() for part in ("nvptx64-nvidia-cuda/lib", "src/rust/library/core"))


def _lines(*command: str) -> list[str]:
    try:
        finished = process.run(command, timeout=process.PROBE_LIMIT)
    except KernelNewError:
        return []
    return finished.stdout.strip().splitlines() if finished.code == 0 else []


def _cuda_oxide() -> Requirement:
    backend = os.environ.get("CUDA_OXIDE_BACKEND", "")
    found = backend if backend and Path(backend).is_file() else _first_line("cargo", "oxide", "--version")
    how = "See https://github.com/NVlabs/cuda-oxide, or set CUDA_OXIDE_BACKEND to its library."
    return Requirement("cuda-oxide", "to rebuild PTX (cuda-oxide)", found or "missing", bool(found), how, optional=True)


def _ptxas() -> Requirement:
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    packaged = Path(sysconfig.get_path("purelib")) / "nvidia/cu13/bin/ptxas"
    candidates = [shutil.which("ptxas"), f"{home}/bin/ptxas", str(packaged)]
    found = next((path for path in candidates if path and Path(path).is_file()), "")
    how = f"{sys.executable} -m pip install nvidia-cuda-nvcc"
    return Requirement("ptxas", "to check rebuilt PTX", found or "missing", bool(found), how, optional=True)


def _gpu() -> Requirement:
    found = _first_line("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    how = "GPU tests skip without one; a CUDA 12 driver (525 or newer) and an NVIDIA GPU run them."
    return Requirement(
        "GPU and driver", "to run rust-cuda kernels", found or "missing", bool(found), how, optional=True
    )
