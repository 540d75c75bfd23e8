"""Random edits at random places: an update loses no line of the author's outside a conflict that it reports.

HYPOTHESIS_PROFILE=nightly runs 200 examples; otherwise there are a few.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from template_history import Template, _own_cache, commit, template, whole  # noqa: F401

settings.register_profile("nightly", max_examples=200)
settings.register_profile("default", max_examples=12)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
pytestmark = whole

FILES = [
    "README.md",
    "src/lib.rs",
    "src/checks.rs",
    "build.toml",
    "tests/conftest.py",
    ".gitignore",
    "CARD.md",
    "Cargo.toml",
]
ANSWERS = st.fixed_dictionaries(
    {
        "backend": st.sampled_from(["rust-cpu", "rust-cuda"]),
        "license": st.sampled_from(["MIT", "Apache-2.0"]),
        "author": st.sampled_from(["Ada", 'O"Neil \\ {{x}}', "李四"]),
    }
)
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=20)
EDIT = st.tuples(st.sampled_from(FILES), st.sampled_from(["insert", "replace", "delete"]), st.floats(0, 0.999), WORDS)


def apply(path: Path, edits: list[tuple[str, str, float, str]]) -> dict[str, list[str]]:
    """Edit the repository; the author's own lines by file, each of them unique."""
    added: dict[str, list[str]] = {}
    for number, (file, kind, where, words) in enumerate(edits):
        lines = (path / file).read_text(encoding="utf-8").splitlines()
        place = int(where * len(lines))
        line = f"author {number} {words}".rstrip()
        if kind == "delete":
            gone = lines.pop(place)
            added[file] = [kept for kept in added.get(file, []) if kept != gone]
        else:
            if kind == "replace":
                gone = lines.pop(place)
                added[file] = [kept for kept in added.get(file, []) if kept != gone]
            lines.insert(place, line)
            added.setdefault(file, []).append(line)
        (path / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return added


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(answers=ANSWERS, edits=st.lists(EDIT, min_size=1, max_size=6), new=st.booleans())
def test_no_line_of_an_authors_is_lost(
    template: Template,
    answers: dict[str, str],
    edits: list[tuple[str, str, float, str]],
    new: bool,
) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        path = template.emit(directory / "demo-kernel", **answers)
        added = apply(path, edits)
        if new:
            (path / "src/mine.rs").write_text("// mine\n")
        commit(path)
        finished = template.update(path, "--json")
        (result,) = json.loads(finished.stdout)["repositories"]
        assert result["status"] in ("updated", "conflicts", "failed"), result
        for file, lines in added.items():
            text = (path / file).read_text(encoding="utf-8").splitlines()
            for line in lines:
                assert line in text, f"{file}: {line!r} is gone"
            if "<<<<<<< before updating" in text:
                assert file in result["conflicts"]
                assert finished.returncode == 1
        assert not new or (path / "src/mine.rs").read_text() == "// mine\n"
        if result["status"] == "updated":
            assert not result["conflicts"]
    finally:
        shutil.rmtree(directory, ignore_errors=True)
