"""Random calls of the emitted kernels end in a right value or in a Python exception, from one thread or from eight.

HYPOTHESIS_PROFILE=nightly makes more of them, and lets valgrind watch the CPU kernels. Generic over starters: a new one
is called at random by itself, and its values are compared once `KNOWN` in random_calls.py has it.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COMBINATIONS, combination_id, make
from random_calls import KNOWN

from kernel_new.report import Level

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
CALLER = Path(__file__).parent / "random_calls.py"
BUILT_HERE = [combination for combination in COMBINATIONS if combination.get("device_compiler") != "cuda-oxide"]


@pytest.fixture(scope="module", params=BUILT_HERE, ids=combination_id)
def variant(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `kernels` loads of a kernel; for GPUs too, whose checks of arguments need none."""
    report = make(tmp_path_factory.mktemp("calls") / "demo-kernel", Level.LOAD, **request.param)
    assert report.ok, report.steps
    (directory,) = (report.path / "build").iterdir()
    return directory


def call(variant: Path, *options: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, str(CALLER), str(variant), *options]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONMALLOC": "malloc" if before else "default"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=1200)


@pytest.mark.parametrize("threads", [1, 8])
def test_random_calls_end_in_a_right_value_or_an_exception(threads: int, variant: Path) -> None:
    for seed in range(10 if NIGHTLY else 1):
        finished = call(variant, "--calls=10000", f"--threads={threads}", f"--seed={seed}")
        # A negative code would be a signal: the process has died.
        assert finished.returncode == 0, f"{finished.returncode}: {finished.stdout} {finished.stderr[-2000:]}"
        counts = json.loads(finished.stdout)["counts"]
        assert sum(counts.values()) - counts.get("checked", 0) == 10000
        known = [name for name in KNOWN if (variant / f"{name}.py").is_file()]
        if known and "-cpu-" in variant.name:
            assert counts["checked"] > 500, "enough of them are right calls"


def test_no_dtype_makes_a_kernel_panic(variant: Path) -> None:
    """complex64 once did: tvm-ffi has no name for it."""
    code = (
        "import kernels, numpy, pathlib, sys\n"
        "kernel = kernels.get_local_kernel(pathlib.Path(sys.argv[1]))\n"
        "function = getattr(kernel, kernel.__all__[0])\n"
        "for kind in numpy.typecodes['All']:\n"
        "    x = numpy.zeros((4, 4), kind)\n"
        "    try:\n"
        "        function(x, x)\n"
        "    except Exception as error:\n"
        "        assert 'panicked' not in str(error), (kind, error)\n"
        "print('lives')\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, str(variant)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.stdout == "lives\n", finished.stderr


@pytest.mark.skipif(not NIGHTLY, reason="HYPOTHESIS_PROFILE=nightly lets valgrind watch")
def test_valgrind_sees_no_invalid_access(variant: Path) -> None:
    if not shutil.which("valgrind"):
        pytest.skip("valgrind is not installed")
    if "-cpu-" not in variant.name:
        pytest.skip("a GPU's memory is not watched by valgrind")
    (library,) = variant.glob("*.so")
    finished = call(variant, "--calls=1000", "--memory=malloc", before=("valgrind", "-q", "--num-callers=40"))
    assert finished.returncode == 0, finished.stdout
    # Python and numpy have complaints of their own: only those in which the kernel has a part count.
    blocks = "\n".join(line.partition("== ")[2] for line in finished.stderr.splitlines()).split("\n\n")
    assert [block for block in blocks if library.name in block] == []
