"""Compile the kernels to the PTX that the library embeds: `python kernels/build_ptx.py`.

One file is for the lowest of `cuda-capabilities` in build.toml, and for all later GPUs. Each
other capability with a suffix, such as "9.0a", gets a file of its own, for which the device
crate is compiled with `cfg(ptx_target = "sm_90a")`.

`--check` compiles nothing and exits with 1 where the PTX is older than its sources.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "kernels"
COMMAND = "python kernels/build_ptx.py"
NVPTX = "nvptx64-nvidia-cuda"

# Lines that say who the crate is and which cuda-oxide compiles it, not what it does.
NOT_DIGESTED = ("name = ", "cuda-device = ", 'channel = "nightly')


def load(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def package() -> str:
    return str(load(KERNELS / "Cargo.toml")["package"]["name"])


def channel() -> str:
    """The compiler that the repository pins."""
    return str(load(KERNELS / "rust-toolchain.toml")["toolchain"]["channel"])


def metadata() -> dict[str, Any]:
    """What kernels/Cargo.toml says for this script."""
    package = load(KERNELS / "Cargo.toml")["package"]
    return dict(package.get("metadata", {}).get("ptx", {}))


def library() -> str:
    return package().replace("-", "_")


def ptx_path(target: str) -> Path:
    suffix = "" if target == targets()[0] else f".{target}"
    return ROOT / "kernels-ptx" / f"{library()}{suffix}.ptx"


def unlisted() -> list[Path]:
    """PTX of targets that build.toml no longer lists."""
    listed = [ptx_path(target) for target in targets()]
    found = sorted(ROOT.glob(f"kernels-ptx/{library()}.sm_*.ptx"))
    return [path for path in found if path not in listed]


def cuda_table() -> dict[str, Any]:
    """The table of build.toml that describes the CUDA kernels."""
    tables = load(ROOT / "build.toml")["kernel"].values()
    return dict(next(table for table in tables if table["backend"] == "cuda"))


def targets() -> list[str]:
    """What to compile for: the lowest of `cuda-capabilities`, then others with a suffix.

    They are sm_80 and sm_90a for ["8.0", "9.0", "9.0a"], as the compiler names them.
    """

    def order(capability: str) -> tuple[int, int, int]:
        major, minor = capability.split(".")
        number = minor.rstrip("af")
        suffix = minor.removeprefix(number)
        return int(major), int(number), ["", "f", "a"].index(suffix)

    declared = cuda_table()["cuda-capabilities"]
    capabilities = {capability.removesuffix("+PTX") for capability in declared}
    lowest, *others = sorted(capabilities, key=order)
    if lowest.endswith(("a", "f")):
        # The crate would be compiled without `ptx_target`.
        least = lowest.rstrip("af")
        fail(f"build.toml: capability {lowest} needs {least} or less beside it.")
    listed = [lowest, *(other for other in others if other.endswith(("a", "f")))]
    return ["sm_" + capability.replace(".", "") for capability in listed]


def digest() -> str:
    """64-bit FNV-1a of the device crate's lines, the same as build.rs computes."""
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
        for line in [name, *text.replace("\r\n", "\n").split("\n")]:
            for byte in b"" if line.startswith(NOT_DIGESTED) else f"{line}\n".encode():
                value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def record(target: str) -> str:
    """The lines of a PTX that say what it was built from."""
    return f"// target: {target}\n// sources: {digest()}\n"


def problems() -> Iterator[str]:
    for target in targets():
        path = ptx_path(target)
        if not path.exists():
            yield f"{path.relative_to(ROOT)} is missing."
        elif record(target) not in path.read_text(encoding="utf-8"):
            yield f"{path.relative_to(ROOT)} is older than its sources."
    for path in unlisted():
        yield f"{path.relative_to(ROOT)} is for a target that build.toml does not list."


def is_current() -> bool:
    return not any(problems())


