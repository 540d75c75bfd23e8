"""Shows what the doctor found, and ends with the commands that get what is missing, ready to be pasted."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

from kernel_new import cargo, console, questions
from kernel_new.console import escape
from kernel_new.doctor import NVPTX_TOOLCHAIN, PACKAGES, Requirement

NARROW = 60
"""Columns below which three columns of text are too many."""

MANAGERS = {
    "apt-get": "apt-get install -y",
    "dnf": "dnf install -y",
    "pacman": "pacman -S --noconfirm",
    "apk": "apk add",
    "brew": "brew install",
}
"""How the package manager of a system, which is known by its program, installs."""

LINKERS = {"apt-get": "gcc libc6-dev", "apk": "gcc musl-dev"}
"""Packages with a linker and what it links to, where that is not in one called gcc."""


def commands(requirement: Requirement) -> list[str]:
    """What to run to get one requirement on this machine."""
    name = requirement.name
    if specification := _specification(requirement):
        return [_pip(specification)]
    if name in ("cargo", "rustc"):
        if shutil.which("rustup"):
            # One that starts is too old; one that does not has no default toolchain.
            return ["rustup update" if requirement.found[:1].isdigit() else "rustup default stable"]
        return ["curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y", '. "$HOME/.cargo/env"']
    if name == "git":
        return [_system("git")]
    if name == cargo.LINKER:
        return ["xcode-select --install"] if sys.platform == "darwin" else [_system("gcc", LINKERS)]
    if name == "tvm-ffi-config":
        return [_pip("--force-reinstall", "apache-tvm-ffi")]
    if name == "rustc for nvptx":
        return [f"rustup toolchain install {NVPTX_TOOLCHAIN} --profile minimal --target nvptx64-nvidia-cuda"]
    if name == "cuda-oxide":
        return _cuda_oxide()
    return ["kernel-new explain gpu"]


def _specification(requirement: Requirement) -> str:
    """What pip installs for a requirement; empty where that is no package of Python."""
    if requirement.name in PACKAGES:
        return f"{requirement.name}>={PACKAGES[requirement.name]}"
    package = requirement.how.rpartition(" -m pip install ")[2]
    return "" if package.startswith("-") or " " in package or package == requirement.how else package


def _pip(*what: str) -> str:
    """pip of this interpreter; uv, where that made the environment and left pip out."""
    pip = [sys.executable, "-m", "pip", "install"]
    if find_spec("pip") is None and shutil.which("uv"):
        pip = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*pip, *what])


def _system(package: str, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """How this system installs a package, which some managers know by another name."""
    manager = next((program for program in MANAGERS if shutil.which(program)), None)
    if manager is None:
        return f"# install {package} as your system installs programs"
    sudo = "sudo " if manager != "brew" and os.geteuid() and shutil.which("sudo") else ""
    return f"{sudo}{MANAGERS[manager]} {names.get(manager, package)}"


def _cuda_oxide() -> list[str]:
    url, _, pin = questions.asked()["cuda_oxide"].default.partition("?rev=")
    revision, _, toolchain = pin.partition("&toolchain=")
    return [f"cargo +{toolchain} install --git {url} --rev {revision} cargo-oxide", "cargo oxide setup"]


def show(found: list[Requirement]) -> None:
    """Each requirement, then what to run for those that are missing: the needed ones, and the others apart."""
    out = console.stdout()
    marks = console.marks(out)
    signs = [marks["ok" if one.ok else "skipped" if one.optional else "failed"] for one in found]
    limited = out.is_terminal or "COLUMNS" in os.environ
    if limited and out.width < NARROW:
        for sign, one in zip(signs, found, strict=True):
            out.print(
                f"{sign} [bold]{escape(one.name)}[/]: {escape(_end(one.found, max(8, out.width - len(one.name) - 4)))}"
            )
            out.print(f"  [dim]{escape(one.wanted)}[/]", soft_wrap=False)
    else:
        name, wanted = (
            max(map(len, column)) for column in zip(*((one.name, one.wanted) for one in found), strict=True)
        )
        room = out.width - name - wanted - 6 if limited else 10_000
        for sign, one in zip(signs, found, strict=True):
            columns = f"{one.name:<{name}}  {one.wanted:<{wanted}}  {_end(one.found, room)}"
            out.print(f"{sign} {escape(columns)}")
    missing = [one for one in found if not one.ok]
    _advise("To get what is missing, run:", [one for one in missing if not one.optional])
    _advise("Needed for some work only:", [one for one in missing if one.optional])


def _end(text: str, room: int) -> str:
    """The end of a path that is too long for its column, where it differs from others."""
    return text if len(text) <= room or "/" not in text else f"...{text[3 - room :]}"


def _advise(title: str, missing: list[Requirement]) -> None:
    if not missing:
        return
    out = console.stdout()
    out.print(f"\n[bold]{title}[/]")
    groups: dict[tuple[str, ...], list[Requirement]] = {}
    for one in missing:
        # Packages that are wanted for the same come with one command.
        key = ("pip", one.wanted if one.optional else "") if _specification(one) else tuple(commands(one))
        groups.setdefault(key, []).append(one)
    for key, members in groups.items():
        about = dict.fromkeys(one.wanted if one.optional else one.name for one in members)
        out.print(f"  [dim]# {escape(', '.join(about))}[/]")
        for line in [_pip(*map(_specification, members))] if key[0] == "pip" else key:
            out.print(f"  {escape(line)}")
