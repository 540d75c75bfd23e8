"""The template and its releases: one version, one address, and a wheel that emits what the checkout emits."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from conftest import COMBINATIONS, combination_id, make, tree
from packaging.version import Version

from kernel_new import history, questions, template

ROOT = Path(__file__).parent.parent


def test_the_recorded_version_is_this_release() -> None:
    """Between two releases, what is emitted still names the last one, which every update knows."""
    version = Version(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
    if not version.is_devrelease:
        assert questions.constant("template_version") == f"v{version}"
    elif history.is_whole(ROOT):
        assert questions.constant("template_version") == list(history.releases(ROOT))[-1]


@pytest.mark.parametrize("combination", COMBINATIONS, ids=combination_id)
def test_every_emitted_file_has_its_path_in_the_template(combination: dict[str, str], tmp_path: Path) -> None:
    """A name of the template stands for itself, or, with a condition or a loop, for any number of files."""
    emitted = set(tree(make(tmp_path / "demo-kernel", **combination).path))
    both = {**combination, "second_backend": "rust-cuda" if combination["backend"] == "rust-cpu" else "rust-cpu"}
    emitted |= set(tree(make(tmp_path / "both" / "demo-kernel", **both).path))
    answers = {"«module»": "demo_kernel", "«op»": combination["kernel"].replace("-", "_")}
    for name in tree(template.root() / "templates" / combination["backend"]):
        if "__pycache__" in name:  # pip compiles what looks like Python.
            continue
        for mark, answer in answers.items():
            name = name.replace(mark, answer)
        optional = "«%" in name
        pattern = re.escape(re.sub("«%.*?%»", "", name)).replace("«part»", "[\\w/]+").replace("«target»", "sm_\\w+")
        found = {file for file in emitted if re.fullmatch(pattern, file)}
        assert found or optional, name
        emitted -= found
    assert not emitted


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel, built from the sdist that was built from this checkout."""
    directory = tmp_path_factory.mktemp("wheel")
    hatchling = [sys.executable, "-m", "hatchling", "build", "-d", str(directory)]
    subprocess.run([*hatchling, "-t", "sdist"], cwd=ROOT, check=True, capture_output=True)
    (sdist,) = directory.glob("*.tar.gz")
    subprocess.run(["tar", "xzf", sdist, "-C", directory], check=True)
    unpacked = directory / sdist.name.removesuffix(".tar.gz")
    subprocess.run([*hatchling, "-t", "wheel"], cwd=unpacked, check=True, capture_output=True)
    with zipfile.ZipFile(next(directory.glob("*.whl"))) as archive:
        archive.extractall(directory / "installed")
    return directory / "installed"


@pytest.mark.parametrize("backend", ["rust-cpu", "rust-cuda"])
def test_the_wheel_emits_what_the_checkout_emits(backend: str, wheel: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kernel_new", str(tmp_path / "demo-kernel"), "--backend", backend]
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    options = ["--defaults", "--verify=none", "--quiet"]
    subprocess.run([*command, *options], check=True, env=environment, cwd=tmp_path)
    assert tree(tmp_path / "demo-kernel") == tree(make(tmp_path / "ours" / "demo-kernel", backend=backend).path)


def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    assert {entry.name.partition("-")[0] for entry in wheel.iterdir()} == {"kernel_new"}
    assert (wheel / "kernel_new/template/copier.yml").is_file()
