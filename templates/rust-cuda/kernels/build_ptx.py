#!/usr/bin/env python3
"""Compile the kernels to the PTX that the library embeds: `python kernels/build_ptx.py`.

`--check` compiles nothing and exits with 1 where the PTX is older than its sources.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "kernels"
TARGET = "nvptx64-nvidia-cuda"
COMMAND = "python kernels/build_ptx.py"


class Compiler(NamedTuple):
    """How to run a cargo and a rustc, and what cargo needs besides to compile the kernels."""

    cargo: list[str]
    rustc: list[str]
    options: list[str] = []
    environment: dict[str, str] = {}


def load(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def crate() -> str:
    """Name of the device crate in Rust, and of its PTX."""
    name: str = load(KERNELS / "Cargo.toml")["package"]["name"]
    return name.replace("-", "_")


def ptx_path() -> Path:
    return ROOT / "kernels-ptx" / f"{crate()}.ptx"


def kernel_table() -> dict[str, Any]:
    """The table of build.toml that describes the CUDA kernels."""
    kernels = load(ROOT / "build.toml")["kernel"].values()
    table: dict[str, Any] = next(
        kernel for kernel in kernels if kernel["backend"] == "cuda"
    )
    return table


def target() -> str:
    """The lowest of `cuda-capabilities`, as the compiler names it: sm_80 for ["8.0", "9.0"]."""

    def number(capability: str) -> tuple[int, ...]:
        return tuple(int(part) for part in capability.rstrip("af").split("."))

    return "sm_" + min(kernel_table()["cuda-capabilities"], key=number).replace(".", "")


def digest() -> str:
    """Digest of the device crate, the same as build.rs computes: 64-bit FNV-1a over paths and lines.

    The name of the crate is left out, since no code depends on it.
    """
    paths = [
        KERNELS / "Cargo.toml",
        KERNELS / "rust-toolchain.toml",
        *KERNELS.glob("src/**/*.rs"),
    ]
    files = {
        path.relative_to(ROOT).as_posix(): path.read_bytes().decode() for path in paths
    }
    value = 0xCBF29CE484222325
    for name, text in sorted(files.items()):
        lines = text.replace("\r\n", "\n").split("\n")
        for line in [name, *(line for line in lines if not line.startswith("name = "))]:
            for byte in f"{line}\n".encode():
                value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def record() -> str:
    """The lines of the PTX that say what it was built from."""
    return f"// target: {target()}\n// sources: {digest()}\n"


def is_current() -> bool:
    return ptx_path().exists() and record() in ptx_path().read_text(encoding="utf-8")


def output(command: list[str], environment: dict[str, str] | None = None) -> str:
    """What a command prints; nothing where it is absent or fails."""
    try:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def channel() -> str:
    toolchain: str = load(KERNELS / "rust-toolchain.toml")["toolchain"]["channel"]
    return toolchain


def toolchains() -> Iterator[Compiler]:
    """The pinned compiler and a nightly from rustup, then the system's where it is the pinned one."""
    if shutil.which("rustup"):
        for name in (channel(), "nightly"):
            run = ["rustup", "run", name]
            yield Compiler([*run, "cargo"], [*run, "rustc"])
    for directory in [*os.get_exec_path(), "/usr/bin"]:
        rustc = shutil.which("rustc", path=directory)
        cargo = shutil.which("cargo", path=directory)
        if (
            rustc
            and cargo
            and output([rustc, "--version"]).startswith(f"rustc {channel()} ")
        ):
            yield Compiler([cargo], [rustc], environment={"RUSTC": rustc})


def find_nvptx() -> Compiler:
    """A compiler that has Rust's `core` for the GPU, or its source to compile it from."""
    for compiler in toolchains():
        libraries = Path(
            output([*compiler.rustc, "--print", "sysroot"]) or "/-", "lib/rustlib"
        )
        if (libraries / TARGET).is_dir():
            return compiler
        if (libraries / "src/rust/library/core").is_dir():
            return compiler._replace(options=["-Zbuild-std=core"])
    fail(
        f"no Rust compiler for the target {TARGET}; get the pinned one with",
        f"rustup toolchain install {channel()} --profile minimal --target {TARGET}",
    )


def compile_nvptx(directory: Path) -> str:
    """Compile with rustc's own target for NVIDIA GPUs; returns the compiler's name."""
    compiler = find_nvptx()
    asm = directory / "kernels.ptx"
    # fmt: off
    cargo([
        *compiler.cargo, "rustc", "--release", "--locked", "--lib", "--crate-type", "staticlib",
        "--target", TARGET, *compiler.options, "--config", 'profile.release.lto="fat"',
        "--", f"--emit=asm={asm}", f"-Ctarget-cpu={target()}",
    ], {"RUSTC_BOOTSTRAP": "1", **compiler.environment})
    # fmt: on
    return version(compiler.rustc)


