"""The proof: what passes, and what each kind of failure says."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernels
import pytest
from conftest import Run, git, identities, make

from kernel_new import cargo, lists, process, verify, warm
from kernel_new.errors import CommandError, KernelNewError
from kernel_new.project import Project
from kernel_new.report import Level, Quiet, Report

RunJson = Callable[..., dict[str, Any]]


def step(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(step for step in document["steps"] if step["name"] == name)


def test_a_new_repository_is_proven(proven: Report) -> None:
    assert [(step.name, step.ok, step.skipped) for step in proven.steps] == [
        (name, True, False) for name in ("render", "git", "build", "load", "test")
    ]
    assert "passed" in proven.steps[-1].detail
    assert "failed" not in proven.steps[-1].detail


def test_what_was_staged_loads_through_kernels(proven: Report) -> None:
    """In another process, by get_local_kernel and, where the backend is at hand, by LOCAL_KERNELS."""
    (variant,) = (proven.path / "build").iterdir()
    code = f"import kernels, pathlib; print(kernels.get_local_kernel(pathlib.Path({str(variant)!r})).__all__)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    package = (variant / "__init__.py").read_text(encoding="utf-8")
    assert finished.stdout.strip() == str(lists.functions(package))


def test_local_kernels_finds_it(cpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prove(cpu, Level.LOAD)
    monkeypatch.setenv("LOCAL_KERNELS", f"your-org/demo-kernel={cpu}")
    assert kernels.get_kernel("your-org/demo-kernel", version=1, backend="cpu").__all__ == ["relu"]


def prove(path: Path, level: Level) -> Report:
    report = Report(path)
    verify.prove(Project.read(path), level, report, Quiet())
    return report


def test_an_error_of_rustc_is_shown_as_rustc_renders_it(cpu: Path, run: Run) -> None:
    source = cpu / "src/relu.rs"
    source.write_text(source.read_text() + "fn broken() -> u8 { missing }\n")
    finished = run("verify", cpu)
    assert finished.returncode == 1
    assert "error[E0425]: cannot find value `missing`" in finished.stderr
    tested = subprocess.run([sys.executable, "-m", "pytest"], cwd=cpu, capture_output=True, text=True, check=False)
    assert tested.returncode == 1
    assert "error[E0425]: cannot find value `missing`" in tested.stderr
    assert "--> src/relu.rs:" in finished.stderr
    assert finished.stderr.count("a step before it failed") == 2
    assert source.is_file()


def test_a_failing_test_is_shown(cpu: Path, run_json: RunJson) -> None:
    source = cpu / "src/relu.rs"
    source.write_text(source.read_text().replace("if x <= 0.0 { 0.0 }", "if x <= 0.0 { 0.1 }"))
    document = run_json("verify", cpu)
    assert not document["ok"]
    assert [step["ok"] for step in document["steps"]] == [True, True, False]
    assert "FAILED tests/test_relu.py::test_values" in step(document, "test")["detail"]


def test_two_terminals_in_one_repository_do_not_disturb_each_other(cpu: Path) -> None:
    pytest_, verify_ = [sys.executable, "-m", "pytest", "-q"], [sys.executable, "-m", "kernel_new", "verify"]
    assert subprocess.run(pytest_, cwd=cpu, capture_output=True, check=False).returncode == 0
    running = [
        subprocess.Popen(command, cwd=cpu, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command in (pytest_, verify_, pytest_, [*verify_, "--level=load"]) * 2
    ]
    for child in running:
        output, _ = child.communicate(timeout=600)
        assert child.returncode == 0, output


@pytest.mark.parametrize(
    "command",
    [["pytest", "-q", "-k", "refuses_strided"], ["kernel_new", "verify", "--level=load"]],
    ids=["pytest", "verify"],
)
def test_laying_out_again_touches_only_what_changed(cpu: Path, command: list[str]) -> None:
    """Tests in another terminal may be reading the rest."""

    def laid_out() -> dict[str, tuple[int, int]]:
        finished = subprocess.run(
            [sys.executable, "-m", *command], cwd=cpu, capture_output=True, text=True, check=False
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return identities(cpu / "build")

    package = cpu / "tvm-ffi-ext/demo_kernel"
    (package / "extra").mkdir()
    (package / "extra/__init__.py").touch()
    first = laid_out()
    assert laid_out() == first
    with (package / "__init__.py").open("a") as file:
        file.write("# changed\n")
    (package / "extra/__init__.py").unlink()
    (package / "extra").rmdir()
    then = laid_out()
    assert {file.rpartition("/")[2] for file in first if then.get(file) != first[file]} == {"__init__.py"}
    assert first.keys() - then.keys() == {file for file in first if "/extra/" in file}
    assert [entry.name for entry in (cpu / "build").iterdir()] == [next(iter(then)).partition("/")[0]]


def test_levels_include_those_before(cpu: Path, run_json: RunJson) -> None:
    for level, steps in [("none", []), ("build", ["build"]), ("load", ["build", "load"])]:
        assert [step["name"] for step in run_json("verify", cpu, "--level", level)["steps"]] == steps


def test_another_exported_symbol_is_refused(cpu: Path) -> None:
    library = cpu / "src/lib.rs"
    library.write_text(library.read_text() + '\n#[unsafe(no_mangle)]\npub extern "C" fn stray() {}\n')
    failed = prove(cpu, Level.LOAD).steps[-1]
    assert not failed.ok
    assert failed.detail == "the library exports more than its ops: stray"


def test_a_library_linked_to_cuda_is_refused() -> None:
    with pytest.raises(KernelNewError, match=r"linked to libcuda\.so\.1"):
        verify.check_symbols(["__tvm_ffi_relu"], ["libc.so.6", "libcuda.so.1"])
    verify.check_symbols(["__tvm_ffi_relu"], ["libc.so.6", "libtvm_ffi.so"])


def test_a_crate_without_a_dynamic_library_is_explained(cpu: Path) -> None:
    manifest = cpu / "Cargo.toml"
    manifest.write_text(manifest.read_text().replace('["cdylib", "rlib"]', '["rlib"]'))
    assert 'must contain "cdylib"' in prove(cpu, Level.BUILD).steps[-1].detail


def test_a_python_error_in_the_package_is_shown(cpu: Path) -> None:
    package = cpu / "tvm-ffi-ext/demo_kernel/__init__.py"
    package.write_text(package.read_text() + "\n1 / 0\n")
    failed = prove(cpu, Level.LOAD).steps[-1]
    assert "cannot load" in failed.detail
    assert "ZeroDivisionError" in failed.output


def test_a_panic_becomes_an_exception_and_the_process_lives(cpu: Path) -> None:
    source = cpu / "src/relu.rs"
    source.write_text(
        source.read_text().replace(
            "let dtype = x.dtype()?;", 'let dtype = x.dtype()?;\n    assert!(x.tensor.ndim() < 3, "too many");'
        )
    )
    assert prove(cpu, Level.LOAD).ok
    code = (
        "import kernels, numpy, pathlib\n"
        f"kernel = kernels.get_local_kernel(pathlib.Path({str(cpu)!r}), backend='cpu')\n"
        "try:\n    kernel.relu(numpy.zeros((1, 1, 1), 'f4'))\n"
        "except RuntimeError as error:\n    print('caught', error)\n"
        "print(kernel.relu(numpy.array([-1, 2], 'f4')))\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "caught" in finished.stdout
    assert "[0. 2.]" in finished.stdout


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (None, "no build.toml"),
        (b"[general", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"[general]\n", "KeyError"),
        (b"general = 1\n", "TypeError"),
        (b'[general]\nname = "a"\nversion = "x"\n', "ValueError"),
        (b'[[kernel]]\n[general]\nname = "a"\nversion = 1\nlicense = "MIT"\nbackends = ["cpu"]\n', "AttributeError"),
    ],
)
def test_what_is_no_kernel_repository_is_explained(build: bytes | None, said: str, run: Run, tmp_path: Path) -> None:
    if build is not None:
        (tmp_path / "build.toml").write_bytes(build)
    finished = run("verify", tmp_path)
    assert finished.returncode == 1
    assert said in finished.stderr
    assert "Traceback" not in finished.stderr


def test_the_second_repository_compiles_no_dependency(tmp_path: Path) -> None:
    assert make(tmp_path / "first", Level.BUILD).ok
    second = make(tmp_path / "second").path
    assert warm.target(second)
    finished = subprocess.run(
        ["cargo", "build", "--release", "--locked"],
        cwd=second,
        capture_output=True,
        text=True,
        env=verify._quiet(),
        check=True,
    )
    assert [line.split()[1] for line in finished.stderr.splitlines() if "Compiling" in line] == ["second"]
    assert not list(second.rglob(f"*{warm.PACKAGE}*"))


def test_a_repository_that_was_built_is_left_to_cargo(cpu: Path) -> None:
    marker = cpu / "target" / "mine"
    marker.write_text("mine")
    assert not warm.target(cpu)
    assert marker.read_text() == "mine"


def test_copied_dependencies_are_not_believed_blindly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other flags than those that the cache was compiled with: cargo compiles again, and the result is right."""
    assert make(tmp_path / "first", Level.BUILD).ok
    monkeypatch.setenv("RUSTFLAGS", "-Cdebug-assertions=on")
    assert make(tmp_path / "second", Level.LOAD).ok


