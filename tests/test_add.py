"""`kernel-new add`: an op is added whole, proven and kept by updates, or nothing is changed."""

import json
import keyword
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import COMBINATIONS, Run, combination_id, make, needs_cargo, needs_components, ops, shared_target, tree
from template_history import ROOT, Template, _own_cache, commit, edit, git, replace, template, whole  # noqa: F401
from test_kernel_builder import CHECK
from test_names import RUST
from test_ptx import needs_compiler, needs_compiler_of

from kernel_new import add, add_backend, lists, process, questions
from kernel_new.errors import StoppedError, UsageError
from kernel_new.git import require_clean
from kernel_new.report import Quiet

RunJson = Callable[..., dict[str, Any]]
KERNELS = questions.asked()["kernel"].values
FIRST = [combination for combination in COMBINATIONS if combination["kernel"] == KERNELS[0]]
everywhere = pytest.mark.parametrize("combination", FIRST, ids=combination_id)


def repository(path: Path, **answers: Any) -> Path:
    made = make(path, **answers).path
    commit(made)
    return made


def check(*command: str, cwd: Path, env: dict[str, str] | None = None) -> None:
    needs_components(" ".join(command))
    finished = process.run(command, cwd=cwd, env=env)
    assert finished.code == 0, finished.stdout + finished.stderr


def check_builder(made: Path) -> None:
    """The real kernel-builder takes the repository, where it is here."""
    if CHECK:
        checked = process.run([CHECK, str(made)], env=process.environment({"KB_CXX": "zig"}))
        assert checked.stdout.splitlines()[-1] == "OK", checked.stdout + checked.stderr


def check_refused(finished: subprocess.CompletedProcess[str], codes: tuple[int, ...], said: str) -> None:
    assert finished.returncode in codes
    assert said in finished.stderr
    assert "Traceback" not in finished.stderr


@everywhere
def test_each_starter_can_be_added_to_each_repository(
    combination: dict[str, str], tmp_path: Path, run_json: Callable[..., dict[str, Any]]
) -> None:
    """Under its own name or, where it is there already, another: proven, formatted, linted, listed."""
    needs_cargo(combination)
    needs_compiler_of(combination)
    made = repository(tmp_path / "demo-kernel", **combination)
    added = []
    for kernel in KERNELS:
        op = "second_one" if kernel == combination["kernel"] else kernel.replace("-", "_")
        document = run_json("add", op, made, "--kernel", kernel, "--verify=none")
        assert document["ok"], document
        commit(made)
        added.append(op)
    finished = process.run([sys.executable, "-m", "kernel_new", "verify", str(made)])
    assert finished.code == 0, finished.stdout + finished.stderr
    assert len(ops(made)) == 1 + len(added)
    for op in added:
        assert (made / f"src/{op}.rs").is_file()
        assert (made / f"tests/test_{op}.py").is_file()
    build = tomllib.loads((made / "build.toml").read_text())
    (kernel_table,) = build["kernel"].values()
    sources = {str(file.relative_to(made)) for file in [*made.glob("src/*.rs"), *made.glob("kernels/src/*.rs")]}
    assert sources <= set(kernel_table["src"])
    check("cargo", "fmt", "--all", "--check", cwd=made)
    clippy = ("cargo", "clippy", "--all-targets", "--locked", "--", "-D", "warnings")
    check(*clippy, cwd=made, env=process.environment(shared_target()))
    check(sys.executable, "-m", "ruff", "check", ".", cwd=made)
    check(sys.executable, "-m", "ruff", "format", "--check", ".", cwd=made)
    check_builder(made)


@pytest.mark.parametrize("modules", ["host_modules", "device_modules"])
def test_what_two_starters_call_the_same_is_the_same(modules: str) -> None:
    """A starter that is added takes the modules that are there, by their names."""
    found: dict[tuple[str, str], set[Path]] = {}
    for kernel in KERNELS:
        starter = ROOT / "templates/starters" / kernel
        (text,) = re.findall(rf"set {modules} = (.*) %»", (starter / "starter.jinja").read_text())
        for target, names in json.loads(text).items():
            places = [target] if modules == "device_modules" or target == "rust-cpu" else ["rust-cuda"]
            for name in names:
                own = [starter / place / f"{name}.rs" for place in [*places, "shared"]]
                common = [ROOT / "templates/modules" / place / f"{name}.rs" for place in places]
                file = next(file for file in [*own, *common] if file.exists())
                found.setdefault((target, name), set()).add(file)
    assert found
    assert {key: files for key, files in found.items() if len(files) > 1} == {}