def compile_oxide(directory: Path) -> str:
    """Compile with cuda-oxide, as kernel-builder does; returns the compiler's name."""
    dependency = load(KERNELS / "Cargo.toml")["dependencies"]["cuda-device"]
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    installed = home / "cuda-oxide" / "librustc_codegen_cuda.so"
    backend = os.environ.get("CUDA_OXIDE_BACKEND") or str(installed)
    if not Path(backend).exists():
        fail(
            "no cuda-oxide: set CUDA_OXIDE_BACKEND to its librustc_codegen_cuda.so, or get it with",
            f"cargo +{channel()} install --git {dependency['git']} --rev {dependency['rev']}"
            " cargo-oxide && cargo oxide setup",
        )
    flags = ["-Zcodegen-backend=" + backend, "-Copt-level=3", "-Cdebug-assertions=off"]
    flags += ["-Zmir-enable-passes=-JumpThreading", "-Csymbol-mangling-version=v0"]
    environment = {
        "CUDA_OXIDE_PTX_DIR": str(directory),
        "CUDA_OXIDE_TARGET": target(),
        "RUSTFLAGS": " ".join(flags),
    }
    # The PTX is written only when the crate is compiled, so what an earlier run left is removed.
    cargo(["cargo", "clean", "--release", "-p", crate().replace("_", "-")], environment)
    cargo(["cargo", "build", "--release", "--locked"], environment)
    (directory / f"{crate()}.ptx").rename(directory / "kernels.ptx")
    return f"cuda-oxide {dependency['rev'][:9]} on {version(['rustc'])}"


def cargo(command: list[str], environment: dict[str, str]) -> None:
    """Run cargo for the device crate, without the settings that would change the code."""
    ours = (
        "RUSTFLAGS",
        "RUSTC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_TARGET_DIR",
    )
    prefixes = ("CARGO_BUILD_", "CARGO_ENCODED_", "CARGO_PROFILE_")
    outer = {
        k: v
        for k, v in os.environ.items()
        if k not in ours and not k.startswith(prefixes)
    }
    directory = {"CARGO_TARGET_DIR": str(ROOT / "target" / "ptx")}
    if subprocess.run(
        command, cwd=KERNELS, env=outer | directory | environment
    ).returncode:
        fail("the kernels do not compile")


def version(rustc: list[str]) -> str:
    """The compiler's release and commit, whoever packaged it."""
    lines = output([*rustc, "-vV"]).splitlines()
    facts = dict(line.split(": ", 1) for line in lines if ": " in line)
    return (
        f"rustc {facts['release']} ({facts['commit-hash'][:9]} {facts['commit-date']})"
    )


def check_with_ptxas(ptx: Path) -> None:
    """Assemble the PTX where a ptxas is found: on PATH, in CUDA_HOME or among Python's packages."""
    directories = [
        *os.get_exec_path(),
        str(Path(os.environ.get("CUDA_HOME", "/-"), "bin")),
    ]
    if nvidia := importlib.util.find_spec("nvidia"):
        for location in nvidia.submodule_search_locations or []:
            directories += [str(path) for path in Path(location).glob("*/bin")]
    ptxas = shutil.which("ptxas", path=os.pathsep.join(directories))
    if ptxas is None:
        say("no ptxas to check the PTX with; the driver will, when it loads it")
    elif subprocess.run(
        [ptxas, f"-arch={target()}", "-o", os.devnull, str(ptx)]
    ).returncode:
        fail("ptxas refuses the PTX")


def build() -> None:
    dsl = kernel_table()["dsl"]
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        compiler = (compile_oxide if dsl == "cuda-oxide" else compile_nvptx)(directory)
        built = directory / "kernels.ptx"
        check_with_ptxas(built)
        header = f"// Built from kernels/ by `{COMMAND}`: change it there.\n// compiler: {compiler}\n"
        text = header + record() + built.read_text(encoding="utf-8")
    path = ptx_path()
    path.parent.mkdir(exist_ok=True)
    beside = path.with_suffix(".tmp")
    beside.write_text(text, encoding="utf-8", newline="\n")
    beside.replace(path)
    say(f"{path.relative_to(ROOT)}: {target()}, by {compiler}")


def say(message: str) -> None:
    print(message, file=sys.stderr)


def fail(*lines: str) -> NoReturn:
    sys.exit("\n    ".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="only say whether it is up to date"
    )
    if not parser.parse_args().check:
        build()
    elif not is_current():
        fail(f"{ptx_path().relative_to(ROOT)} is out of date; run", COMMAND)


if __name__ == "__main__":
    main()
