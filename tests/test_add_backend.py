"""`kernel-new add-backend`: one repository serves the CPU and CUDA devices, with the author's work kept."""

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, make, shared_target, tree
from template_history import Template, _own_cache, edit, git, replace, template, whole  # noqa: F401
from test_add import KERNELS, check, check_builder, check_refused, commit, repository
from test_ptx import needs_compiler

from kernel_new import process

OTHER = {"rust-cpu": "rust-cuda", "rust-cuda": "rust-cpu"}
backends = pytest.mark.parametrize("backend", OTHER)


def check_code(made: Path) -> None:
    """Formatted and linted, with and without the feature."""
    clippy = ("cargo", "clippy", "--workspace", "--all-targets", "--locked", "--quiet")
    for command in [
        ("cargo", "fmt", "--all", "--check"),
        (*clippy, "--all-features", "--", "-Dwarnings"),
        (*clippy, "--", "-Dwarnings"),
        (sys.executable, "-m", "ruff", "check", "."),
        (sys.executable, "-m", "ruff", "format", "--check", "."),
    ]:
        check(*command, cwd=made, env=process.environment(shared_target()))


@backends
@needs_compiler
def test_a_repository_with_more_ops_gets_the_other_backend_and_further_ops(
    backend: str, tmp_path: Path, run_json: Callable[..., dict[str, Any]]
) -> None:
    made = repository(tmp_path / "demo-kernel", backend=backend)
    for arguments in (["silu"], ["--kernel", "rms-norm"]):
        assert run_json("add", *arguments, "--verify=none", cwd=made)["ok"]
        commit(made)
    document = run_json("add-backend", OTHER[backend], made, "--verify=none")
    assert document["ok"], document
    device = backend.removeprefix("rust-")
    assert document["steps"][0]["detail"].endswith(f"for {device} only: silu, rms_norm")
    assert f'DEVICES = ["{device}"]' in (made / "tests/test_silu.py").read_text()
    commit(made)
    assert run_json("add", "third", "--verify=test", cwd=made)["ok"]
    build = tomllib.loads((made / "build.toml").read_text())
    assert build["general"]["backends"] == ["cpu", "cuda"]
    tables = {table["backend"]: table for table in build["kernel"].values()}
    assert "features" not in tables["cpu"]
    assert tables["cuda"]["features"] == ["cuda"]
    sources = {str(file.relative_to(made)) for file in [*made.glob("src/**/*.rs"), *made.glob("kernels/src/**/*.rs")]}
    assert sources <= set(tables["cuda"]["src"])
    elsewhere = "src/cuda" if backend == "rust-cpu" else "src/cpu"
    assert {"src/third.rs", f"{elsewhere}/third.rs"} <= set(tables["cuda"]["src"])
    check_code(made)
    check_builder(made)


@backends
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_starter_can_have_both_backends(backend: str, kernel: str, tmp_path: Path) -> None:
    made = make(tmp_path / "demo-kernel", backend=backend, second_backend=OTHER[backend], kernel=kernel).path
    check_code(made)
    if backend == "rust-cpu":
        command = ("cargo", "test", "--all-features", "--locked", "--quiet")
        check(*command, cwd=made, env=process.environment(shared_target()))


@backends
def test_it_is_what_would_have_been_created(backend: str, tmp_path: Path, run: Run) -> None:
    made = repository(tmp_path / "grown" / "demo-kernel", backend=backend)
    assert run("add-backend", OTHER[backend], made, "--verify=none").returncode == 0
    created = make(tmp_path / "created" / "demo-kernel", backend=backend, second_backend=OTHER[backend]).path
    assert tree(made) == tree(created)