def test_authors_lines_and_comments_stay(tmp_path: Path, run: Run) -> None:
    made = repository(tmp_path / "demo-kernel")
    replace(made / "build.toml", '  "src/relu.rs",', '  "src/relu.rs", # mine')
    replace(made / "src/lib.rs", "mod relu;", "// mine\nmod relu;")
    replace(made / "tvm-ffi-ext/demo_kernel/__init__.py", '"""The', '"""Mine. The')
    commit(made)
    assert run("add", "silu", made, "--verify=none").returncode == 0
    changed = [line for line in git(made, "diff").splitlines() if line.startswith("-") and not line.startswith("---")]
    assert changed == ['-__all__ = ["relu"]', '-    __all__ = ["ReLU"]']
    assert "    from .silu import Silu\n" in (made / "tvm-ffi-ext/demo_kernel/layers/__init__.py").read_text()


@whole
def test_an_update_keeps_it(template: Template, tmp_path: Path) -> None:
    made = template.emit(tmp_path / "demo-kernel", questions.constant("template_version"))
    released = set(tree(made))
    shutil.rmtree(made / ".git")
    files = tree(make(tmp_path / "fresh" / "demo-kernel").path)
    for name, content in files.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(content)
    git(made, "init", "--quiet", "--initial-branch=main")
    commit(made)
    assert template.run("add", "silu", made, "--verify=none").returncode == 1, "it is of an older release"
    finished = subprocess.run(
        [sys.executable, "-m", "kernel_new", "add", "silu", str(made), "--verify=none"], capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    commit(made)
    updated = template.update(made, "--json")
    # A list that the last release does not have yet can only be in conflict.
    (result,) = json.loads(updated.stdout)["repositories"]
    assert set(result["conflicts"]) <= set(files) - released
    assert ops(made) == ["relu", "silu"]
    assert '"src/silu.rs"' in (made / "build.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Bad-Name"], "kernel-new add bad_name"),
        (["class"], "kernel-new add my_class"),
        (["fn"], "no name that Rust and Python take"),
        (["lambda"], "no name that Rust and Python take"),
        (["../x"], "no name that Rust and Python take"),
        ([""], "no name that Rust and Python take"),
        (["relu"], "is there already"),
        (["checks"], "kernel-new add my_checks"),
        (["parallel", "--kernel", "rms-norm"], "kernel-new add my_parallel"),
        (["layers"], "kernel-new add my_layers"),
        (["torch"], "kernel-new add my_torch"),
        (["formula"], "is a name within the starter's _jax_relu.py"),
        (["silu", "--kernel", "gemm"], "kernel is none of relu"),
    ],
)
def test_what_cannot_be_added_changes_nothing(arguments: list[str], said: str, tmp_path: Path, run: Run) -> None:
    made = repository(tmp_path / "demo-kernel")
    before = tree(made)
    check_refused(run("add", arguments[0], made, *arguments[1:]), (1, 2), said)
    assert tree(made) == before


ODD = ["", "_", "9", "1st", "a__b", "ö", "Conv2D", "x_1", "-class-", "None", "a b", "class_", "İ", "\n", "self"]


@pytest.mark.parametrize("op", sorted({*keyword.kwlist, *keyword.softkwlist, *RUST, *ODD}))
def test_a_name_that_is_proposed_is_taken(op: str) -> None:
    try:
        add._check_name(op)
    except UsageError as error:
        proposed = error.hint.removeprefix("kernel-new add ")
        add._check_name(proposed)
        assert proposed != op


