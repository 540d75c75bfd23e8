"""The template's real history with one more release on top, for the tests of updates."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernel_new import history, process, questions
from kernel_new.releases import Releases

ROOT = Path(__file__).parent.parent
URL = questions.constant("template_url")
NEXT = "v99.0.0"
whole = pytest.mark.skipif(not history.is_whole(ROOT), reason="not a full clone of the template's repository")


def git(directory: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout


@dataclass(frozen=True)
class Template:
    """The real history with one more release on top, as a checkout that the tool runs from."""

    checkout: Path
    releases: Releases

    @property
    def first(self) -> str:
        return self.releases.versions[0]

    def run(self, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kernel_new", *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(self.checkout / "src"), **options.pop("env", {})}
        return subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600, env=environment, **options
        )

    def update(self, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.run("update", *arguments, "--defaults", "--verify=none", **options)

    def emit(self, path: Path, version: str | None = None, **answers: Any) -> Path:
        """A repository as a release made it, committed."""
        path.parent.mkdir(parents=True, exist_ok=True)
        job = {
            "url": URL,
            "recorded": version or self.first,
            "answers": {"name": "demo-kernel", **answers},
            "path": str(path),
        }
        environment = process.environment(self.releases.environment())
        command = [sys.executable, "-m", "kernel_new.updating", json.dumps(job)]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        git(path, "init", "--quiet", "--initial-branch=main")
        commit(path)
        return path

    def plain_copier_update(self, path: Path) -> subprocess.CompletedProcess[str]:
        """What a user does who has copier alone, and reaches the template's public address."""
        command = [sys.executable, "-m", "copier", "update", "--defaults", "--quiet"]
        environment = process.environment(self.releases.environment())
        return subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True, check=False)


def commit(path: Path) -> None:
    git(path, "add", "--all")
    git(path, "commit", "--quiet", "-m", "x")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["COPIER_CACHE_DIR"] = str(tmp_path_factory.mktemp("copier"))


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    checkout = tmp_path_factory.mktemp("next") / "template"
    git(ROOT, "clone", "--quiet", str(ROOT), str(checkout))
    for part in ("src", "templates"):
        shutil.rmtree(checkout / part)
        shutil.copytree(ROOT / part, checkout / part, ignore=shutil.ignore_patterns("__pycache__"))
    edit(checkout / "copier.yml", (ROOT / "copier.yml").read_text())
    replace(checkout / "copier.yml", f"default: {questions.constant('template_version')}", f"default: {NEXT}")
    pyproject = (checkout / "pyproject.toml").read_text()
    version = next(line for line in pyproject.splitlines() if line.startswith("version = "))
    edit(checkout / "pyproject.toml", pyproject.replace(version, f'version = "{NEXT[1:]}"'))
    replace(checkout / "templates/shared/README.md", "| test it |", "| test it well |")
    replace(checkout / "templates/shared/.gitignore", "# Python", "# Python, too")
    replace(checkout / "templates/shared/checks.rs", "Contracts of tensor arguments.", "What tensor arguments must be.")
    edit(checkout / "templates/rust-cpu/NEWS.md", "A new file of «name».\n")
    commit(checkout)
    bundle = checkout.parent / "template.bundle"
    history.write_bundle(checkout, bundle)
    return Template(checkout, Releases(URL, bundle, tuple(history.versions(bundle))))


def edit(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text, file
    edit(file, text.replace(old, new))
