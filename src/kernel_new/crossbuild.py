"""Compiles the host crate for a release: for either platform, glibc 2.28, and to the same bytes wherever that is."""

import os
import re
import shlex
import shutil
import stat
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from kernel_new import cargo, process
from kernel_new.errors import CommandError, KernelNewError, MissingToolError, UsageError
from kernel_new.project import Project
from kernel_new.targets import Kernel, Platform, here

GLIBC = "2.28"
"""The newest glibc that the Hub's manylinux_2_28 takes symbols of."""

PACKAGES = "cargo-zigbuild ziglang kernel-abi-check"
"""The extra `build` of kernel-new, by name: it works however kernel-new itself was installed."""


def how_to_get_tools() -> str:
    """The command that installs what a release build needs."""
    return f"{sys.executable} -m pip install {PACKAGES}"


def require(project: Project, platform: Platform, local: bool) -> None:
    """Raise unless everything is here that compiling for `platform` takes, so that nothing fails halfway.

    Raises:
        MissingToolError: cargo, Rust's library for the platform, or zig is missing.
        UsageError: `local` was asked for another platform than this machine's.
    """
    cargo.require()
    if local and platform is not here():
        raise UsageError(f"--local builds for this machine, and {platform} is another", "Leave --local out.")
    finished = process.run(["rustc", "--print", "target-libdir", "--target", platform.triple], cwd=project.path)
    library = Path(finished.stdout.strip())
    if finished.code or not (library.is_dir() and any(library.glob("libstd-*"))):
        raise MissingToolError(
            f"Rust's standard library for {platform} is not installed", f"rustup target add {platform.triple}"
        )
    search = process.environment()["PATH"]
    if not local and not (shutil.which("cargo-zigbuild", path=search) and _zig()):
        raise MissingToolError(
            f"building for the Hub links against glibc {GLIBC}, and cargo-zigbuild with zig is not installed",
            f"{how_to_get_tools()}\nOr for this machine only: kernel-new build --local",
        )


def compile_crate(
    project: Project, kernel: Kernel, platform: Platform, local: bool, progress: cargo.Progress | None = None
) -> cargo.Built:
    """Compile the host crate of `kernel` into a dynamic library.

    Raises:
        CommandError: It does not compile.
    """
    manifest = project.path / kernel.manifest
    options = ["--lib", "--crate-type", "cdylib", "--manifest-path", str(manifest)]
    options += ["--target", platform.triple if local else f"{platform.triple}.{GLIBC}"]
    if kernel.features:
        options += ["--features", ",".join(kernel.features)]
    # Debug information names this machine's directories.
    own = [f"--remap-path-prefix={project.path}=/kernel", "-Cstrip=debuginfo"]
    command = ["cargo" if local else "cargo-zigbuild", "rustc"]
    return cargo.build(
        project.path,
        progress,
        command=command,
        options=[*options, "--", *own],
        env=_environment(project, kernel, platform, local),
        again="kernel-new build",
    )


def _environment(project: Project, kernel: Kernel, platform: Platform, local: bool) -> dict[str, str]:
    """The build's environment: kernel-builder's variables, and none that would change the result."""
    kept = {name: value for name, value in process.environment().items() if not _CHANGES.fullmatch(name)}
    if not local:
        kept["PATH"] = os.pathsep.join([str(_link_time_library(platform)), kept["PATH"]])
    return {
        **kept,
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(_remapped((project.path / kernel.manifest).parent)),
        "KERNEL_BUILDER_GPU_LANG": kernel.backend.upper(),
        "KERNEL_BUILDER_CUDA_ARCHS": ";".join(kernel.capabilities),
    }


_CHANGES = re.compile(r"(CARGO_ENCODED_|CARGO_BUILD_)?RUSTFLAGS|CARGO_INCREMENTAL|CARGO_PROFILE_RELEASE_.*")
"""Variables by which the same commit would become another library."""


def _remapped(crate: Path) -> list[str]:
    """Flags that keep directories of this machine out of every crate: panics would name them."""
    said = process.run(["rustc", "-vV"], cwd=crate).stdout
    commit = next((line.split()[1] for line in said.splitlines() if line.startswith("commit-hash:")), "rust")
    sysroot = process.run(["rustc", "--print", "sysroot"], cwd=crate).stdout.strip()
    home = os.environ.get("CARGO_HOME") or str(Path.home() / ".cargo")
    directories = {
        home: "/cargo",
        f"{sysroot}/lib/rustlib/src/rust": f"/rustc/{commit}",
        str(cargo.target_directory(crate)): "/target",
    }
    return [f"--remap-path-prefix={ours}={neutral}" for ours, neutral in directories.items()]


def _zig() -> list[str] | None:
    """The command that runs zig; None where it is missing."""
    if find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang"]
    found = shutil.which("zig")
    return [found] if found else None


def _link_time_library(platform: Platform) -> Path:
    """A directory for PATH whose `tvm-ffi-config` names a libtvm_ffi.so of `platform` to link against.

    tvm-ffi's crate links the library that this command names, and the installed one is this machine's. Linking
    takes its name and symbols only, so a library of empty functions does, made from tvm-ffi's C headers.

    Raises:
        CommandError: zig cannot make it.
    """
    key = f"{version('apache-tvm-ffi')}-{platform.machine}"
    directory = user_cache_path("kernel-new") / "tvm-ffi" / key
    directory.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{directory}.lock"):
        if not (directory / "tvm-ffi-config").is_file():
            _make(directory, platform)
    return directory


def _make(directory: Path, platform: Platform) -> None:
    directory.mkdir(exist_ok=True)
    source, library = directory / "tvm_ffi.c", directory / "libtvm_ffi.so"
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in _c_functions()), encoding="utf-8")
    zig = _zig() or ["zig"]
    target = ["-target", f"{platform.machine}-linux-gnu.{GLIBC}", "-shared", "-nostdlib", "-Wl,-soname,libtvm_ffi.so"]
    finished = process.run([*zig, "cc", *target, "-o", str(library), str(source)], timeout=300)
    if finished.code:
        raise CommandError("zig cannot make a library to link against", output=finished.stderr)
    program = directory / "tvm-ffi-config.new"
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' {shlex.quote(str(directory))}\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    program.replace(directory / "tvm-ffi-config")


def _c_functions() -> list[str]:
    """The functions of tvm-ffi's C interface, by its headers."""
    import tvm_ffi.libinfo

    include = Path(tvm_ffi.libinfo.find_include_path()) / "tvm/ffi"
    headers = [include / "c_api.h", include / "extra/c_env_api.h"]
    text = "".join(header.read_text(encoding="utf-8") for header in headers if header.is_file())
    if not (found := sorted(set(re.findall(r"\b(TVMFFI\w+)\(", text)))):
        raise KernelNewError(f"{include} has no functions of tvm-ffi", "pip install --force-reinstall apache-tvm-ffi")
    return found
