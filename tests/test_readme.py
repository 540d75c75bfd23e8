"""The READMEs' steps, done as they are written."""

import os
import re
import sys
from pathlib import Path

import pytest
from conftest import COMBINATIONS, combination_id, make, needs_cargo, shared_target

from kernel_new import process, verify
from kernel_new.report import Level


def blocks(text: str, language: str) -> list[str]:
    """The indented code blocks of a README, without their indentation."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(r"^   ", "", block, flags=re.MULTILINE) for block in found]


def shell(command: str, directory: Path) -> process.Finished:
    environment = verify._quiet() | shared_target() | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return process.run(["bash", "-euc", command], cwd=directory, env=environment)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    report = make(tmp_path / "demo-kernel", Level.BUILD)
    assert report.ok
    return report.path


def replace_functions(files: list[Path], changes: list[str], end: str) -> None:
    """Put functions in the place of those with the same first line, which end with `end`."""
    for change in changes:
        signature = change.splitlines()[0]
        (file,) = (file for file in files if f"{signature}\n" in file.read_text())
        text = file.read_text()
        function = re.search(rf"^{re.escape(signature)}\n.*?^{end}", text, re.MULTILINE | re.DOTALL)
        assert function, f"{file.name} has no {signature}"
        file.write_text(text.replace(function[0], change))


@pytest.mark.parametrize("combination", COMBINATIONS, ids=combination_id)
def test_the_five_steps_of_an_emitted_readme(combination: dict[str, str], tmp_path: Path) -> None:
    """On a machine without a GPU, where the tests that compute on one are skipped."""
    needs_cargo(combination)
    repository = make(tmp_path / "demo-kernel", **combination).path
    readme = (repository / "README.md").read_text()
    install, test, *compile_ptx, see = blocks(readme.split("## I want to")[0], "bash")
    assert install.startswith("python3 -m venv")
    assert shell(test, repository).code == 0

    cuda = combination["backend"] == "rust-cuda"
    sources = [file for place in ("src", "kernels/src") for file in sorted(repository.glob(f"{place}/*.rs"))]
    replace_functions(sources, blocks(readme, "rust"), "}\n")
    assert len(compile_ptx) <= int(cuda)
    for command in compile_ptx:
        finished = shell(command, repository)
        if "Get the pinned one with" in finished.stderr or "No cuda-oxide at" in finished.stderr:
            pytest.skip("no compiler for device code")
        assert finished.code == 0, finished.stderr
    seen = shell(see, repository)
    assert seen.code == (0 if cuda else 1), seen.stdout
    if not cuda:
        assert {dtype in seen.stdout for dtype in ("float32", "float16", "bfloat16")} == {True}

    changes = [block for block in blocks(readme, "python") if block.startswith("def ")]
    assert changes
    python = [*repository.glob("tests/*.py"), *repository.glob("tvm-ffi-ext/*/_torch_*.py")]
    replace_functions(python, changes, r"(?=\n\n\S)")
    passed = shell(test, repository)
    assert passed.code == 0, passed.stdout


@pytest.mark.parametrize("backends", [("rust-cpu",), ("rust-cuda",), ("rust-cpu", "rust-cuda")], ids="+".join)
def test_python_in_an_emitted_readme_runs(backends: tuple[str, ...], tmp_path: Path) -> None:
    """Without a GPU too. Of two backends, either is what was tested last."""
    answers = dict(zip(("backend", "second_backend"), backends, strict=False))
    repository = make(tmp_path / "demo-kernel", **answers).path
    readme = (repository / "README.md").read_text()
    (code,) = (block for block in blocks(readme, "python") if "import kernels" in block)
    for command in ("pytest -q", f"{sys.executable} -m kernel_new verify --level load"):
        assert shell(command, repository).code == 0
        finished = process.run([sys.executable, "-c", f"{code}\nprint(kernel.__all__)"], cwd=repository)
        assert "relu" in finished.stdout, finished.stderr
    if len(backends) == 2:
        (library,) = (repository / "build").glob("*-cpu*/*.so")
        (other,) = (repository / "build").glob("*-cu*/*.so")
        assert library.read_bytes() == other.read_bytes()


def test_the_documented_json_has_the_documents_keys(repository: Path) -> None:
    import json

    from kernel_new.report import Report

    reference = (Path(__file__).parent.parent / "docs/reference.md").read_text()
    documented = blocks(reference, "json")[0]
    shown = json.loads(documented)
    assert list(shown) == list(Report(repository).as_json())
    assert list(shown["steps"][0]) == ["name", "ok", "skipped", "seconds", "detail"]


def test_relative_links_of_the_documentation_lead_somewhere() -> None:
    root = Path(__file__).parent.parent
    for page in [*root.glob("*.md"), *(root / "docs").glob("*.md")]:
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
