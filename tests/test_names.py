"""Answers that cannot work are refused before anything is written, with one that can."""

import keyword
import re
import shlex
import sys
from pathlib import Path

import pytest
from conftest import make

from kernel_new import template
from kernel_new.errors import UsageError

PATTERN = re.compile("^[a-z][-a-z0-9]*[a-z0-9]$")  # kernel-builder's
# https://doc.rust-lang.org/reference/keywords.html: strict, reserved and weak.
RUST = """as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod
move mut pub ref return self static struct super trait true type unsafe use where while abstract become box do
final gen macro override priv try typeof unsized virtual yield union""".split()
# cargo's restricted_names.rs: artifacts' directories, and crates that come with Rust.
CARGO = "build deps examples incremental alloc core proc-macro std test".split()
WINDOWS = "con prn aux nul com1 com9 lpt1 lpt9".split()
IMPORTED = "torch numpy kernels tvm-ffi jax pytest tests conftest".split()
CRATES = "rayon rayon-core tvm-ffi-sys tvm-ffi-macros syn proc-macro2 crossbeam-utils".split()
PYTHON = [word.lower() for word in [*keyword.kwlist, *keyword.softkwlist]]
STDLIB = [name.replace("_", "-") for name in sys.stdlib_module_names]
RESERVED = sorted({*RUST, *CARGO, *WINDOWS, *IMPORTED, *CRATES, *PYTHON, *STDLIB})


def refusal(directory: Path, **answers: object) -> UsageError:
    with pytest.raises(UsageError) as refused:
        make(directory / "kernel-new-test", **answers)
    assert list(directory.iterdir()) == [], "nothing is written"
    assert refused.value.hint, "something that works is proposed"
    return refused.value


@pytest.mark.parametrize("name", [name for name in RESERVED if PATTERN.match(name)])
def test_reserved_names_are_refused(name: str, tmp_path: Path) -> None:
    assert "belongs to" in refusal(tmp_path, name=name).message


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "x",
        "-",
        "Relu",
        "my_kernel",
        "1st",
        "a-",
        "-a",
        "a--b",
        "a b",
        "a.b",
        "a/b",
        "../up",
        "é",
        "a" * 65,
    ]
    + ["a\nb", "ab\n", 'a"b', "{{x}}", "«x»", "$(x)", "a" * 5000],
)
def test_malformed_names_are_refused(name: str, tmp_path: Path) -> None:
    refusal(tmp_path, name=name)


@pytest.mark.parametrize(
    "name", ["Relu", "fn", "json", "torch", "a--b", "9", "", "build", "a" * 65, "_-_", "ÄÖ", "con"]
)
def test_the_proposed_name_is_accepted(name: str, tmp_path: Path) -> None:
    flag, proposed = shlex.split(refusal(tmp_path, name=name).hint)
    assert flag == "--name"
    assert make(tmp_path / "made", name=proposed).ok


@pytest.mark.parametrize("name", ["aaa", "zzz", "tvm-ffh", "a1-b2-c3", "k2", "a" * 60, "rust", "gpu-relu"])
def test_good_names_are_accepted(name: str, tmp_path: Path) -> None:
    report = make(tmp_path / name)
    assert report.ok
    assert report.answers["name"] == name


def test_a_destination_that_cannot_name_a_kernel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="My_Kernel"):
        make(tmp_path / "My_Kernel")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "repo_id",
    [
        "",
        "kernel",
        "a/b/c",
        "/a",
        "a/",
        "a b/c",
        "a/b--c",
        "a/..",
        "a/b.git",
        "-a/b",
        "a/b-",
        "ö/x",
        "a/" + "b" * 96,
    ],
)
def test_malformed_repo_ids_are_refused(repo_id: str, tmp_path: Path) -> None:
    refusal(tmp_path, repo_id=repo_id)


@pytest.mark.parametrize("name", ["second-kernel", "a" * 64, "k2"])
def test_the_proposed_repo_id_is_that_of_the_kernel(name: str, tmp_path: Path) -> None:
    flag, proposed = shlex.split(refusal(tmp_path, name=name, repo_id=name).hint)
    assert (flag, proposed) == ("--repo-id", f"your-org/{name}")
    assert make(tmp_path / "made", name=name, repo_id=proposed).ok


@pytest.mark.parametrize("author", ["", " ", " Ada", "Ada ", "A\nB", "A\tB", "A\x00B", "A\u2028B", "A\x7fB", "A" * 201])
def test_malformed_authors_are_refused(author: str, tmp_path: Path) -> None:
    refusal(tmp_path, author=author)


@pytest.mark.parametrize(
    "author", ['a"b\\', "O'Neil & Söhne", "{{x}}{% raw %}", "$(id)`id`", "李四", "🦀", "<a@b.c>", "#: -"]
)
def test_any_other_author_is_written_as_it_is(author: str, tmp_path: Path) -> None:
    report = make(tmp_path / "made", author=author)
    assert f"Copyright {author}\n" in (report.path / "LICENSE").read_text(encoding="utf-8")
    assert report.answers["author"] == author


@pytest.mark.parametrize(
    "capabilities",
    [
        [],
        "8.0",
        [8.0],
        ["8"],
        ["sm_80"],
        ["8.0", "8.0"],
        ["80"],
        ["8.0 "],
        ["8.0x"],
        ["9.0a"],
        ["8.0", "8.6a"],
        ["7.5", "8.0"],
        {"a": "8.0"},
        None,
    ],
)
def test_malformed_capabilities_are_refused(capabilities: object, tmp_path: Path) -> None:
    refusal(tmp_path, backend="rust-cuda", cuda_capabilities=capabilities)


@pytest.mark.parametrize(
    "cuda_oxide",
    [
        "",
        "https://x/y",
        "https://x/y?rev=abc&toolchain=nightly",
        f"git@x:y?rev={'a' * 40}&toolchain=n",
        f"https://x/y?rev={'a' * 40}&toolchain=n\n",
    ],
)  # fmt: skip
def test_malformed_pins_of_cuda_oxide_are_refused(cuda_oxide: str, tmp_path: Path) -> None:
    refusal(tmp_path, backend="rust-cuda", device_compiler="cuda-oxide", cuda_oxide=cuda_oxide)


@pytest.mark.parametrize(("question", "value"), [("backend", "cuda"), ("kernel", "gelu"), ("license", "apache-2.0")])
def test_choices_are_checked(question: str, value: str, tmp_path: Path) -> None:
    assert f"{question} is none of" in refusal(tmp_path, **{question: value}).message


def test_names_of_locked_crates_are_refused(tmp_path: Path) -> None:
    for file in (template.root() / "templates" / "lock").iterdir():
        names = re.findall(r'^name = "(.+)"$', file.read_text(encoding="utf-8"), re.MULTILINE)
        for name in names:
            if PATTERN.match(name):
                refusal(tmp_path, name=name)