def test_a_variant_for_the_cpu_has_nothing_of_cuda(tmp_path: Path, run_json: Callable[..., dict[str, Any]]) -> None:
    made = repository(tmp_path / "demo-kernel", second_backend="rust-cuda")
    document = run_json("build", made, "--local", "--verify=test")
    assert document["ok"], document
    (cpu,) = made.glob("build/*-cpu-*/*.so")
    cuda = next(made.glob("build/*-cu*/*.so"))
    for library, there in ((cpu, False), (cuda, True)):
        assert (b".visible .entry" in library.read_bytes()) is there
    # On a machine without a GPU, the proof loaded the variant for the CPU, whose tests ask nothing of CUDA.
    (test,) = (step for step in document["steps"] if step["name"] == "test")
    assert "passed" in test["detail"]


@backends
def test_edits_of_the_author_stay(backend: str, tmp_path: Path, run: Run) -> None:
    made = repository(tmp_path / "demo-kernel", backend=backend)
    replace(
        made / "src/relu.rs",
        "if x <= 0.0" if backend == "rust-cpu" else "THREADS: u32 = 256",
        "/* mine */ if x <= 0.0" if backend == "rust-cpu" else "THREADS: u32 = 128",
    )
    replace(made / "Cargo.toml", "[dependencies]\n", '[dependencies]\neither = "1"\n')
    replace(made / "build.toml", '  "src/relu.rs",', '  "src/relu.rs", # mine\n  "src/more.rs",')
    replace(made / "src/lib.rs", "mod relu;", "mod more;\nmod relu; // mine")
    replace(made / "README.md", "called from Python", "Mine. Called from Python")
    edit(made / "src/more.rs", "//! Mine.\n")
    check("cargo", "generate-lockfile", "--offline", cwd=made)
    commit(made)
    finished = run("add-backend", OTHER[backend], made, "--verify=none")
    assert finished.returncode == 0, finished.stderr
    check("cargo", "metadata", "--locked", "--offline", "--format-version=1", cwd=made)
    dependencies = tomllib.loads((made / "Cargo.toml").read_text())["dependencies"]
    assert dependencies["either"] == "1"
    assert dependencies["libloading"] == {"version": "0.9", "optional": True}
    assert '"src/relu.rs", # mine' in (made / "build.toml").read_text()
    assert "mod more;" in (made / "src/lib.rs").read_text()
    assert ("/* mine */" if backend == "rust-cpu" else "128") in (made / "src/relu.rs").read_text()
    readme = (made / "README.md").read_text()
    assert "Mine. Called" in readme
    assert "<<<<" not in readme
    assert "Yours are kept, since both changed the same lines: README.md" in finished.stderr


def test_a_line_that_both_change_is_named(tmp_path: Path, run: Run) -> None:
    made = repository(tmp_path / "demo-kernel", backend="rust-cuda")
    replace(made / "Cargo.toml", 'libloading = "0.9"', 'libloading = "=0.9.1"')
    commit(made)
    before = tree(made)
    check_refused(
        run("add-backend", "rust-cpu", made), (1,), "Cargo.toml: you and the second backend change the same line"
    )
    assert tree(made) == before


def test_what_is_not_utf_8_or_no_python(tmp_path: Path, run: Run) -> None:
    made = repository(tmp_path / "demo-kernel")
    readme = made / "README.md"
    readme.write_bytes(readme.read_bytes() + "Ren\u00e9\n".encode("latin-1"))
    edit(made / "tests/test_mine.py", "def broken(:\n")
    commit(made)
    before = tree(made)
    check_refused(run("add-backend", "rust-cuda", made), (1,), "tests/test_mine.py cannot be read")
    assert tree(made) == before
    edit(made / "tests/test_mine.py", "import pytest\n")
    commit(made)
    finished = run("add-backend", "rust-cuda", made, "--verify=none")
    assert finished.returncode == 0, finished.stderr
    assert readme.read_bytes().endswith(b"Ren\xe9\n")
    assert b"A CPU and CUDA kernel" in readme.read_bytes()


def test_a_library_that_builds_with_the_feature_only_is_no_proof(tmp_path: Path, run: Run) -> None:
    made = repository(tmp_path / "demo-kernel", second_backend="rust-cuda")
    replace(made / "src/relu.rs", "use crate::checks::", "use crate::cuda as _;\nuse crate::checks::")
    finished = run("verify", made, "--level=build")
    assert finished.returncode == 1
    assert "crate::cuda" in finished.stdout + finished.stderr


