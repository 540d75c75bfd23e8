"""Any text as an answer, any path as a destination: a clear refusal with nothing written, or a repository that holds.

HYPOTHESIS_PROFILE=nightly runs 1,000 examples of each; otherwise there are a few.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import COMBINATIONS, tree
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from kernel_new import process, questions
from kernel_new.create import Request, create
from kernel_new.errors import KernelNewError, UsageError
from kernel_new.report import Level, Quiet, Report

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
# Without shrinking: an example of three answers is small as it is, and each attempt takes half a second.
many = settings(
    max_examples=1000 if NIGHTLY else 20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    report_multiple_bugs=False,
)
collected = count()
EVERY = 50
"""One example in so many also lets pytest collect its tests, which takes longer than all the rest."""

NASTY = [
    'a"b',
    "a'b",
    "a\\",
    "«7*7»",
    "«% raw %»",
    "{{x}}",
    "${{ x }}",
    "$(id)",
    "`id`",
    "]]>",
    "*/",
    '"""',
    "#",
    ": -",
]
NASTY += ["\x00", "\n", "\r\n", "\u2028", "\x1b[31m", "\ud800", "\ufeff", "\u202e", "a" * 4096, "", " ", "null", "1e3"]
TEXT = st.text(max_size=40) | st.sampled_from(NASTY) | st.lists(st.sampled_from(NASTY), max_size=3).map("".join)
NAME = TEXT | st.from_regex(r"\A[a-z][a-z0-9-]{0,20}[a-z0-9]\Z") | st.sampled_from(["fn", "torch", "zz-9", "r" * 64])
REPO = TEXT | st.from_regex(r"\A[A-Za-z0-9][\w.-]{0,20}/[\w.-]{1,20}\Z", alphabet=st.characters(codec="ascii"))
YAML = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.binary(max_size=9) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)


@contextmanager
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="properties-")).resolve()
    try:
        yield path
    finally:
        shutil.rmtree(path)


def attempt(destination: Path, answers: dict[str, Any], beside: Path) -> Report | None:
    """The repository, or None where it is refused: with a reason and a way out, and with nothing written."""
    before = sorted(beside.rglob("*"))
    try:
        return create(Request(destination, answers, defaults=True, git=False, level=Level.NONE), Quiet())
    except KernelNewError as error:
        refused = error
    assert refused.message
    assert refused.hint, refused.message
    if not isinstance(refused, UsageError):
        # By the file system: a name that is too long, or links in a circle.
        assert re.search("too long|Symlink loop", refused.message), refused.message
    assert sorted(beside.rglob("*")) == before
    return None


