"""Device code: the committed PTX is what the sources compile to, and never silently anything else."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COMBINATIONS, Run, combination_id, make, needs_cargo, shared_target, tree
from rich.console import Console

from kernel_new import console, doctor, process, template, verify
from kernel_new.project import Project
from kernel_new.report import Level, Quiet, Report, Step

CUDA = [combination for combination in COMBINATIONS if combination["backend"] == "rust-cuda"]
cuda = pytest.mark.parametrize("combination", CUDA, ids=combination_id)
FOUND = {requirement.name: requirement for requirement in doctor.examine()}
needs_compiler = pytest.mark.skipif(not FOUND["rustc for nvptx"].ok, reason="no compiler for device code")
PTX = sorted((template.root() / "templates/ptx").rglob("*.ptx"))
SPILLS = {"flash-attn2": 96, "rms-norm": 4}
"""Bytes of a thread that a kernel keeps outside of registers at most: measured to be faster than fewer threads."""
committed = pytest.mark.parametrize("ptx", PTX, ids=lambda path: f"{path.parent.name}-{path.name}")


def target_of(ptx: Path) -> str:
    """What a file of the template was built for; one without a target in its name stands for all others, too."""
    _, *target = ptx.stem.split(".")
    return target[0] if target else "sm_80"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    report = make(tmp_path_factory.mktemp("ptx") / "demo-kernel", Level.BUILD, backend="rust-cuda")
    assert report.ok, report.steps
    return report.path


@pytest.fixture
def repository(built: Path, tmp_path: Path) -> Path:
    copy = tmp_path / built.name
    shutil.copytree(built, copy)
    return copy


def needs_compiler_of(combination: dict[str, str]) -> None:
    """Skip a test whose combination has device code for a compiler that is not here."""
    if combination.get("device_compiler") == "nvptx" and not FOUND["rustc for nvptx"].ok:
        pytest.skip("no compiler for device code")
    if combination.get("device_compiler") == "cuda-oxide" and not os.environ.get("CUDA_OXIDE_BACKEND"):
        pytest.skip("cuda-oxide is not installed")


def rebuild(directory: Path, *options: str) -> process.Finished:
    return process.run([sys.executable, "kernels/build_ptx.py", *options], cwd=directory)


@cuda
def test_rebuilding_gives_the_same_bytes(combination: dict[str, str], tmp_path: Path) -> None:
    needs_compiler_of(combination)
    made = make(tmp_path / "somewhere" / "another-name", **combination).path
    before = tree(made / "kernels-ptx")
    shutil.rmtree(made / "kernels-ptx")
    (made / "kernels-ptx").mkdir()
    finished = rebuild(made)
    assert finished.code == 0, finished.stderr
    after = tree(made / "kernels-ptx")
    if combination["device_compiler"] == "cuda-oxide":
        # It orders the kernels by the hash of the crate's name.
        assert [kernels_of(ptx) for ptx in after.values()] == [kernels_of(ptx) for ptx in before.values()]
    else:
        assert after == before


def kernels_of(ptx: bytes) -> list[str]:
    """The kernels in alphabetical order, without the number that labels have of the kernel's place."""
    return sorted(re.sub(r"\$L__BB\d+_", "$L__BB_", ptx.decode()).split(".visible .entry "))


@needs_compiler
def test_rebuilding_obeys_no_flags_from_outside(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ptx,) = (repository / "kernels-ptx").iterdir()
    before = ptx.read_bytes()
    for name, value in {
        "RUSTFLAGS": "-g",
        "CARGO_TARGET_DIR": str(repository / "t"),
        "RUSTC_WRAPPER": "false",
    }.items():
        monkeypatch.setenv(name, value)
    assert rebuild(repository).code == 0
    assert ptx.read_bytes() == before


def test_a_stale_ptx_warns_in_the_build_and_fails_the_tests(repository: Path) -> None:
    source = repository / "kernels/src/relu.rs"
    source.write_text(source.read_text().replace("{ 0.0 }", "{ 0.5 }"))
    assert rebuild(repository, "--check").code == 1
    report = Report(repository)
    verify.prove(Project.read(repository), Level.TEST, report, Quiet())
    build, load, test = report.steps
    assert build.ok
    assert "out of date: run `python kernels/build_ptx.py`" in build.hint
    assert load.ok
    assert not test.ok
    assert "test_the_ptx_is_up_to_date" in test.output


@pytest.mark.parametrize("change", ["target", "toolchain", "new file", "removed file", "renamed file"])
def test_every_change_of_what_ptx_is_made_from_makes_it_stale(change: str, repository: Path) -> None:
    source = repository / "kernels/src"
    if change == "target":
        build = repository / "build.toml"
        build.write_text(build.read_text().replace('["8.0+PTX"]', '["9.0"]'))
    elif change == "toolchain":
        pin = repository / "kernels/rust-toolchain.toml"
        pin.write_text(pin.read_text().replace("1.96.0", "1.97.0"))
    elif change == "new file":
        (source / "new.rs").write_text("")
    elif change == "removed file":
        (source / "float.rs").unlink()
    else:
        (source / "float.rs").rename(source / "floats.rs")
    assert rebuild(repository, "--check").code == 1
    assert "is out of date" in warnings(repository)