@whole
def test_an_update_keeps_both(template: Template, tmp_path: Path) -> None:
    made = template.emit(tmp_path / "demo-kernel", template.releases.versions[-1])
    grown = template.run("add-backend", "rust-cuda", made, "--verify=none")
    assert grown.returncode == 0, grown.stdout + grown.stderr
    commit(made)
    before = tree(made)
    finished = template.update(made, "--data", "license=MIT")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    commit(made)
    plain = template.plain_copier_update(made)
    assert plain.returncode == 0, plain.stderr
    changed = {name for name, content in tree(made).items() if content != before.get(name)}
    assert changed == {"LICENSE", "Cargo.toml", "build.toml", "README.md", ".copier-answers.yml"}
    assert 'backends = ["cpu", "cuda"]' in (made / "build.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rust-cpu"], "has the backend rust-cpu already\ntry: kernel-new add-backend rust-cuda\n"),
        (["cpu"], "has the backend rust-cpu already\ntry: kernel-new add-backend rust-cuda\n"),
        (
            ["rust-metal"],
            "backend 'rust-metal' is none of rust-cpu, rust-cuda\ntry: kernel-new add-backend rust-cuda\n",
        ),
        (["cuda", "--cuda-capabilities", "eight"], "is not a CUDA capability"),
        (["rust-cuda", "--cuda-capabilities", "eight"], "is not a CUDA capability"),
        (["rust-cuda", "--device-compiler", "llvm"], "try: --device-compiler nvptx"),
        (["rust-cpu", "--device-compiler", "nvptx"], "has the backend rust-cpu already"),
    ],
)
def test_what_cannot_be_added_changes_nothing(arguments: list[str], said: str, tmp_path: Path, run: Run) -> None:
    made = repository(tmp_path / "demo-kernel")
    before = tree(made)
    check_refused(run("add-backend", arguments[0], made, *arguments[1:]), (2,), said)
    assert tree(made) == before


@backends
@pytest.mark.parametrize("given", [[], ["."], ["metal"], ["../demo-kernel"]])
def test_the_backend_that_is_missing_is_proposed(given: list[str], backend: str, tmp_path: Path, run: Run) -> None:
    made = repository(tmp_path / "demo-kernel", backend=backend)
    finished = run("add-backend", *given, cwd=made)
    assert finished.returncode == 2
    proposed = finished.stderr.splitlines()[-1].removeprefix("try: kernel-new ").split()
    assert proposed == ["add-backend", OTHER[backend], *(given if given != ["metal"] else [])]
    assert run(*proposed, "--verify=none", cwd=made).returncode == 0
    commit(made)
    again = run("add-backend", *given, cwd=made)
    assert (again.returncode, "try: " in again.stderr) == (2, False)


@backends
def test_a_backend_has_a_short_name(backend: str, tmp_path: Path, run_json: Callable[..., dict[str, Any]]) -> None:
    made = repository(tmp_path / "demo-kernel", backend=backend)
    assert run_json("add-backend", OTHER[backend].removeprefix("rust-"), made, "--verify=none")["ok"]
    commit(made)
    assert len(tomllib.loads((made / "build.toml").read_text())["general"]["backends"]) == 2


def test_nothing_of_the_authors_is_overwritten(tmp_path: Path, run: Run) -> None:
    made = repository(tmp_path / "demo-kernel")
    edit(made / "src/cuda.rs", "//! Mine.\n")
    commit(made)
    before = tree(made)
    check_refused(run("add-backend", "rust-cuda", made), (1,), "src/cuda.rs is there already")
    assert tree(made) == before
    (made / "src/cuda.rs").unlink()
    git(made, "rm", "--quiet", "--cached", "src/cuda.rs", "src/relu.rs")
    (made / "src/relu.rs").unlink()
    commit(made)
    check_refused(run("add-backend", "rust-cuda", made), (1,), "kernel-new add relu --kernel relu")
