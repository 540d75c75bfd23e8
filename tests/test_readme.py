"""The READMEs' steps, done as they are written."""

import os
import re
import sys
from pathlib import Path

import pytest
from conftest import make

from kernel_new import process, verify
from kernel_new.report import Level


def blocks(text: str, language: str) -> list[str]:
    """The indented code blocks of a README, without their indentation."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(r"^   ", "", block, flags=re.MULTILINE) for block in found]


def shell(command: str, directory: Path) -> process.Finished:
    environment = verify._quiet() | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return process.run(["bash", "-euc", command], cwd=directory, env=environment)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    report = make(tmp_path / "demo-kernel", Level.BUILD)
    assert report.ok
    return report.path


def test_the_five_steps_of_an_emitted_readme(repository: Path) -> None:
    readme = (repository / "README.md").read_text()
    install, test, see = blocks(readme, "bash")[:3]
    assert install.startswith("python -m venv")
    assert shell(test, repository).code == 0

    source = repository / "src/relu.rs"
    text = source.read_text()
    for change in blocks(readme, "rust"):
        signature = change.splitlines()[0]
        function = re.search(rf"^{re.escape(signature)}\n.*?^}}\n", text, re.MULTILINE | re.DOTALL)
        assert function, "the function to be changed is there as the README shows it"
        text = text.replace(function[0], change)
    source.write_text(text)
    failed = shell(see, repository)
    assert failed.code == 1
    assert "Mismatched elements" in failed.stdout
    assert {f"test_values[numpy-(7,)-{dtype}]" in failed.stdout for dtype in ("float32", "float16", "bfloat16")} == {
        True
    }

    tests = repository / "tests/test_relu.py"
    tests.write_text(tests.read_text().replace("return np.where(x <= 0, 0.0, x)", "return np.abs(x)"))
    passed = shell(test, repository)
    assert passed.code == 0, passed.stdout


def test_python_in_an_emitted_readme_runs(repository: Path) -> None:
    assert shell("pytest -q", repository).code == 0
    readme = (repository / "README.md").read_text()
    (code,) = blocks(readme, "python")
    finished = process.run([sys.executable, "-c", f"{code}\nprint(kernel.__all__)"], cwd=repository)
    assert "relu" in finished.stdout, finished.stderr


def test_the_documented_json_has_the_documents_keys(repository: Path) -> None:
    import json

    from kernel_new.report import Report

    reference = (Path(__file__).parent.parent / "docs/reference.md").read_text()
    (documented,) = blocks(reference, "json")
    shown = json.loads(documented)
    assert list(shown) == list(Report(repository).as_json())
    assert list(shown["steps"][0]) == ["name", "ok", "skipped", "seconds", "detail"]


def test_relative_links_of_the_documentation_lead_somewhere() -> None:
    root = Path(__file__).parent.parent
    for page in [*root.glob("*.md"), *(root / "docs").glob("*.md")]:
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
