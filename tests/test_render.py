"""What is emitted: the same by plain copier, locked, formatted, linted, and nothing of the template left."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import COMBINATIONS, combination_id, git, make, needs_cargo, needs_components, tree
from packaging.licenses import canonicalize_license_expression

from kernel_new import doctor, process, questions, template
from kernel_new.report import Report

everywhere = pytest.mark.parametrize("combination", COMBINATIONS, ids=combination_id)


def check(*command: str, cwd: Path) -> str:
    needs_components(" ".join(command))
    finished = process.run(command, cwd=cwd)
    assert finished.code == 0, finished.stdout + finished.stderr
    return finished.stdout


def has_device_compiler() -> bool:
    return next(found.ok for found in doctor.examine() if found.name == "rustc for nvptx")


@pytest.fixture(scope="session")
def template_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template as the git repository that it is published as."""
    clone = tmp_path_factory.mktemp("template")
    shutil.copy(template.root() / "copier.yml", clone)
    ours = shutil.ignore_patterns("__pycache__")  # pip compiles what looks like Python.
    shutil.copytree(template.root() / "templates", clone / "templates", ignore=ours)
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "-m", "x"], ["tag", "v0.1.0"]):
        subprocess.run(["git", *command], cwd=clone, check=True)
    return clone


@everywhere
@pytest.mark.parametrize("extra", [{}, {"license": "MIT", "author": 'O\'Neil, "A\\B" & Söhne', "repo_id": "a/b.c"}])
def test_plain_copier_emits_the_same_bytes(
    combination: dict[str, str], extra: dict[str, str], template_repository: Path, tmp_path: Path
) -> None:
    answers = combination | extra
    ours = make(tmp_path / "ours" / "demo-kernel", **answers).path
    theirs = tmp_path / "theirs" / "demo-kernel"
    data = [f"--data={name}={value}" for name, value in answers.items()]
    check(
        sys.executable,
        "-m",
        "copier",
        "copy",
        "--defaults",
        *data,
        str(template_repository),
        str(theirs),
        cwd=tmp_path,
    )
    assert tree(ours) == tree(theirs)


def test_plain_copier_refuses_the_same_names(template_repository: Path, tmp_path: Path) -> None:
    for name in ("build", "My_Kernel", "torch"):
        command = [
            sys.executable,
            "-m",
            "copier",
            "copy",
            "--defaults",
            str(template_repository),
            str(tmp_path / name),
        ]
        assert process.run(command, cwd=tmp_path).code != 0
    assert list(tmp_path.iterdir()) == []


@everywhere
def test_nothing_of_the_template_is_left(combination: dict[str, str], tmp_path: Path) -> None:
    for file, content in tree(make(tmp_path / "demo-kernel", **combination).path).items():
        text = content.decode("utf-8")
        assert not re.search("[«»]", file + text), file
        assert "\r" not in text, file
        assert not re.search(r"[ \t]+$", text, re.MULTILINE), f"{file}: trailing spaces"
        assert text.endswith("\n"), file
        assert not text.endswith("\n\n"), file
        assert not re.search("TODO|FIXME|todo!|unimplemented!", text), file


@everywhere
def test_names_do_not_leak_between_answers(combination: dict[str, str], tmp_path: Path) -> None:
    """Two repositories differ in their names only: every other byte is the same."""
    one = tree(make(tmp_path / "first-name", **combination).path)
    two = tree(make(tmp_path / "other-word", **combination).path)

    def renamed(text: str) -> str:
        return text.replace("first-name", "other-word").replace("first_name", "other_word")

    assert {renamed(file) for file in one} == set(two)
    for file, content in one.items():
        if file != "Cargo.lock":  # sorted by name
            assert renamed(content.decode()) == two[renamed(file)].decode()


@everywhere
def test_every_answer_is_where_it_belongs(combination: dict[str, str], tmp_path: Path) -> None:
    report = make(tmp_path / "demo-kernel", **combination, license="MIT", author="Ada Lovelace", repo_id="ada/engine")
    build = tomllib.loads((report.path / "build.toml").read_text())
    backend = combination["backend"].removeprefix("rust-")
    assert build["general"] | {"backends": [backend]} == {
        "name": "demo-kernel",
        "version": 1,
        "edition": 5,
        "license": "MIT",
        "backends": [backend],
        "hub": {"repo-id": "ada/engine"},
    }
    assert "tvm-ffi" in build
    cargo = tomllib.loads((report.path / "Cargo.toml").read_text())["package"]
    assert (cargo["name"], cargo["license"]) == ("demo-kernel", "MIT")
    assert (report.path / "LICENSE").read_text().startswith("MIT License\n\nCopyright (c) Ada Lovelace\n")
    recorded = yaml.safe_load((report.path / ".copier-answers.yml").read_text())
    assert report.answers.items() <= recorded.items()


@everywhere
def test_build_toml_lists_each_source_and_nothing_else(combination: dict[str, str], tmp_path: Path) -> None:
    made = make(tmp_path / "demo-kernel", **combination).path
    (kernel,) = tomllib.loads((made / "build.toml").read_text())["kernel"].values()
    listed = kernel["src"]
    assert listed[0] == "Cargo.toml"
    assert all((made / file).is_file() for file in listed)
    below = [file for part in ("src", "kernels", "kernels-ptx") for file in (made / part).rglob("*") if file.is_file()]
    built_from = {str(file.relative_to(made)) for file in below if file.suffix != ".py"}
    assert sorted(listed) == sorted({"Cargo.toml", "Cargo.lock", "build.rs"} | built_from)
    assert "ptx-dir" not in kernel