def check(report: Report, answers: dict[str, Any], combination: dict[str, str]) -> None:
    """It holds exactly the given answers, and every file in it is read by what will read it."""
    recorded = yaml.safe_load((report.path / ".copier-answers.yml").read_text(encoding="utf-8"))
    assert {name: recorded[name] for name in answers} == answers
    build = tomllib.loads((report.path / "build.toml").read_text(encoding="utf-8"))
    manifest = tomllib.loads((report.path / "Cargo.toml").read_text(encoding="utf-8"))
    assert build["general"]["name"] == manifest["package"]["name"] == recorded["name"]
    assert build["general"]["hub"]["repo-id"] == recorded["repo_id"]
    assert f"Copyright {recorded['author']}\n" in (report.path / "LICENSE").read_text(encoding="utf-8")
    rust, tests = [], 0
    for file, content in tree(report.path).items():
        text = content.decode("utf-8")
        assert not re.search("[«»]", text.replace(recorded["author"], "")), file
        if file.endswith(".toml"):
            tomllib.loads(text)
        elif file.endswith(".py"):
            compile(text, file, "exec", dont_inherit=True)
            functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
            tests += sum(node.name.startswith("test_") for node in functions)
        elif file.endswith((".yaml", ".yml")):
            yaml.safe_load(text)
        elif file.endswith(".rs"):
            rust.append(str(report.path / file))
    assert tests
    locked = re.findall(r'^name = "(.+)"$', (report.path / "Cargo.lock").read_text(encoding="utf-8"), re.MULTILINE)
    assert locked == sorted(locked), "cargo would write it anew"
    if shutil.which("rustfmt"):
        ran = process.run(["rustfmt", "--edition=2024", "--check", *rust])
        assert ran.code == 0, ran.stdout + ran.stderr
    if combination.get("device_compiler") != "cuda-oxide":
        command = ["cargo", "metadata", "--locked", "--format-version=1"]
        ran = process.run(command, cwd=report.path)
        assert ran.code == 0, ran.stderr
    if next(collected) % EVERY == 0:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
        found = subprocess.run(command, cwd=report.path, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stdout
        assert len(found.stdout.splitlines()) > tests


@many
@given(st.sampled_from(COMBINATIONS), NAME, TEXT, REPO)
@example(COMBINATIONS[0], "demo-kernel", 'O"Neil \\ «7*7» {{x}} $(id) 李四', "a/b.c")
def test_any_text_is_refused_or_written_exactly(combination: dict[str, str], name: str, author: str, repo: str) -> None:
    """Each alone and all three together: a refusal of one must not hide what another does."""
    together = {"name": name, "author": author, "repo_id": repo}
    for answers in (together, *({key: value} for key, value in together.items())):
        with directory() as parent:
            report = attempt(parent / "demo-kernel", {**combination, **answers}, parent)
            if report:
                check(report, {**combination, **answers}, combination)
            if len(answers) == 3 and report:
                return


@many
@given(st.sampled_from(list(questions.asked())), YAML, st.sampled_from(COMBINATIONS))
def test_any_value_of_an_answers_file_is_refused_or_written_exactly(
    question: str, value: object, combination: dict[str, str]
) -> None:
    with directory() as parent:
        answers = {**combination, question: value}
        report = attempt(parent / "demo-kernel", answers, parent)
        if report:
            applies = {name: value for name, value in answers.items() if name in report.answers}
            check(report, applies, combination)


PART = st.sampled_from(
    [
        "a",
        "a b",
        " a",
        "a ",
        "it's",
        'a"b',
        "ünï",
        "🦀",
        "-x",
        "--defaults",
        ".",
        "..",
        "~",
        "$HOME",
        "*",
        "a:b",
        "100%",
    ]
    + ["a\\b", "a\nb", "\x1b[31m", "[a]", "{b}", "«x»", "link", "loop", "file", "x" * 255, "x" * 256, "\udcff", "CON"]
) | st.text(st.characters(exclude_characters="\0/", codec="utf-8"), min_size=1, max_size=12)


@many
@given(
    st.lists(PART, max_size=4), st.sampled_from(["demo-kernel", "demo-kernel/", "demo-kernel/.", "./demo-kernel", ""])
)
@example(["a b", "it's", 'a"b', "ünï", "-x", "$HOME", "*", "[a]"], "demo-kernel/")
@example(["x" * 250] * 20, "demo-kernel")
@example(["link", ".."], "demo-kernel")
def test_any_destination_is_refused_or_holds_a_repository(parts: list[str], last: str) -> None:
    with directory() as parent:
        (parent / "inside").mkdir()
        inside = parent / "inside"
        (inside / "target").mkdir()
        (inside / "file").write_text("mine")
        (inside / "link").symlink_to("target")
        (inside / "loop").symlink_to("loop")
        # As a shell hands it over: joined as text, not as pathlib would tidy it.
        destination = Path(os.path.normpath("/".join([str(inside), *parts, last])))
        if not destination.is_relative_to(inside):
            return
        report = attempt(Path("/".join([str(inside), *parts, last])), {"name": "demo-kernel"}, parent)
        if report:
            assert report.path == destination
            check(report, {"name": "demo-kernel"}, COMBINATIONS[0])
        assert (inside / "file").read_text() == "mine"
        left = [entry.name for entry in parent.rglob(".kernel-new-*")]
        assert left == []


@pytest.mark.parametrize("parts", ['a "b" it\'s $HOME `id` ünï -x [c] * {d} #4 \\ ,;&|<>!?~=@+()^🦀'])
def test_a_kernel_is_proven_in_a_directory_of_any_other_name(parts: str, tmp_path: Path) -> None:
    report = create(Request(tmp_path / parts / "demo-kernel", {}, defaults=True, level=Level.TEST), Quiet())
    assert report.ok, report.steps


@pytest.mark.parametrize("part", ["a:b", "100%", "a\nb", "a\x1bb", "\udcff"])
def test_a_directory_where_cargo_cannot_build_is_refused(part: str, tmp_path: Path) -> None:
    """Named in the path, or where a link in the path leads."""
    (tmp_path / part).mkdir()
    (tmp_path / "link").symlink_to(part)
    for directory in (part, "link"):
        with pytest.raises(UsageError, match="where cargo cannot build") as refused:
            create(Request(tmp_path / directory / "demo-kernel", {}, defaults=True, level=Level.NONE), Quiet())
        assert refused.value.hint
    assert list((tmp_path / part).iterdir()) == []
