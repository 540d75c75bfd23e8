"""The sources that build.toml lists are those that cargo compiles, or the build says which are not."""

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import make
from template_history import edit, replace

from kernel_new import cargo, sources
from kernel_new.errors import KernelNewError
from kernel_new.project import Project

LISTED = """
  "./src/relu.rs",
  "data/table one.txt",
  "shared/Cargo.toml",
  "shared/src/lib.rs",
"""
RunJson = Callable[..., dict[str, Any]]
ONE_OR_TWO = [
    {"backend": "rust-cpu"},
    {"backend": "rust-cuda", "kernel": "flash-attn2"},
    {"backend": "rust-cpu", "second_backend": "rust-cuda"},
    {"backend": "rust-cuda", "second_backend": "rust-cpu"},
    {"backend": "rust-cuda", "second_backend": "rust-cpu", "kernel": "flash-attn2"},
]


@pytest.fixture(scope="module", params=ONE_OR_TWO, ids=lambda answers: "-".join(answers.values()))
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a blank in its path; its build.toml is put back by whoever changes it."""
    return make(tmp_path_factory.mktemp("a b") / "demo-kernel", **request.param).path


def libraries(repository: Path) -> Iterator[tuple[str, list[str], Path]]:
    """Each table with its features, once the library is built with them."""
    for name, table in tomllib.loads((repository / "build.toml").read_text())["kernel"].items():
        features = table.get("features", [])
        built = cargo.build(repository, options=[f"--features={feature}" for feature in features])
        yield name, features, built.library


def test_each_source_that_is_not_listed_is_named(built: Path) -> None:
    """And none that is, nor what another table has."""
    file, text = built / "build.toml", (built / "build.toml").read_text()
    for name, features, library in libraries(built):
        sources.check_listed(Project.read(built))
        sources.check_compiled(Project.read(built), features, library)
        head, _, table = text.partition(f"[kernel.{name}]")
        for source in tomllib.loads(text)["kernel"][name]["src"]:
            file.write_text(f"{head}[kernel.{name}]" + table.replace(f'  "{source}",\n', "", 1))
            with pytest.raises(KernelNewError) as refused:
                sources.check_compiled(Project.read(built), features, library)
            assert f"[kernel.{name}]" in refused.value.message
            assert refused.value.message.endswith(f"compiled from: {source}")
            assert refused.value.hint.splitlines() == [
                f"Add to src of [kernel.{name}] in {file}:",
                f'  "{source}",',
            ]
        file.write_text(text)


@pytest.mark.parametrize("command", [["verify"], ["build", "--local"]])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('  "src/relu.rs",\n', "", "does not list in src of [kernel.demo_kernel] what the library is compiled from"),
        ("src/relu.rs", "src/rleu.rs", "lists in src of [kernel.demo_kernel] what is no file: src/rleu.rs"),
        ("src/relu.rs", "src", "lists in src of [kernel.demo_kernel] what is no file: src"),
    ],
)
def test_it_is_a_build_that_failed(
    old: str, new: str, said: str, command: list[str], cpu: Path, run_json: RunJson
) -> None:
    replace(cpu / "build.toml", old, new)
    document = run_json(*command, cpu)
    failed = [step for step in document["steps"] if not step["ok"]]
    assert [step["name"] for step in failed] == ["build"]
    assert said in failed[0]["detail"]


def test_what_the_author_includes_is_a_source_and_what_is_generated_is_none(cpu: Path, run_json: RunJson) -> None:
    (cpu / "data").mkdir()
    (cpu / "shared/src").mkdir(parents=True)
    edit(cpu / "data/table one.txt", "1\n")
    edit(cpu / "shared/Cargo.toml", '[package]\nname = "shared"\nversion = "0.1.0"\nedition = "2024"\n')
    edit(cpu / "shared/src/lib.rs", "pub const TWO: u8 = 2;\n")
    replace(cpu / "Cargo.toml", "[dependencies]\n", '[dependencies]\nshared = { path = "shared" }\n')
    replace(cpu / "build.rs", "fn main() {\n", "fn main() {\n    generate();\n")
    (cpu / "build.rs").write_text(
        (cpu / "build.rs").read_text() + '\nfn generate() {\n    let out = std::env::var("OUT_DIR").unwrap();\n'
        '    std::fs::write(format!("{out}/generated.rs"), "pub const THREE: u8 = 3;").unwrap();\n}\n'
    )
    with (cpu / "src/lib.rs").open("a") as library:
        library.write('\npub const ONE: &str = include_str!("../data/table one.txt");\npub use shared::TWO;\n')
        library.write('include!(concat!(env!("OUT_DIR"), "/generated.rs"));\n')
    assert cargo.resolve(cpu) is None
    document = run_json("verify", cpu, "--level=build")
    detail = document["steps"][0]["detail"]
    assert detail.endswith("compiled from: data/table one.txt, shared/Cargo.toml, shared/src/lib.rs"), detail
    replace(cpu / "build.toml", '  "src/relu.rs",\n', LISTED)
    assert run_json("verify", cpu, "--level=build")["ok"]


def test_ptx_of_a_capability_that_is_no_longer_declared_is_no_source(tmp_path: Path) -> None:
    made = make(tmp_path / "demo-kernel", backend="rust-cuda", cuda_capabilities=["8.0", "9.0a"]).path
    replace(made / "build.toml", ', "9.0a"', "")
    replace(made / "build.toml", '  "kernels-ptx/demo_kernel_device.sm_90a.ptx",\n', "")
    for _, features, library in libraries(made):
        sources.check_compiled(Project.read(made), features, library)
