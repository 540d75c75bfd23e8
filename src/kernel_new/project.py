"""A kernel repository as data, read from its build.toml and .copier-answers.yml."""

import shlex
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit
import yaml
from tomlkit.exceptions import TOMLKitError

from kernel_new.errors import KernelNewError

ANSWERS = ".copier-answers.yml"


@dataclass(frozen=True)
class Project:
    """A kernel repository: its directory and its build.toml, read once."""

    path: Path
    build: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> "Project":
        """Read the repository at `path`.

        Raises:
            KernelNewError: `path` is no kernel repository, or its build.toml is not what kernel-builder takes.
        """
        file = path / "build.toml"
        if not file.is_file():
            raise cls._none_at(path)
        try:
            build = tomlkit.parse(file.read_text(encoding="utf-8")).unwrap()
        except (TOMLKitError, UnicodeDecodeError, RecursionError, OSError) as error:
            raise KernelNewError(f"{file} cannot be read: {error}") from error
        project = cls(path, build)
        try:
            _ = project.name, project.version, project.license, project.backend, project.features, project.capabilities
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise KernelNewError(
                f"{file} is not what kernel-builder takes: {type(error).__name__}, {error}",
                "See the keys of build.toml in kernel-builder's documentation.",
            ) from error
        return project

    @classmethod
    def _none_at(cls, path: Path) -> KernelNewError:
        """What is wrong with a path that is no repository: mostly it lies in one."""
        for parent in path.parents:
            with suppress(KernelNewError, OSError):
                if (parent / "build.toml").is_file():
                    cls.read(parent)
                    return KernelNewError(f"{path} is within a kernel repository", f"cd {shlex.quote(str(parent))}")
        if not path.exists():
            return KernelNewError(f"{path} does not exist", "kernel-new NAME makes a kernel repository.")
        return KernelNewError(f"{path} is no kernel repository: it has no build.toml", "kernel-new NAME makes one.")

    @property
    def name(self) -> str:
        return str(self.build["general"]["name"])

    @property
    def module(self) -> str:
        """The name as Python and Rust write it."""
        return self.name.replace("-", "_")

    @property
    def version(self) -> int:
        return int(self.build["general"]["version"])

    @property
    def license(self) -> str:
        return str(self.build["general"]["license"])

    @property
    def backend(self) -> str:
        """`cpu` or `cuda`, as `kernels` names it: where there are both, the library for `cuda` serves both."""
        return "cuda" if "cuda" in self.backends else self.backends[0]

    @property
    def features(self) -> list[str]:
        """Cargo's features for the library of that backend."""
        tables = self.build["kernel"].values()
        return next((list(t.get("features") or ()) for t in tables if t.get("backend") == self.backend), [])

    @property
    def backends(self) -> list[str]:
        """All backends that it declares."""
        return [str(backend) for backend in self.build["general"]["backends"]]

    @property
    def repo_id(self) -> str:
        """Where it is on the Hub, as OWNER/NAME; empty where build.toml does not say."""
        return str((self.build["general"].get("hub") or {}).get("repo-id", ""))

    @property
    def capabilities(self) -> list[str]:
        """CUDA capabilities that it declares; none for a CPU kernel."""
        kernels = self.build["kernel"].values()
        return [str(c) for kernel in kernels for c in kernel.get("cuda-capabilities", [])]

    @property
    def python_depends(self) -> list[str]:
        return [str(name) for name in self.build["general"].get("python-depends", [])]

    @property
    def package(self) -> Path:
        """The Python package that calls the ops."""
        return self.path / "tvm-ffi-ext" / self.module

    def answers(self) -> dict[str, Any]:
        """What copier recorded: the answers, and `_commit` and `_src_path`; empty where it made nothing here.

        Raises:
            KernelNewError: The file is not YAML.
        """
        file = self.path / ANSWERS
        if not file.is_file():
            return {}
        try:
            loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError, OSError) as error:
            raise KernelNewError(f"{file} is not valid YAML: {error}", f"git checkout -- {ANSWERS}") from error
        return loaded if isinstance(loaded, dict) else {}