def output(*command: str | Path, cwd: Path | None = None) -> str:
    """What a command prints; nothing where it is absent or fails."""
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def compilers() -> Iterator[Path]:
    """The pinned rustc, from rustup or the system, then rustup's nightly."""
    if pinned := output("rustup", "which", "--toolchain", channel(), "rustc"):
        yield Path(pinned)
    for directory in [*os.get_exec_path(), "/usr/bin"]:
        rustc = shutil.which("rustc", path=directory) or ""
        if output(rustc, "--version").startswith(f"rustc {channel()} "):
            yield Path(rustc)
    if nightly := output("rustup", "which", "--toolchain", "nightly", "rustc"):
        yield Path(nightly)


def find_nvptx() -> tuple[Path, list[str]]:
    """A rustc that has `core` for the GPU, or its source for cargo to compile."""
    for rustc in compilers():
        libraries = Path(output(rustc, "--print", "sysroot"), "lib", "rustlib")
        if (libraries / NVPTX).is_dir():
            return rustc, []
        if (libraries / "src/rust/library/core").is_dir():
            return rustc, ["-Zbuild-std=core"]
    get = f"rustup toolchain install {channel()} --profile minimal --target {NVPTX}"
    fail(f"No Rust compiler here has the target {NVPTX}. Get the pinned one with", get)


def cfg(target: str) -> list[str]:
    """The option that lets the device crate ask for a target other than the first."""
    return [f'--cfg=ptx_target="{target}"'] if target != targets()[0] else []


def compile_nvptx(target: str, ptx: Path) -> str:
    """Compile with rustc's own target for NVIDIA GPUs; returns the name of the compiler."""
    rustc, options = find_nvptx()
    command = [
        str(rustc.with_stem("cargo")),
        "rustc",
        "--release",
        "--locked",
        "--target",
        NVPTX,
    ]
    command += [
        *options,
        "--lib",
        "--crate-type=staticlib",
        '--config=profile.release.lto="fat"',
    ]
    command += [
        "--",
        f"--emit=asm={ptx}",
        f"-Ctarget-cpu={target}",
        *metadata().get("rustflags", []),
        "--check-cfg=cfg(ptx_target,values(any()))",
        *cfg(target),
    ]
    cargo(command, {"RUSTC": str(rustc), "RUSTC_BOOTSTRAP": "1"})
    return version(rustc)


def compile_oxide(target: str, ptx: Path) -> str:
    """Compile with cuda-oxide, as kernel-builder does; returns the name of the compiler."""
    source = load(KERNELS / "Cargo.toml")["dependencies"]["cuda-device"]
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    installed = str(home / "cuda-oxide" / "librustc_codegen_cuda.so")
    backend = os.environ.get("CUDA_OXIDE_BACKEND") or installed
    if not Path(backend).exists():
        get = f"cargo +{channel()} install --git {source['git']} --rev {source['rev']} cargo-oxide"
        fail(f"No cuda-oxide at {backend}. Get it with", get, "cargo oxide setup")
    flags = f"-Zcodegen-backend={backend} -Copt-level=3 -Cdebug-assertions=off"
    flags += " -Zmir-enable-passes=-JumpThreading -Csymbol-mangling-version=v0"
    flags = " ".join([flags, *cfg(target)])
    environment = {"CUDA_OXIDE_PTX_DIR": str(ptx.parent), "CUDA_OXIDE_TARGET": target}
    # PTX is written only when the crate is compiled, so what an earlier run compiled has to go.
    cargo(
        ["cargo", "clean", "--quiet", "--release", "--package", package()], environment
    )
    cargo(
        ["cargo", "build", "--release", "--locked"], environment | {"RUSTFLAGS": flags}
    )
    return f"cuda-oxide {source['rev'][:9]}, {version('rustc')}"


