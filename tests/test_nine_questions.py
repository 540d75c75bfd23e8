"""What the reviewers of the first Rust kernels asked, answered by every emitted repository."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from conftest import COMBINATIONS, combination_id, make, ops, tree

from kernel_new.loading import symbols
from kernel_new.report import Report

CUDA = [combination for combination in COMBINATIONS if combination["backend"] == "rust-cuda"]
everywhere = pytest.mark.parametrize("combination", COMBINATIONS, ids=combination_id)
cuda = pytest.mark.parametrize("combination", CUDA, ids=combination_id)


def files(directory: Path) -> dict[str, str]:
    return {file: text.decode() for file, text in tree(directory).items()}


def test_1_the_library_exports_only_its_ops(proven: Report) -> None:
    found = symbols(next((proven.path / "build").glob("*/*.so")))
    assert found is not None
    assert found[0] == [f"__tvm_ffi_{op}" for op in ops(proven.path)]


@everywhere
def test_2_the_ptx_directory_is_the_standard_one(combination: dict[str, str], tmp_path: Path) -> None:
    made = make(tmp_path / "demo-kernel", **combination).path
    assert "ptx-dir" not in (made / "build.toml").read_text()
    assert (made / "kernels-ptx").is_dir() == (combination["backend"] == "rust-cuda")


@cuda
def test_3_the_device_crate_has_a_standard_name_and_place(combination: dict[str, str], tmp_path: Path) -> None:
    made = make(tmp_path / "demo-kernel", **combination).path
    assert tomllib.loads((made / "kernels/Cargo.toml").read_text())["package"]["name"] == "demo-kernel-device"
    workspace = tomllib.loads((made / "Cargo.toml").read_text())["workspace"]
    assert workspace == {"members": ["kernels"], "default-members": ["."]}


@everywhere
def test_4_sources_are_listed_one_by_one(combination: dict[str, str], tmp_path: Path) -> None:
    made = make(tmp_path / "demo-kernel", **combination).path
    (kernel,) = tomllib.loads((made / "build.toml").read_text())["kernel"].values()
    assert all((made / source).is_file() for source in kernel["src"])
    assert len(set(kernel["src"])) == len(kernel["src"])


@cuda
def test_5_the_device_crate_is_a_library(combination: dict[str, str], tmp_path: Path) -> None:
    made = make(tmp_path / "demo-kernel", **combination).path
    assert (made / "kernels/src/lib.rs").is_file()
    assert not list(made.rglob("main.rs"))
    assert not [file for file, text in files(made).items() if file.endswith(".rs") and "no_main" in text]


@everywhere
def test_6_each_pin_stands_in_one_place(combination: dict[str, str], tmp_path: Path) -> None:
    emitted = files(make(tmp_path / "demo-kernel", **combination).path)
    derived = ("Cargo.lock", ".copier-answers.yml")
    written = {file: text for file, text in emitted.items() if file not in derived and not file.endswith(".ptx")}
    assert [file for file, text in written.items() if '"=0.1.15"' in text] == ["Cargo.toml"]
    if combination["backend"] == "rust-cuda":
        (channel,) = re.findall(r'channel = "(.+)"', emitted["kernels/rust-toolchain.toml"])
        assert [file for file, text in written.items() if channel in text] == ["kernels/rust-toolchain.toml"]
    revision = "a105afd522b73a6712a802e30bd900cd04cc8019"
    places = [file for file, text in written.items() if revision in text]
    # Nix has no way to read its inputs from another file.
    expected = ["flake.nix", "kernels/Cargo.toml"] if combination.get("device_compiler") == "cuda-oxide" else []
    assert places == expected


def test_7_nothing_of_cuda_is_linked(proven: Report) -> None:
    found = symbols(next((proven.path / "build").glob("*/*.so")))
    assert found is not None
    assert [name for name in found[1] if not re.match(r"lib(tvm_ffi|gcc_s|c|m)\.so|ld-linux", name)] == []
    dynamic = subprocess.run(
        ["cargo", "tree", "--locked", "--prefix=none"], cwd=proven.path, capture_output=True, text=True
    )
    assert not re.search(r"^(cust|cuda-sys|rustacuda|nvidia)", dynamic.stdout, re.MULTILINE)


@everywhere
def test_8_there_is_one_toolchain_file_and_it_is_the_device_crates(combination: dict[str, str], tmp_path: Path) -> None:
    emitted = files(make(tmp_path / "demo-kernel", **combination).path)
    expected = ["kernels/rust-toolchain.toml"] if combination["backend"] == "rust-cuda" else []
    assert [file for file in emitted if Path(file).name.startswith("rust-toolchain")] == expected


@everywhere
def test_9_nothing_leaks_into_another_build(combination: dict[str, str], tmp_path: Path) -> None:
    emitted = files(make(tmp_path / "demo-kernel", **combination).path)
    assert not [file for file in emitted if file.startswith(".cargo/") or "CMake" in file]
    assert "RUSTFLAGS" not in emitted["Cargo.toml"] + emitted["build.toml"] + emitted["build.rs"]
