"""Emitted kernels in torch and JAX: their own tests, two in one process, and the page about it.

KERNEL_NEW_FRAMEWORKS names a directory with both, made by `pip install --target DIRECTORY torch jax jax-tvm-ffi`.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pages
import pytest
from conftest import make, shared_target
from template_history import commit
from test_readme import blocks, replace_functions

from kernel_new import layout
from kernel_new.add import Request, add
from kernel_new.report import Level, Quiet

FRAMEWORKS = os.environ.get("KERNEL_NEW_FRAMEWORKS")
needs_frameworks = pytest.mark.skipif(not FRAMEWORKS, reason="KERNEL_NEW_FRAMEWORKS is not set")
PAGE = Path(__file__).parent.parent / "docs/how-to/torch-and-jax.md"


def python(*arguments: str, cwd: Path) -> str:
    """What Python prints where torch and JAX can be imported."""
    environment = {**os.environ, **shared_target(), "PYTHONPATH": str(FRAMEWORKS), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, *arguments]
    finished = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-5000:] + finished.stderr[-5000:]
    return finished.stdout


@needs_frameworks
def test_every_starter_has_the_manners_of_torch_and_jax_under_any_name(tmp_path: Path) -> None:
    """The emitted tests pass in one repository with all of them, and only CUDA graphs are skipped."""
    made = make(tmp_path / "demo-kernel").path
    for kernel, op in (("rms-norm", None), ("flash-attn2", "my_attention"), ("relu", "silu")):
        commit(made)
        assert add(Request(made, kernel, op, Level.NONE), Quiet()).ok
    printed = python("-m", "pytest", "-q", "-rs", "-k", "torch or jax", cwd=made)
    assert re.search(r"^\d{3,} passed", printed, re.MULTILINE), printed
    skipped = [line for line in printed.splitlines() if line.startswith("SKIPPED")]
    assert all("CUDA graphs are for CUDA devices" in line for line in skipped), skipped
    for op in ("relu", "rms_norm", "my_attention", "silu"):
        for framework in ("torch", "jax"):
            assert (made / f"tests/test_{op}_{framework}.py").is_file()
    code = (
        "import kernels, pathlib; print(kernels.get_local_kernel(next(pathlib.Path('build').iterdir())).layers.__all__)"
    )
    assert python("-c", code, cwd=made) == "['MyAttention', 'RMSNorm', 'ReLU', 'Silu']\n"


@pytest.fixture(scope="module")
def variant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A staged variant of the relu starter."""
    made = make(tmp_path_factory.mktemp("frameworks") / "my-kernel", Level.LOAD).path
    return next((made / "build").iterdir())


def other_build(variant: Path, directory: Path) -> Path:
    """The variant as another build of the same kernel would be, with another id."""
    copy = directory / variant.name
    shutil.copytree(variant, copy)
    (library,) = variant.glob("*.so")
    other = f"{library.stem[:-8]}01234567"
    (copy / library.name).rename(copy / f"{other}.so")
    for file in ("_ops.py", "metadata.json"):
        (copy / file).write_text((copy / file).read_text().replace(library.stem, other))
    return copy


@needs_frameworks
@pytest.mark.parametrize("kernel", ["relu", "rms-norm"])
def test_the_first_change_of_the_readme_holds_in_torch(kernel: str, tmp_path: Path) -> None:
    """The gradient is of the changed kernel, by its formula; without that change, its test fails."""
    made = make(tmp_path / "demo-kernel", kernel=kernel).path
    readme = (made / "README.md").read_text()
    replace_functions(sorted(made.glob("src/*.rs")), blocks(readme, "rust"), "}\n")
    reference, formula = (block for block in blocks(readme, "python") if block.startswith("def "))
    files = [*made.glob("tests/*.py"), *made.glob("tvm-ffi-ext/*/_torch_*.py")]
    replace_functions(files, [reference], r"(?=\n\n\S)")
    with pytest.raises(AssertionError, match=r"FAILED tests/test_.*_torch.py::test_gradient"):
        python("-m", "pytest", "-q", "-k", "torch and gradient", cwd=made)
    replace_functions(files, [formula], r"(?=\n\n\S)")
    assert " passed" in python("-m", "pytest", "-q", "-k", "torch", cwd=made)


TWO = """
import sys
if "torch-first" in sys.argv:
    import torch
import kernels, pathlib
one, two, again = (kernels.get_local_kernel(pathlib.Path(path)) for path in (*sys.argv[1:3], sys.argv[1]))
import torch
x = torch.randn(64, requires_grad=True)
compiled = torch.compile(lambda x: one.relu(x) + two.relu(-x), fullgraph=True, backend="aot_eager")
compiled(x).sum().backward()
assert torch.equal(x.grad, x.detach().sign())
assert one is again and one is not two
names = {torch.export.export(kernel.layers.ReLU(), (x.detach(),)).graph_module.code for kernel in (one, two)}
assert len(names) == 2, names
print("both")
"""


@needs_frameworks
@pytest.mark.parametrize("order", ["torch-first", "kernel-first"])
def test_two_builds_of_a_kernel_live_in_one_process(order: str, variant: Path, tmp_path: Path) -> None:
    other = other_build(variant, tmp_path)
    assert python("-c", TWO, str(variant), str(other), order, cwd=tmp_path) == "both\n"


@needs_frameworks
def test_jax_without_its_bridge_says_what_to_install(variant: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['jax_tvm_ffi'] = None\n"
        "import jax.numpy, kernels, pathlib\n"
        "kernel = kernels.get_local_kernel(pathlib.Path(sys.argv[1]))\n"
        "try:\n    kernel.relu(jax.numpy.ones(3))\n"
        "except ImportError as error:\n    print(error)\n"
    )
    said = python("-c", code, str(variant), cwd=tmp_path)
    assert said == "jax arrays need jax-tvm-ffi: pip install jax-tvm-ffi\n"


@needs_frameworks
def test_the_page_about_torch_and_jax_is_true(variant: Path) -> None:
    blocks = [block.text for block in pages.blocks(PAGE) if block.language == "python"]
    assert len(blocks) >= 5
    python("-c", "\n".join(blocks), cwd=variant.parent.parent.parent)


def test_without_torch_a_kernel_has_no_layers_and_works(variant: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['jax'] = None\n"
        "import kernels, numpy, pathlib\n"
        "kernel = kernels.get_local_kernel(pathlib.Path(sys.argv[1]))\n"
        "print(kernel.relu(numpy.float32([-1, 2])), hasattr(kernel.layers, '__all__'))\n"
    )
    command = [sys.executable, "-c", code, str(variant)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.stdout == "[0. 2.] False\n", finished.stderr


def test_the_tests_ops_module_has_names_of_kernel_builders(tmp_path: Path) -> None:
    """What the emitted conftest writes is a part of what kernel-builder writes."""
    made = make(tmp_path / "demo-kernel").path
    (ours,) = re.findall(r'^OPS = """(.*?)"""', (made / "tests/conftest.py").read_text(), re.MULTILINE | re.DOTALL)
    names = set(re.findall(r"^def (\w+)", ours, re.MULTILINE))
    assert names <= set(re.findall(r"^def (\w+)", layout.OPS.read_text(), re.MULTILINE))
    used = {
        name
        for file in (made / "tvm-ffi-ext/demo_kernel").rglob("*.py")
        for line in re.findall(r"^from \._ops import (.+)$", file.read_text(), re.MULTILINE)
        for name in line.split(", ")
    }
    assert used == names | {"ops"}
