"""A build's identity, its metadata.json and its digest, as kernel-builder writes them."""

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kernel_new
from kernel_new import git, record
from kernel_new.errors import KernelNewError
from kernel_new.project import Project
from kernel_new.targets import Kernel

FILE = "metadata.json"
SIGNATURE = "metadata.json.sigstore"


@dataclass(frozen=True)
class Identity:
    """Which sources a build is of. `commit` is None outside of git, or before the first commit."""

    unique: str
    """What the names of libraries end with: the tree of the commit, and `_dirty` where the sources differ from it."""
    commit: str | None
    dirty: bool

    def of(self, project: Project, backend: str) -> str:
        """The id of one backend's build, which its library is named by."""
        return f"_{project.module}_{backend}_{self.unique}"


def identify(project: Project, sources: dict[str, str]) -> Identity:
    """Read the commit from git, as kernel-builder does: changes to tracked files make it dirty.

    A source that git does not track makes it dirty, too. Without a commit, a digest of the sources stands in.
    """
    try:
        commit, tree = git.run(project.path, "rev-parse", "HEAD", "HEAD^{tree}").split()
    except (KernelNewError, ValueError):
        digest = hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()
        return Identity(digest[:7], None, False)
    status = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
    tracked = set(git.run(project.path, "ls-files", "-z", "--", ".").split("\0"))
    dirty = bool(git.run(project.path, *status).strip()) or not set(sources) <= tracked
    return Identity(f"{tree[:7]}_dirty" if dirty else tree[:7], commit, dirty)


def document(project: Project, kernel: Kernel, identity: Identity, directory: Path) -> bytes:
    """metadata.json of the variant laid out in `directory`, byte for byte as `kernel-builder hash` leaves it."""
    general = project.build["general"]
    specific = general.get(kernel.backend) or {}
    backend: dict[str, Any] = {"type": kernel.backend}
    if kernel.capabilities:
        backend["archs"] = sorted(set(kernel.capabilities))
    # There is no kernel-builder behind this build: its place says what made it instead.
    provenance: dict[str, Any] = {"kernel-builder": {"version": f"kernel-new {kernel_new.version()}"}}
    if identity.commit:
        provenance["kernel"] = {"commit": identity.commit, "dirty": identity.dirty}
    content = {
        "name": project.name,
        "id": identity.of(project, kernel.backend),
        "version": project.version,
        "license": project.license,
        **{key: str(general[key]) for key in ("upstream", "source") if key in general},
        "python-depends": [*general.get("python-depends", []), *specific.get("python-depends", [])],
        "kernel-depends": [*general.get("kernel-depends", []), *specific.get("kernel-depends", [])],
        "backend": backend,
        "digest": {"algorithm": "sha256", "files": digest(directory)},
        "provenance": provenance,
    }
    return json.dumps(content, indent=2, ensure_ascii=False).encode()


def digest(directory: Path) -> dict[str, str]:
    """The hash of each file of a variant, but for those that hold or sign hashes, and Python's own caches."""
    files = {file.relative_to(directory).as_posix(): file for file in directory.rglob("*") if file.is_file()}
    left_out = {FILE, SIGNATURE}
    return {
        name: base64.b64encode(record.sha256(files[name])).decode()
        for name in sorted(files)
        if name not in left_out and "__pycache__" not in Path(name).parts and not name.endswith(".pyc")
    }
