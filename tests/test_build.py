"""`kernel-new build`: what it lays out, that it is what kernel-builder would have made, and what it refuses."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, committed, git, identities, make, shared_target, tree
from kernels._rust import Digest, DigestAlgorithm

from kernel_new import build, card, cargo, crossbuild, layout, metadata, process, record, release_check, targets, verify
from kernel_new.errors import CommandError, KernelNewError, MissingToolError
from kernel_new.loading import symbols
from kernel_new.project import Project
from kernel_new.report import Level, Quiet, Report
from kernel_new.targets import Platform

BUILDER = os.environ.get("KERNEL_BUILDER") or shutil.which("kernel-builder")
needs_builder = pytest.mark.skipif(not BUILDER, reason="kernel-builder is not installed")
HERE = targets.here()
pytestmark = pytest.mark.skipif(HERE is None, reason="kernels are built for Linux on x86-64 and aarch64 only")


rust_cpu = pytest.mark.parametrize("released", ["rust-cpu"], indirect=True)
"""For tests to which the backend makes no difference."""


def test_every_declared_variant_is_built_and_proven(released: Path) -> None:
    document = json.loads((released.parent / "report.json").read_text())
    assert document["ok"], document
    names = [step["name"] for step in document["steps"]]
    computes = ["cpu"] if Project.read(released).backend == "cpu" else ["cu126", "cu130", "cu132"]
    assert [path.name for path in layout.variants(released / "build")] == [
        f"tvm-ffi01-{compute}-{HERE}" for compute in computes
    ]
    proof = ["load"] * len(computes) + ["test"] * (computes == ["cpu"])
    assert names == [*(["ptx"] * (computes != ["cpu"])), "build", "card", "layout", *proof, "check"]
    assert document["files"] == sorted(f"build/{name}" for name in tree(released / "build"))
    assert not list((released / "build").glob(".staging-*"))
    if computes == ["cpu"]:
        tested = next(step["detail"] for step in document["steps"] if step["name"] == "test")
        assert "passed" in tested
        assert "on a build for this machine" not in tested


def test_the_layout_is_that_of_kernel_builder(released: Path) -> None:
    project = Project.read(released)
    head, of_tree = git(released, "rev-parse", "HEAD", "HEAD^{tree}").split()
    for variant in layout.variants(released / "build"):
        unique = f"_demo_kernel_{project.backend}_{of_tree[:7]}"
        library = variant / f"{unique}.so"
        python = {str(file.relative_to(project.package)) for file in project.package.rglob("*.py")} | {"_ops.py"}
        assert "layers/__init__.py" in python
        assert set(tree(variant)) == {*python, library.name, "metadata.json"}
        assert stat.S_IMODE(library.stat().st_mode) == 0o755
        assert stat.S_IMODE((variant / "__init__.py").stat().st_mode) == 0o644
        assert f'NAME = "{unique}"' in (variant / "_ops.py").read_text()
        found = json.loads((variant / "metadata.json").read_text())
        assert found["id"] == unique
        assert found["provenance"]["kernel"] == {"commit": head, "dirty": False}
        assert found["digest"]["files"] == Digest.hash_variant(DigestAlgorithm.SHA256, variant).files
        assert found["backend"].get("archs", []) == project.capabilities


@rust_cpu
def test_what_runs_here_is_tested_itself(released: Path, tmp_path: Path) -> None:
    assert verify.is_chosen(released / "build")
    assert not verify.is_chosen(tmp_path)


def test_cuda_sets_share_one_library(released: Path) -> None:
    assert len({library.read_bytes() for library in released.glob("build/*/*.so")}) == 1


def test_each_variant_loads_through_kernels(released: Path) -> None:
    """By path, and, where its backend is at hand, as the one that `kernels` chooses."""
    code = "import kernels, pathlib, sys\nfor path in sys.argv[1:]: print(kernels.get_local_kernel(pathlib.Path(path)))"
    variants = [str(path) for path in layout.variants(released / "build")]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    loaded = subprocess.check_output([sys.executable, "-c", code, *variants], text=True, env=environment)
    assert loaded.count("<module") == len(variants)
    if Project.read(released).backend == "cpu":
        chosen = (
            "import kernels, numpy, pathlib\n"
            f"kernel = kernels.get_local_kernel(pathlib.Path({str(released)!r}), backend='cpu')\n"
            "print(kernel.relu(numpy.array([-1, 2], 'f4')))"
        )
        assert subprocess.check_output([sys.executable, "-c", chosen], text=True, env=environment) == "[0. 2.]\n"


@needs_builder
@pytest.mark.parametrize("command", ["check-builds", "hash", "check-abi"])
def test_kernel_builder_accepts_the_build_and_would_write_the_same(command: str, release: Path) -> None:
    before = tree(release / "build")
    finished = process.run([str(BUILDER), command, str(release)])
    assert finished.code == 0, finished.stdout + finished.stderr
    assert tree(release / "build") == before


@needs_builder
def test_metadata_and_card_are_those_of_kernel_builder(release: Path) -> None:
    """All but what says which program built it, and the digest, which it adds later."""
    project = Project.read(release)
    assert process.run([str(BUILDER), "create-pyproject", str(release)]).code == 0
    theirs = json.loads((release / f"metadata-{project.backend}.json").read_text())
    for variant in layout.variants(release / "build"):
        ours = json.loads((variant / "metadata.json").read_text())
        del ours["digest"]
        assert ours["provenance"].pop("kernel-builder")["version"].startswith("kernel-new ")
        theirs["provenance"].pop("kernel-builder", None)
        archs = ours["backend"].pop("archs", [])
        assert archs == project.capabilities
        assert (list(ours), ours) == (list(theirs), theirs)
    filled = process.run([str(BUILDER), "fill-card", str(release)])
    assert filled.stdout == (release / "build/CARD.md").read_text()


@rust_cpu
def test_two_builds_of_one_commit_are_byte_identical(released: Path, tmp_path: Path, run: Run) -> None:
    clone = tmp_path / "deeper/than/before/other-name"
    git(tmp_path, "clone", "--quiet", str(released), str(clone))
    environment = {**os.environ, "RUSTFLAGS": "-Ctarget-cpu=native", "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1"}
    finished = run("build", clone, "--verify", "none", env=environment)
    assert finished.returncode == 0, finished.stderr
    (variant,) = layout.variants(clone / "build")
    assert tree(variant) == tree(released / "build" / variant.name)
    assert (clone / "build/CARD.md").read_bytes() == (released / "build/CARD.md").read_bytes()


def test_no_directory_of_this_machine_is_in_a_library(released: Path) -> None:
    for library in released.glob("build/*/*.so"):
        content = library.read_bytes()
        for directory in (released, Path(os.environ["CARGO_HOME"]), Path(os.environ["HOME"])):
            assert os.fsencode(directory) not in content


@rust_cpu
def test_another_platform_is_built_here(released: Path, tmp_path: Path, run: Run) -> None:
    other = next(platform for platform in Platform if platform is not HERE)
    try:
        crossbuild.require(Project.read(released), other, False)
    except MissingToolError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    made = committed(tmp_path / "demo-kernel")
    finished = run(
        "build", made, "--platform", other, "--verify", "load", "--release-check", env=os.environ | shared_target()
    )
    assert finished.returncode == 0, finished.stderr
    assert "cannot load libraries of another platform" in finished.stderr
    (library,) = made.glob(f"build/tvm-ffi01-cpu-{other}/*.so")
    exports, needed = symbols(library) or ([], [])
    assert exports == ["__tvm_ffi_relu"]
    assert {"libtvm_ffi.so", "libc.so.6"} <= set(needed)
    if BUILDER:
        for command in ("check-builds", "check-abi"):
            assert process.run([BUILDER, command, str(made)]).code == 0


def test_a_platform_without_rusts_library_names_the_command_that_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project.read(make(tmp_path / "demo-kernel").path)
    for name, script in {
        "cargo": "echo cargo 1.95.0",
        "rustc": "case $1 in -*n) echo /none;; *) echo rustc 1.95.0;; esac",
    }.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n".replace("-*n)", "--print)"))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="standard library for aarch64-linux") as raised:
        crossbuild.require(project, Platform.AARCH64, False)
    assert raised.value.hint == "rustup target add aarch64-unknown-linux-gnu"


@pytest.mark.parametrize("missing", ["cargo-zigbuild", "zig"])
def test_without_zig_the_command_that_gets_it_is_named(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project.read(make(tmp_path / "demo-kernel").path)
    assert HERE is not None
    if missing == "zig":
        monkeypatch.setattr(crossbuild, "_zig", lambda: None)
    else:
        which = shutil.which
        monkeypatch.setattr(
            shutil, "which", lambda name, path=None: None if name == missing else which(name, path=path)
        )
    with pytest.raises(MissingToolError) as raised:
        crossbuild.require(project, HERE, False)
    assert "-m pip install cargo-zigbuild ziglang kernel-abi-check" in raised.value.hint
    assert "kernel-new build --local" in raised.value.hint
    crossbuild.require(project, HERE, True)


def test_a_local_build_is_for_this_machine_only(tmp_path: Path) -> None:
    project = Project.read(make(tmp_path / "demo-kernel").path)
    other = next(platform for platform in Platform if platform is not HERE)
    with pytest.raises(KernelNewError, match="another") as raised:
        crossbuild.require(project, other, True)
    assert raised.value.hint == "Leave --local out."


# How a build goes, with a compiler that only hands over a library that was built before.


@pytest.fixture
def compiled(release: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], None]]]:
    """Replaces compiling and proving; what is in the list is called while the build goes on."""
    library = next(release.glob("build/*/*.so"))
    content = library.read_bytes()
    work: list[Callable[[], None]] = []

    def compile_crate(*arguments: Any) -> cargo.Built:
        kept = release.parent / "library.so"
        kept.write_bytes(content)
        return cargo.Built(kept, ())

    def test(project: Project, variants: Path | None) -> str:
        for call in work:
            call()
        return "passed"

    monkeypatch.setattr(crossbuild, "compile_crate", compile_crate)
    monkeypatch.setattr(verify, "test", test)
    monkeypatch.setattr(verify, "is_chosen", lambda variants: False)
    return iter([work]).__next__()


def built(path: Path, **options: Any) -> Report:
    return build.build(Project.read(path), build.Request(**options), Quiet())


@rust_cpu
def test_a_failing_step_leaves_build_as_it_was(release: Path, compiled: list[Callable[[], None]]) -> None:
    before = tree(release / "build")

    def fail() -> None:
        raise CommandError("1 failed")

    compiled.append(fail)
    report = built(release, release_check=True)
    assert [(step.name, step.ok, step.skipped) for step in report.steps[-2:]] == [
        ("test", False, False),
        ("check", True, True),
    ]
    assert tree(release / "build") == before
    assert report.files == []


def test_what_the_tests_stage_does_not_remain(release: Path, compiled: list[Callable[[], None]]) -> None:
    def stage() -> None:
        for name in (f"tvm-ffi01-cpu-{HERE}", f"tvm-ffi01-cu130-{HERE}", "tvm-ffi01-cpu-aarch64-darwin"):
            (release / "build" / name).mkdir(exist_ok=True)
            (release / "build" / name / "metadata.json").write_text("{}")

    before = tree(release / "build")
    compiled.append(stage)
    report = built(release)
    assert report.ok, report.steps
    assert tree(release / "build").keys() == before.keys()


@rust_cpu
@pytest.mark.parametrize("part", ["", "metadata.json", "__init__.py"])
def test_what_the_tests_take_away_comes_back(part: str, release: Path, compiled: list[Callable[[], None]]) -> None:
    (variant,) = release.glob("build/*/")
    before = tree(release / "build")

    def fail() -> None:
        lost = variant / part
        shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
        raise CommandError("1 failed")

    compiled.append(fail)
    assert not built(release).ok
    assert tree(release / "build") == before


@rust_cpu
def test_what_is_there_can_be_loaded_while_it_builds(release: Path, compiled: list[Callable[[], None]]) -> None:
    """By tests in another terminal, and after a failure as before."""
    before = identities(release / "build")

    def fail() -> None:
        found = identities(release / "build")
        assert {file: found.get(file) for file in before} == before
        raise CommandError("1 failed")

    compiled.append(fail)
    assert built(release).steps[-1].detail == "1 failed"
    assert identities(release / "build") == before


@rust_cpu
def test_a_source_that_changes_meanwhile_is_noticed(release: Path, compiled: list[Callable[[], None]]) -> None:
    source = release / "src/relu.rs"
    before = tree(release / "build")
    compiled.append(lambda: source.write_text(source.read_text() + "// changed\n") and None)
    with pytest.raises(KernelNewError, match="was changed while it was built"):
        built(release)
    assert tree(release / "build") == before


def test_variants_of_other_platforms_stay(release: Path, compiled: list[Callable[[], None]]) -> None:
    other = release / "build/tvm-ffi01-cpu-riscv64-linux"
    stale = release / f"build/tvm-ffi01-cu118-{HERE}"
    for directory in (other, stale):
        directory.mkdir()
        (directory / "metadata.json").write_text("{}")
    assert built(release).ok
    assert (other / "metadata.json").read_text() == "{}"
    assert not stale.exists()


def test_uncommitted_changes_are_recorded(release: Path, compiled: list[Callable[[], None]]) -> None:
    source = release / "src/relu.rs"
    source.write_text(source.read_text() + "// changed\n")
    assert built(release).ok
    for variant in layout.variants(release / "build"):
        found = json.loads((variant / "metadata.json").read_text())
        assert found["provenance"]["kernel"]["dirty"] is True
        assert found["id"].endswith("_dirty")
        assert (variant / f"{found['id']}.so").is_file()


@rust_cpu
def test_an_interrupt_leaves_build_as_it_was(release: Path, compiled: list[Callable[[], None]]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    before = tree(release / "build")
    compiled.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        built(release)
    assert tree(release / "build") == before


@rust_cpu
def test_a_broken_manifest_is_explained(release: Path, run: Run) -> None:
    before = tree(release / "build")
    (release / "Cargo.toml").write_text("[package\n")
    finished = run("build", release)
    assert finished.returncode == 1
    assert "cargo cannot read the crate" in finished.stderr
    assert f"{release / 'build'} is as it was" in finished.stdout
    assert "Traceback" not in finished.stderr
    assert tree(release / "build") == before
    quiet = run("build", release, "--quiet")
    assert "cargo cannot read the crate" in quiet.stderr
    assert quiet.stdout == ""


# Which sources a build is of.


def identity(path: Path) -> metadata.Identity:
    project = Project.read(path)
    return metadata.identify(project, record.sources(project))


def test_a_source_that_git_does_not_track_is_uncommitted(tmp_path: Path) -> None:
    made = committed(tmp_path / "demo-kernel")
    assert not identity(made).dirty
    (made / "notes.txt").write_text("no source")
    assert not identity(made).dirty
    (made / "tvm-ffi-ext/demo_kernel/more.py").write_text("")
    assert identity(made).dirty


def test_without_a_commit_a_digest_of_the_sources_names_the_build(tmp_path: Path) -> None:
    made = make(tmp_path / "demo-kernel").path
    before = identity(made)
    assert (before.commit, len(before.unique)) == (None, 7)
    assert identity(made) == before
    (made / "src/relu.rs").write_text("")
    assert identity(made).unique != before.unique


# What build.toml declares.


def declared(tmp_path: Path, change: Callable[[str], str], **answers: Any) -> Project:
    made = make(tmp_path / "demo-kernel", **answers).path
    file = made / "build.toml"
    file.write_text(change(file.read_text()))
    return Project.read(made)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('dsl = "rust"\n', "", "is not Rust"),
        ('backends = ["cpu"]', 'backends = ["rocm"]', "declares the backend rocm"),
        ('backends = ["cpu"]', 'backends = ["cpu", "cuda"]', "has 0 kernels for cuda"),
        ('  "Cargo.toml",\n', "", "names no Cargo.toml"),
    ],
)
def test_what_cannot_be_built_is_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(KernelNewError, match=said) as raised:
        targets.kernels(declared(tmp_path, lambda text: text.replace(old, new)))
    assert raised.value.hint


def test_both_backends_of_one_crate_are_built(tmp_path: Path) -> None:
    more = '\n[kernel.both]\nbackend = "cuda"\ndsl = "rust"\ndepends = []\nfeatures = ["cuda"]\nsrc = ["Cargo.toml"]\n'
    project = declared(tmp_path, lambda text: text.replace('["cpu"]', '["cpu", "cuda"]') + more)
    kernels = targets.kernels(project)
    assert [(kernel.backend, kernel.manifest, kernel.features) for kernel in kernels] == [
        ("cpu", "Cargo.toml", ()),
        ("cuda", "Cargo.toml", ("cuda",)),
    ]


def test_cuda_versions_outside_of_the_declared_ones_are_left_out(tmp_path: Path) -> None:
    limits = '\n[general.cuda]\nminver = "12.8"\nmaxver = "13.0"\n'
    project = declared(tmp_path, lambda text: text + limits, backend="rust-cuda")
    found = targets.variants(project, "cuda", Platform.AARCH64)
    assert [variant.name for variant in found] == ["tvm-ffi01-cu130-aarch64-linux"]


@pytest.mark.parametrize(
    ("limit", "said"), [('minver = "new"', "Invalid version"), ('minver = "99.0"', "leaves none of")]
)
def test_limits_that_leave_no_cuda_version_are_explained(limit: str, said: str, tmp_path: Path) -> None:
    project = declared(tmp_path, lambda text: f"{text}\n[general.cuda]\n{limit}\n", backend="rust-cuda")
    with pytest.raises(KernelNewError, match=said) as raised:
        targets.variants(project, "cuda", Platform.X86_64)
    assert raised.value.hint


def test_dependencies_and_addresses_are_in_the_metadata(tmp_path: Path) -> None:
    more = (
        'python-depends = ["einops"]\nupstream = "git@github.com:a/b.git"\n'
        'kernel-depends = [{ repo-id = "a/b", version = 2 }]\n'
    )
    project = declared(tmp_path, lambda text: text.replace('backends = ["cpu"]\n', f'backends = ["cpu"]\n{more}'))
    directory = tmp_path / "variant"
    directory.mkdir()
    (kernel,) = targets.kernels(project)
    document = json.loads(metadata.document(project, kernel, identity(project.path), directory))
    assert document["python-depends"] == ["einops"]
    assert document["kernel-depends"] == [{"repo-id": "a/b", "version": 2}]
    assert document["upstream"] == "git@github.com:a/b.git"
    if BUILDER:
        assert process.run([BUILDER, "create-pyproject", str(project.path)]).code == 0
        theirs = json.loads((project.path / "metadata-cpu.json").read_text())
        for found in (theirs, document):
            for key in ("id", "provenance", "digest"):
                found.pop(key, None)
        assert document == theirs


# The card.

CARDS = [
    "{{ repo_id }} {{version}}\n\n",
    "{% if functions %}\n{% for f in functions %}\n- {{ f }} {{ loop.index }}\n{% endfor %}\n{% endif %}\nend\n",
    "{{ upstream }} {{ source }} {{ layers }} {{ has_benchmark }} {{ nothing }}.",
    "{{ license }} <b> & \"quotes\" {{ '<i>' }}\n{# a comment #}\ntail",
    "  {% if source %}\n  {{ source }}\n  {% endif %}\n",
]


@pytest.mark.parametrize("template", CARDS)
@pytest.mark.parametrize("exported", ['__all__ = ["relu", "layers"]', "__all__ = ('relu',)", "def broken(", ""])
@needs_builder
def test_a_card_is_filled_in_as_kernel_builder_does(template: str, exported: str, tmp_path: Path) -> None:
    source = 'source = "git@github.com:a/b.git"\n'
    project = declared(tmp_path, lambda text: text.replace('backends = ["cpu"]\n', f'backends = ["cpu"]\n{source}'))
    (project.path / "CARD.md").write_text(template)
    (project.package / "__init__.py").write_text(exported)
    finished = process.run([str(BUILDER), "fill-card", str(project.path)])
    assert finished.code == 0, finished.stderr
    assert card.fill(project) == finished.stdout


def test_a_card_that_cannot_be_filled_in_is_explained(tmp_path: Path) -> None:
    project = declared(tmp_path, lambda text: text)
    (project.path / "CARD.md").write_text("fine\n{% if %}\n")
    with pytest.raises(KernelNewError, match=r"CARD\.md, line 2 cannot be filled in"):
        card.fill(project)
    nowhere = declared(tmp_path / "other", lambda text: text.replace("[general.hub]\n", "").replace("repo-id", "#"))
    with pytest.raises(KernelNewError, match="does not say where on the Hub"):
        card.fill(nowhere)


# The release check.


def problems(variant: Path) -> str:
    with pytest.raises(CommandError) as raised:
        release_check.check([variant])
    assert raised.value.hint == "Build it anew, without --local: kernel-new build --release-check"
    return raised.value.output


def write_metadata(variant: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    file = variant / "metadata.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


@rust_cpu
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda v: (v / "relu.py").write_text("1 / 0"), "relu.py was changed after it was built"),
        (lambda v: (v / "more.py").write_text(""), "more.py is not in its digest"),
        (lambda v: (v / "__init__.py").unlink(), "it has no __init__.py"),
        (lambda v: next(v.glob("*.so")).unlink(), "it has no library"),
        (lambda v: next(v.glob("*.so")).write_text("text"), "is no library for Linux"),
        (lambda v: (v / "metadata.json").write_text("{}"), "metadata.json is not what kernels reads"),
        (lambda v: write_metadata(v, lambda d: d.pop("license")), "license"),
        (lambda v: write_metadata(v, lambda d: d.pop("digest")), "metadata.json has no digest"),
    ],
)
def test_what_the_hub_would_refuse_is_found(damage: Callable[[Path], Any], said: str, release: Path) -> None:
    (variant,) = layout.variants(release / "build")
    release_check.check([variant])
    damage(variant)
    assert said in problems(variant)


@rust_cpu
def test_a_library_of_another_machine_is_found(release: Path) -> None:
    (variant,) = layout.variants(release / "build")
    renamed = variant.rename(variant.with_name("tvm-ffi01-cpu-s390x-linux"))
    assert f"is built for {HERE.machine if HERE else ''}" in problems(renamed)


@rust_cpu
def test_a_library_for_a_newer_glibc_is_found(release: Path, built_cpu: Path) -> None:
    """What cargo alone links here, where glibc is newer than 2.28."""
    plain = built_cpu / "target/release/libdemo_kernel.so"
    if b"GLIBC_2.34" not in plain.read_bytes():
        pytest.skip("this machine's glibc is old enough for the Hub")
    (variant,) = layout.variants(release / "build")
    shutil.copyfile(plain, next(variant.glob("*.so")))
    assert "needs GLIBC_2.34, which manylinux_2_28 has not, for " in problems(variant)


def test_without_kernel_abi_check_the_command_that_gets_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kernel_abi_check", None)
    with pytest.raises(MissingToolError) as raised:
        release_check.check([])
    assert "pip install cargo-zigbuild ziglang kernel-abi-check" in raised.value.hint


def test_a_record_that_is_spoilt_says_nothing(tmp_path: Path) -> None:
    for content in ("", "[]", '{"a": 1}', '{"a": {"level": "no such level"}}'):
        (tmp_path / record.FILE).write_text(content)
        assert record.read(tmp_path) == {}
    entry = record.Entry(hashlib.sha256(b"").hexdigest(), Level.TEST, True, {"build.toml": "0"})
    record.write(tmp_path, {"variant": entry})
    assert record.read(tmp_path) == {"variant": entry}
