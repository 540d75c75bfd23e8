"""The real kernel-builder takes what is emitted, wherever it is found.

KERNEL_BUILDER names its program, where that is not on PATH. KERNEL_BUILDER_CHECK names a script that runs all of it
over a repository (source set, CMake, check-builds, check-abi, import) and prints OK as its last line.
"""

import ast
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from conftest import COMBINATIONS, combination_id, make, needs_cargo

from kernel_new import layout, process

BUILDER = os.environ.get("KERNEL_BUILDER") or shutil.which("kernel-builder")
CHECK = os.environ.get("KERNEL_BUILDER_CHECK")
everywhere = pytest.mark.parametrize("combination", COMBINATIONS, ids=combination_id)


@everywhere
@pytest.mark.skipif(not BUILDER, reason="kernel-builder is not installed")
def test_kernel_builder_takes_the_configuration(combination: dict[str, str], tmp_path: Path) -> None:
    made = make(tmp_path / "demo-kernel", **combination).path
    for command in (["check-config"], ["create-pyproject", "--unique-id", "test"], ["fill-card"]):
        finished = process.run([str(BUILDER), *command, str(made)])
        assert finished.code == 0, finished.stdout + finished.stderr
    package = (made / "tvm-ffi-ext/demo_kernel/__init__.py").read_text()
    (functions,) = re.findall(r"^__all__ = (\[.+\])$", package, re.MULTILINE)
    for function in json.loads(functions):
        assert f"kernel.{function}" in finished.stdout
    theirs = public_names((made / "cmake/_ops.py.in").read_text())
    assert "ops" in theirs
    assert theirs <= public_names(layout.OPS.read_text())


def public_names(module: str) -> set[str]:
    """What the source of a module defines at its top, for others."""
    names = {node.name for node in ast.parse(module).body if isinstance(node, ast.FunctionDef)}
    names |= set(re.findall(r"^ *(\w+) = ", module, re.MULTILINE))
    return {name for name in names if not name.startswith("_")}


@everywhere
@pytest.mark.skipif(not CHECK, reason="KERNEL_BUILDER_CHECK is not set")
def test_kernel_builder_builds_checks_and_loads_it(combination: dict[str, str], tmp_path: Path) -> None:
    needs_cargo(combination)
    made = make(tmp_path / "demo-kernel", **combination).path
    finished = process.run([str(CHECK), str(made)], env=process.environment({"KB_CXX": "zig", "KB_CUDA_BUILD": "1"}))
    assert finished.stdout.splitlines()[-1] == "OK", finished.stdout + finished.stderr
