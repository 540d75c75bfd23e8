"""What `kernel-new build` remembers beside its variants: the sources they are of, and how far they were proven."""

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernel_new.project import Project
from kernel_new.report import Level

FILE = ".kernel-new.json"
"""Its name in `build/`. It is not uploaded: kernel-builder and `kernels` look at directories only."""


@dataclass(frozen=True)
class Entry:
    """One variant as it was built."""

    metadata: str
    """SHA-256 of its metadata.json, which in turn has those of all its files."""
    level: Level
    checked: bool
    """Whether it passed the release check."""
    sources: dict[str, str]


def sha256(file: Path) -> bytes:
    """The SHA-256 of a file's content."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def sources(project: Project) -> dict[str, str]:
    """The SHA-256 of each file that a build, its proof or its card comes from, by its path in the repository."""
    listed = {project.path / str(name) for table in project.build["kernel"].values() for name in table.get("src", ())}
    listed |= {project.path / name for name in ("build.toml", "CARD.md")}
    listed |= set((project.path / "tests").rglob("*.py"))
    listed |= set(package_files(project))
    return {
        file.relative_to(project.path).as_posix(): sha256(file).hex()
        for file in sorted(listed)
        if file.is_file() and file.is_relative_to(project.path) and "__pycache__" not in file.parts
    }


def package_files(project: Project) -> list[Path]:
    """The files of the Python package that go into a variant: Python, and what `pyext` of `[tvm-ffi]` names."""
    extensions = {"py", *(project.build.get("tvm-ffi", {}).get("pyext") or ())}
    return sorted(
        file
        for extension in extensions
        for file in project.package.rglob(f"*.{extension}")
        if file.is_file() and "__pycache__" not in file.parts and file != project.package / "_ops.py"
    )


def read(build: Path) -> dict[str, Entry]:
    """What is remembered of the variants in `build`, by name; nothing where the file is missing or spoilt."""
    with suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
        loaded: dict[str, Any] = json.loads((build / FILE).read_text(encoding="utf-8"))
        return {
            name: Entry(str(entry["metadata"]), Level(entry["level"]), bool(entry["checked"]), dict(entry["sources"]))
            for name, entry in loaded.items()
        }
    return {}


def write(build: Path, entries: dict[str, Entry]) -> None:
    """Replace what is remembered."""
    content = json.dumps({name: asdict(entry) for name, entry in sorted(entries.items())}, indent=1)
    beside = build / f"{FILE}.new"
    beside.write_text(f"{content}\n", encoding="utf-8")
    beside.replace(build / FILE)