@pytest.mark.parametrize("kind", ["variable", "configuration", "target"])
def test_the_library_is_found_wherever_cargo_puts_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    if kind == "variable":
        monkeypatch.setenv("CARGO_TARGET_DIR", str(elsewhere))
    else:
        (tmp_path / ".cargo").mkdir()
        setting = f'target-dir = "{elsewhere}"' if kind == "configuration" else f'target = "{host()}"'
        (tmp_path / ".cargo/config.toml").write_text(f"[build]\n{setting}\n")
    report = make(tmp_path / "demo-kernel", Level.TEST)
    assert report.ok, report.steps
    assert (report.path / "target").exists() == (kind == "target")


def host() -> str:
    finished = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True)
    return next(line.split()[1] for line in finished.stdout.splitlines() if line.startswith("host: "))


def test_an_outer_cargo_workspace_is_not_joined_nor_changed(tmp_path: Path) -> None:
    outer = '[workspace]\nmembers = ["*"]\nresolver = "2"\n'
    (tmp_path / "Cargo.toml").write_text(outer)
    assert make(tmp_path / "demo-kernel", Level.BUILD).ok
    assert (tmp_path / "Cargo.toml").read_text() == outer


def test_an_outer_pytest_configuration_does_not_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--no-such-option"\n')
    (tmp_path / "conftest.py").write_text("raise SystemExit('outer conftest')\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    report = make(tmp_path / "demo-kernel", Level.TEST)
    assert report.ok, report.steps


def test_tvm_ffi_config_is_found_without_an_active_environment(cpu: Path, tmp_path: Path, run: Run) -> None:
    shutil.rmtree(cpu / "target")
    cargo = shutil.which("cargo")
    assert cargo is not None
    path = f"{Path(cargo).parent}:/usr/bin:/bin"
    environment = {**verify._quiet(), "PATH": path}
    environment.pop("VIRTUAL_ENV", None)
    finished = run("verify", cpu, env=environment, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("change", ["deleted", "deleted and never committed", "dependency", "version"])
def test_a_lock_that_does_not_fit_is_mended_by_the_command_that_is_proposed(
    change: str, cpu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")
    lock, manifest = cpu / "Cargo.lock", cpu / "Cargo.toml"
    if change == "deleted":
        git(cpu, "add", "--all")
        git(cpu, "commit", "--quiet", "--message", "Start")
    if "deleted" in change:
        lock.unlink()
    elif change == "dependency":
        manifest.write_text(manifest.read_text().replace("[dependencies]\n", '[dependencies]\neither = "1"\n'))
    else:
        manifest.write_text(manifest.read_text().replace('version = "0.1.0"', 'version = "0.2.0"', 1))
    failed = prove(cpu, Level.BUILD).steps[-1]
    assert failed.detail == ("Cargo.lock is missing" if "deleted" in change else "Cargo.lock does not fit Cargo.toml")
    assert "--locked" in failed.output
    subprocess.run(["bash", "-euc", failed.hint], check=True, capture_output=True)
    assert prove(cpu, Level.BUILD).ok
    assert ("git checkout" in failed.hint) == (change == "deleted")


@pytest.mark.parametrize(
    "said",
    [
        "error: cannot update the lock file /k/Cargo.lock because --locked was passed to prevent this",
        "error: cannot create the lock file /k/Cargo.lock because --locked was passed to prevent this",
        "error: the lock file /k/Cargo.lock needs to be updated but --locked was passed to prevent this",
    ],
)
def test_every_cargo_says_it_in_its_own_words(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "run", lambda *arguments, **options: process.Finished(101, "", said))
    with pytest.raises(CommandError, match=r"Cargo\.lock is missing"):
        cargo.build(tmp_path)


@pytest.mark.parametrize("command", ["verify", "add", "add-backend", "update", "build", "publish", "diff", "ptx"])
def test_within_a_repository_it_is_said_where_it_is(command: str, run: Run, tmp_path: Path) -> None:
    made = make(tmp_path / "my kernel" / "demo-kernel").path
    arguments = {"add": ["new_op"], "add-backend": ["rust-cuda"]}.get(command, [])
    for path in ("src", "tvm-ffi-ext/demo_kernel", "build.toml", "missing/too"):
        finished = run(command, *arguments, made / path)
        assert finished.returncode == 1, finished
        assert f"cd '{made}'" in finished.stdout + finished.stderr
    finished = run(command, *arguments, tmp_path / "nowhere")
    assert "does not exist" in finished.stdout + finished.stderr
    finished = run(command, *arguments, tmp_path)
    assert "no kernel repository: " in finished.stdout + finished.stderr