@pytest.mark.parametrize("count", [1, 3, 4, 9])
@pytest.mark.parametrize("is_committed", [False, True])
def test_uncommitted_changes_are_not_mixed_with_the_op(
    is_committed: bool, count: int, tmp_path: Path, run: Run
) -> None:
    """They are counted, and what is proposed makes way for it."""
    made = tmp_path / "demo-kernel"
    if is_committed:
        repository(made)
        for number in range(count):
            edit(made / f"src/new_{number}.rs", "// mine\n")
    else:
        make(made)
    before = tree(made)
    finished = run("add", "silu", made)
    check_refused(finished, (1,), "uncommitted changes: ")
    total = count if is_committed else len(tree(made))
    assert (f" and {total - 3} more\n" in finished.stderr) == (total > 3)
    assert tree(made) == before
    commands = finished.stderr.partition("try: Commit them: ")[2].strip().split("; or put them aside: ")
    assert len(commands) == 1 + is_committed
    commands[0] += " -m x"
    for command in commands:
        assert subprocess.run(["bash", "-euc", command], cwd=made, check=False).returncode == 0
        require_clean(made)
        if command != commands[-1]:
            git(made, "reset", "--quiet", "--soft", "HEAD~1")


def test_after_a_failed_proof_it_is_not_proposed_to_commit(tmp_path: Path, run_json: RunJson) -> None:
    made = repository(tmp_path / "demo-kernel")
    replace(made / "src/lib.rs", "mod relu;", "mod relu;\nmod missing;")
    commit(made)
    for command in (["add", "silu"], ["add-backend", "cuda"]):
        document = run_json(*command, made, "--verify=build")
        assert not document["ok"]
        assert document["next"] == ["kernel-new doctor", f"kernel-new verify {made}"]
        commit(made)


@needs_compiler
def test_device_code_that_does_not_compile_undoes_it(tmp_path: Path, run: Run) -> None:
    made = repository(tmp_path / "demo-kernel", backend="rust-cuda")
    replace(made / "kernels/src/relu.rs", "fn relu(", "fn broken(")
    commit(made)
    before = tree(made)
    check_refused(run("add", "silu", made), (1,), "cannot find")
    assert {file: text for file, text in tree(made).items() if not file.startswith("target/")} == before


def test_an_interrupted_proof_says_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    made = repository(tmp_path / "demo-kernel")
    monkeypatch.setattr("kernel_new.verify.prove", interrupt)
    for what, grow in (
        ("silu", lambda: add.add(add.Request(made, "relu", "silu"), Quiet())),
        ("rust-cuda", lambda: add_backend.add_backend(add_backend.Request(made, "cuda"), Quiet())),
    ):
        with pytest.raises(StoppedError) as stopped:
            grow()
        said = f"{what} was added to {made}, and is not proven.\nNext: kernel-new verify {made}\ninterrupted"
        assert stopped.value.message == said
        commit(made)


def test_lists_are_added_to_where_they_are_sorted() -> None:
    text = "pub mod b;\n\nmod d;\n\ntvm_ffi::tvm_ffi_dll_export_typed_func!(d, d::d);\n"
    donor = "pub mod a;\npub mod b;\n\nmod c;\nmod e;\n\ntvm_ffi::tvm_ffi_dll_export_typed_func!(c, c::c);\n"
    merged = lists.add_modules(text, donor)
    assert [found[1] for found in lists.MODULE.finditer(merged)] == ["a", "b", "c", "d", "e"]
    assert lists.exports(merged) == ["d", "c"]
    package = 'from .b import b\n\n__all__ = ["b"]\n'
    assert lists.add_functions(package, 'from .a import a, x\n\n__all__ = ["a", "x"]\n') == (
        'from .a import a, x\nfrom .b import b\n\n__all__ = ["a", "b", "x"]\n'
    )
    layers = 'if torch is not None:\n    from .b import B\n\n    __all__ = ["B"]\n'
    assert lists.add_functions(layers, layers.replace("b", "a").replace("B", "A")) == (
        'if torch is not None:\n    from .a import A\n    from .b import B\n\n    __all__ = ["A", "B"]\n'
    )
    long = json.dumps([f"a_long_name_{i}" for i in range(9)])
    assert "\n    " in lists.add_functions(package, f"from .a import a\n\n__all__ = {long}\n")