def cargo(command: list[str], environment: dict[str, str]) -> None:
    """Run cargo for the device crate, without the settings that would change its code."""
    ours = ("RUSTFLAGS", "RUSTC", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER")
    prefixes = ("CARGO_BUILD_", "CARGO_ENCODED_", "CARGO_PROFILE_")
    rest = {
        k: v
        for k, v in os.environ.items()
        if k not in ours and not k.startswith(prefixes)
    }
    environment = rest | {"CARGO_TARGET_DIR": str(ROOT / "target/ptx")} | environment
    if subprocess.call(command, cwd=KERNELS, env=environment):
        fail("The kernels do not compile.")


def version(rustc: str | Path) -> str:
    """The compiler's release and commit, whoever packaged it."""
    lines = output(rustc, "-vV", cwd=KERNELS).splitlines()
    facts = dict(line.split(": ", 1) for line in lines if ": " in line)
    return f"rustc {facts['release']} ({facts['commit-hash'][:9]})"


def check_with_ptxas(target: str, ptx: Path) -> None:
    """Assemble the PTX where a ptxas is found: on PATH, in CUDA_HOME or among Python's packages."""
    directories = [
        *os.get_exec_path(),
        str(Path(os.environ.get("CUDA_HOME", ""), "bin")),
    ]
    nvidia = importlib.util.find_spec("nvidia")
    for location in (nvidia and nvidia.submodule_search_locations) or []:
        directories += map(str, Path(location).glob("*/bin"))
    if not (ptxas := shutil.which("ptxas", path=os.pathsep.join(directories))):
        print("No ptxas here to check the PTX with: the driver will, when it loads it.")
    elif subprocess.call([ptxas, f"-arch={target}", "-o", os.devnull, ptx]):
        fail("ptxas refuses the PTX.")


def number(version: str) -> list[int]:
    """Of the line `.version 8.1`."""
    return [int(part) for part in re.findall(r"\d+", version)]


def arranged(ptx: str) -> list[str]:
    """The lines without comments, which may name the crate, and with what Rust cannot say.

    The comment `// directive: .maxntid 384` in a kernel's body (`directive!` of the device
    crate) becomes a directive in front of the body, `// directive: .version 8.1` the least
    of the file. A parameter that rustc aligns to 16 bytes, the most that it knows, is aligned to 64,
    as tensor maps have to be. Dynamic shared memory, which cuda-oxide names after each
    function, is all the same.
    """
    ptx = re.sub(r"\b__dynamic_smem__\w+", "dynamic_shared", ptx)
    lines: list[str] = []
    body = 0
    for line in ptx.splitlines():
        code, _, comment = line.partition("//")
        if comment.startswith(" directive: .version "):
            lines[0] = max(lines[0], comment.removeprefix(" directive: "), key=number)
        elif comment.startswith(" directive: "):
            lines.insert(body, comment.removeprefix(" directive: "))
        elif code.lstrip().startswith(".param .align 16 "):
            lines.append(code.rstrip().replace(".align 16 ", ".align 64 "))
        elif code.strip() and not (code.startswith(".extern") and code in lines):
            if code.rstrip() == "{":
                body = len(lines)
            lines.append(code.rstrip())
    return lines


def compiled(target: str) -> tuple[str, str]:
    """The PTX for a target, headed by its record, and the name of the compiler."""
    oxide = cuda_table()["dsl"] == "cuda-oxide"
    compile_ptx = compile_oxide if oxide else compile_nvptx
    with tempfile.TemporaryDirectory() as directory:
        built = Path(directory, f"{library()}.ptx")
        compiler = compile_ptx(target, built)
        lines = arranged(built.read_text(encoding="utf-8"))
        built.write_text("\n".join(lines) + "\n", encoding="utf-8")
        check_with_ptxas(target, built)
    header = f"// Built from kernels/ by `{COMMAND}`\n// compiler: {compiler}\n"
    header += record(target)
    return header + "\n".join(lines) + "\n", compiler


def build() -> None:
    # All are compiled before the first is replaced.
    built = {target: compiled(target) for target in targets()}
    for target, (text, compiler) in built.items():
        path = ptx_path(target)
        beside = path.with_suffix(".tmp")
        beside.write_text(text, encoding="utf-8", newline="\n")
        beside.replace(path)
        print(f"{path.relative_to(ROOT)}: {target}, {compiler}")
    for path in unlisted():
        path.unlink()
        print(f"{path.relative_to(ROOT)}: removed")


def fail(*lines: str) -> NoReturn:
    sys.exit("\n    ".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="only say whether it is up to date"
    )
    if not parser.parse_args().check:
        build()
    elif found := list(problems()):
        fail("\n".join(found) + " Build the PTX with", COMMAND)


if __name__ == "__main__":
    main()