def test_one_answer_pins_cuda_oxide_everywhere(tmp_path: Path) -> None:
    pin = {"git": "https://example.org/fork/cuda-oxide", "rev": "0123456789" * 4}
    answer = f"{pin['git']}?rev={pin['rev']}&toolchain=nightly-2026-05-06"
    made = make(tmp_path / "demo-kernel", backend="rust-cuda", device_compiler="cuda-oxide", cuda_oxide=answer).path
    assert tomllib.loads((made / "kernels/Cargo.toml").read_text())["dependencies"]["cuda-device"] == pin
    assert (
        tomllib.loads((made / "kernels/rust-toolchain.toml").read_text())["toolchain"]["channel"]
        == "nightly-2026-05-06"
    )
    assert f'"git+{pin["git"]}?rev={pin["rev"]}"' in (made / "flake.nix").read_text()
    assert (made / "Cargo.lock").read_text().count(f"git+{pin['git']}?rev={pin['rev']}#{pin['rev']}") == 3
    files = {file: text.decode() for file, text in tree(made).items()}
    assert not [file for file, text in files.items() if "a105afd522b73a6712a802e30bd900cd04cc8019" in text]
    check(sys.executable, "kernels/build_ptx.py", "--check", cwd=made)


@everywhere
def test_answers_record_the_public_address_and_a_version(combination: dict[str, str], tmp_path: Path) -> None:
    report = make(tmp_path / "demo-kernel", **combination)
    recorded = yaml.safe_load((report.path / ".copier-answers.yml").read_text())
    assert recorded["_src_path"] == questions.constant("template_url") == report.template["url"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", recorded["_commit"])
    assert str(tmp_path) not in json.dumps(recorded)


@everywhere
@pytest.mark.parametrize("name", ["aaa", "zzz", "tvm-ffh", "a1-b2-c3", "k" * 60, "cudarb", "half-way", "win"])
def test_the_lock_holds_for_names_that_sort_anywhere(combination: dict[str, str], name: str, tmp_path: Path) -> None:
    needs_cargo(combination)
    made = make(tmp_path / name, **combination).path
    check("cargo", "metadata", "--locked", "--format-version=1", cwd=made)


@everywhere
def test_python_is_linted_and_formatted(combination: dict[str, str], tmp_path: Path) -> None:
    made = make(tmp_path / "demo-kernel", **combination).path
    ruff = (sys.executable, "-m", "ruff")
    check(*ruff, "check", ".", cwd=made)
    check(*ruff, "format", "--check", "--diff", ".", cwd=made)


@pytest.mark.parametrize(
    "command",
    [
        "cargo fmt --all --check",
        "cargo clippy --workspace --all-targets --locked -- -D warnings",
        "cargo test --workspace --locked",
        "cargo build --release --locked",
    ],
)
def test_cargo_is_content(command: str, proven: Report) -> None:
    assert proven.ok, proven.steps
    check(*command.split(), cwd=proven.path)


def test_the_workflow_runs_commands_that_pass_here(proven: Report) -> None:
    repository = proven.path
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "x")
    workflow = yaml.safe_load((repository / ".github/workflows/ci.yaml").read_text())
    assert workflow["permissions"] == {"contents": "read"}
    steps: list[dict[str, Any]] = workflow["jobs"]["test"]["steps"]
    for step in steps:
        if "uses" in step:
            continue
        if step["run"].startswith("python kernels/build_ptx.py") and not has_device_compiler():
            pytest.skip("no compiler for device code")
        elif not step["run"].startswith(("pip install", "rustup toolchain install")):
            check(*step["run"].split(), cwd=repository)


@everywhere
def test_actions_are_pinned_and_no_answer_reaches_a_shell(combination: dict[str, str], tmp_path: Path) -> None:
    made = make(tmp_path / "demo-kernel", **combination, author="Ada $(touch x) `id`").path
    for file in (made / ".github/workflows").iterdir():
        for job in yaml.safe_load(file.read_text())["jobs"].values():
            for step in job["steps"]:
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", f"a/b@{'0' * 40}"))
                assert "demo-kernel" not in step.get("run", "")
                assert "Ada" not in step.get("run", "")


@pytest.mark.parametrize("choice", questions.asked()["license"].values)
def test_every_license_is_an_spdx_identifier_and_its_text_is_there(choice: str, tmp_path: Path) -> None:
    assert canonicalize_license_expression(choice) == choice
    text = (make(tmp_path / "demo-kernel", license=choice).path / "LICENSE").read_text()
    assert len(text) > 500
    assert not re.search(r"<(year|owner|name|copyright holders)>|\[yyyy\]", text.split("END OF TERMS")[0])


def test_bytes_of_other_languages_come_through_unchanged(template_repository: Path, tmp_path: Path) -> None:
    """The template's marks occur in no language that is emitted, so that nothing in a file is taken for them."""
    clone = tmp_path / "template"
    shutil.copytree(template_repository, clone)
    code = "mod x {#[inline] fn a(){}} {{}} {% raw %} {# no #} ${{ github.ref }} [[a]] <%= b %> $(c) \\n ''\n"
    for file in (clone / "templates/rust-cpu").rglob("*"):
        if file.is_file() and file.name != ".copier-answers.yml":
            file.write_text(file.read_text() + code)
    subprocess.run(["git", "commit", "--quiet", "--all", "-m", "x"], cwd=clone, check=True)
    made = tmp_path / "demo-kernel"
    check(sys.executable, "-m", "copier", "copy", "--defaults", "--vcs-ref=HEAD", str(clone), str(made), cwd=tmp_path)
    for file, content in tree(made).items():
        if file != ".copier-answers.yml":
            assert content.decode().endswith(code), file