@pytest.mark.parametrize("change", ["name", "line endings", "not device code"])
def test_what_does_not_matter_does_not_make_it_stale(change: str, repository: Path) -> None:
    if change == "name":
        for file in ("Cargo.toml", "kernels/Cargo.toml", "Cargo.lock"):
            path = repository / file
            path.write_text(path.read_text().replace("demo-kernel", "better"))
        (repository / "kernels-ptx/demo_kernel_device.ptx").rename(repository / "kernels-ptx/better_device.ptx")
    elif change == "line endings":
        for path in (repository / "kernels/src").iterdir():
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    else:
        (repository / "kernels/notes.md").write_text("mine")
        (repository / "src/relu.rs").write_text((repository / "src/relu.rs").read_text() + "\n// mine\n")
    assert rebuild(repository, "--check").code == 0
    assert "is out of date" not in warnings(repository)


def warnings(repository: Path) -> str:
    finished = process.run(["cargo", "check"], cwd=repository)
    return finished.stderr


def test_without_a_compiler_the_way_to_get_one_is_named(repository: Path) -> None:
    environment = {"PATH": str(repository)}
    (repository / "kernels/rust-toolchain.toml").write_text('[toolchain]\nchannel = "1.0.0"\n')
    before = tree(repository / "kernels-ptx")
    finished = process.run([sys.executable, "kernels/build_ptx.py"], cwd=repository, env=environment)
    assert finished.code == 1
    assert "rustup toolchain install 1.0.0" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert tree(repository / "kernels-ptx") == before


@needs_compiler
def test_device_code_that_does_not_compile_leaves_the_ptx(repository: Path) -> None:
    source = repository / "kernels/src/relu.rs"
    source.write_text(source.read_text() + "fn broken() -> u8 { missing }\n")
    before = tree(repository / "kernels-ptx")
    finished = rebuild(repository)
    assert finished.code == 1
    assert "cannot find value `missing`" in finished.stderr
    assert tree(repository / "kernels-ptx") == before


def assemble(ptx: Path, target: str, tmp_path: Path) -> str:
    """What ptxas says of it."""
    found = FOUND["ptxas"]
    if not found.ok:
        pytest.skip("no ptxas")
    assembler = tmp_path / "ptxas"
    shutil.copy(found.found, assembler)
    assembler.chmod(0o755)
    command = [str(assembler), f"-arch={target}", "-v", "-o", "/dev/null", str(ptx)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stderr


@committed
def test_ptxas_takes_the_committed_ptx(ptx: Path, tmp_path: Path) -> None:
    said = assemble(ptx, target_of(ptx), tmp_path)
    spilled = [int(count) for count in re.findall(r"(\d+) bytes spill stores", said)]
    assert spilled
    assert max(spilled) <= SPILLS.get(ptx.name.split(".")[0], 0)
    assert "warning" not in said, "such as wgmma instructions that had to be serialised"


@committed
def test_ptx_says_what_it_was_built_from_and_nothing_of_where(ptx: Path) -> None:
    text = ptx.read_text(encoding="utf-8")
    assert re.search(r"^// compiler: (rustc|cuda-oxide) .+$", text, re.MULTILINE)
    assert f"// target: {target_of(ptx)}\n" in text
    assert re.search(r"^// sources: [0-9a-f]{16}$", text, re.MULTILINE)
    assert f"\n.target {target_of(ptx)}\n" in text
    assert len(re.findall(r"^\.extern .*$", text, re.MULTILINE)) <= 1
    assert not re.search(r"^\.extern (?!\.shared \.align \d+ \.b8 dynamic_shared\[\];$)", text, re.MULTILINE)
    assert "_RN" not in text, "a function of core, whose name depends on who built it"
    assert not re.search(r"[/\\](home|root|tmp|work|usr)[/\\]|ptx_source", text)


@pytest.mark.parametrize("compiler", ["nvptx", "cuda-oxide"])
def test_ptxas_takes_the_ptx_for_every_target(compiler: str, tmp_path: Path) -> None:
    """Of relu, which has one file for all of them."""
    text = (template.root() / "templates/validators.jinja").read_text()
    lowest, specific = (re.findall(rf'set {name} = "(.+)"', text)[0].split() for name in ("targets", "specific"))
    for i, capabilities in enumerate([[lowest[0], *specific], *([capability] for capability in lowest[1:])]):
        answers = {"backend": "rust-cuda", "device_compiler": compiler, "cuda_capabilities": capabilities}
        made = make(tmp_path / f"demo-{i}x", **answers).path
        for ptx in (made / "kernels-ptx").iterdir():
            (target,) = re.findall(r"^\.target (\w+)$", ptx.read_text(), re.MULTILINE)
            assemble(ptx, target, tmp_path)


@cuda
@pytest.mark.parametrize(
    ("capabilities", "target"),
    [(["8.0"], "sm_80"), (["9.0", "8.6"], "sm_86"), (["12.0", "10.0", "9.0a", "9.0"], "sm_90")],
)
def test_the_lowest_capability_is_the_target(
    capabilities: list[str], target: str, combination: dict[str, str], tmp_path: Path
) -> None:
    made = make(tmp_path / "demo-kernel", **combination, cuda_capabilities=capabilities).path
    assert f"\n.target {target}\n" in (made / "kernels-ptx/demo_kernel_device.ptx").read_text()
    declared = Project.read(made).capabilities
    assert [capability.removesuffix("+PTX") for capability in declared] == capabilities
    assert [f"sm_{c[:-4].replace('.', '')}" for c in declared if c.endswith("+PTX")] == [target]
    assert rebuild(made, "--check").code == 0


@cuda
def test_a_capability_with_a_letter_needs_one_below_it(combination: dict[str, str], tmp_path: Path) -> None:
    """Of the lowest the device code does not know that it is compiled for it; the host would believe it."""
    needs_cargo(combination)
    made = make(tmp_path / "demo-kernel", **combination).path
    file = made / "build.toml"
    file.write_text(re.sub("(?m)^cuda-capabilities = .*", 'cuda-capabilities = ["10.0", "9.0a"]', file.read_text()))
    finished = rebuild(made)
    assert finished.code == 1
    assert "9.0a needs 9.0 or less beside it" in finished.stderr
    checked = process.run(["cargo", "check"], cwd=made, env=process.environment(shared_target()))
    assert checked.code != 0
    assert 'cuda-capabilities such as ["8.0", "9.0a"], the lowest without a letter' in checked.stderr


@cuda
def test_an_architecture_of_its_own_has_ptx_of_its_own(combination: dict[str, str], tmp_path: Path) -> None:
    needs_cargo(combination)
    capabilities = ["9.0a", "8.0", "10.0", "12.0f"]
    report = make(tmp_path / "demo-kernel", Level.TEST, **combination, cuda_capabilities=capabilities)
    assert report.ok, report.steps
    assert sorted(file.name for file in (report.path / "kernels-ptx").iterdir()) == [
        "demo_kernel_device.ptx", "demo_kernel_device.sm_120f.ptx", "demo_kernel_device.sm_90a.ptx",
    ]  # fmt: skip
    for target in ("sm_90a", "sm_120f"):
        file = f"kernels-ptx/demo_kernel_device.{target}.ptx"
        assert f"\n.target {target}\n" in (report.path / file).read_text()
        assert f'"{file}"' in (report.path / "build.toml").read_text()
    library = next((report.path / "build").glob("*/*.so")).read_bytes()
    for target in (b"sm_80", b"sm_90a", b"sm_120f"):
        assert library.count(b"\n.target " + target + b"\n") == 1
    assert str(tmp_path).encode() not in library
    extra = report.path / "kernels-ptx/demo_kernel_device.sm_90a.ptx"
    extra.unlink()
    finished = process.run(["cargo", "check"], cwd=report.path)
    assert finished.code != 0
    assert "run `python kernels/build_ptx.py`" in finished.stderr


@needs_compiler
def test_the_ptx_command_rebuilds_and_checks(repository: Path, run: Run) -> None:
    assert run("ptx", repository, "--check").returncode == 0
    source = repository / "kernels/src/relu.rs"
    source.write_text(source.read_text().replace("{ 0.0 }", "{ 0.5 }"))
    stale = run("ptx", repository, "--check")
    assert stale.returncode == 1
    assert "older than its sources" in stale.stderr
    assert run("ptx", repository).returncode == 0
    assert run("ptx", repository, "--check").returncode == 0


def test_the_ptx_command_needs_device_code(cpu: Path, tmp_path: Path, run: Run) -> None:
    finished = run("ptx", cpu)
    assert finished.returncode == 1
    assert finished.stderr.endswith("has no device code\ntry: kernel-new add-backend rust-cuda\n")
    made = make(tmp_path / "cuda" / "demo-kernel", backend="rust-cuda").path
    (made / "kernels/build_ptx.py").unlink()
    assert run("ptx", made).stderr.endswith("has no device code\n"), "nothing would make it"


@pytest.mark.parametrize("count", [1, 2])
def test_what_was_built_is_said_before_what_was_not_checked(count: int, tmp_path: Path, run: Run) -> None:
    made = make(tmp_path / "demo-kernel", backend="rust-cuda").path
    written = [f"kernels-ptx/demo_kernel_device.{i}.ptx" for i in range(count)]
    script = "\n".join([*["print('No ptxas here.')"] * count, *(f"print({file!r}, 'built')" for file in written)])
    (made / "kernels/build_ptx.py").write_text(script)
    lines = [*(f"{file} built" for file in written), "No ptxas here."]
    assert run("ptx", made).stdout.splitlines() == lines
    screen = Console(width=100)
    with screen.capture() as capture:
        console.show_step(Step("ptx", detail="\n".join(lines)), screen)
    assert capture.get().splitlines() == [("✓ ptx    " if line == lines[0] else " " * 9) + line for line in lines]
