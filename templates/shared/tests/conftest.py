"""Builds the kernel once, lays it out as `kernels` loads it, hands it to the tests."""

import fcntl
import filecmp
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

import kernels
import pytest
import tvm_ffi
from frameworks import Jax, Numpy, Torch, available

ROOT = Path(__file__).parent.parent
BUILD = tomllib.loads((ROOT / "build.toml").read_text(encoding="utf-8"))
GENERAL = BUILD["general"]
BACKENDS = GENERAL["backends"]
# The library for CUDA devices has the ops of the CPU, too, where there are both.
BACKEND = "cuda" if "cuda" in BACKENDS else "cpu"
TABLE = next(t for t in BUILD["kernel"].values() if t["backend"] == BACKEND)

# Of what kernel-builder writes, that which the package uses.
OPS = """from pathlib import Path

import tvm_ffi

ops = tvm_ffi.load_module(str(Path(__file__).parent / "{file}"))


def torch_add_op_namespace_prefix(name):
    return "{name}::" + name


def jax_register_ffi_target(name, *args, **kwargs):
    from jax_tvm_ffi import register_ffi_target

    return register_ffi_target("{name}." + name, *args, **kwargs)


def jax_ffi_call(name, *args, **kwargs):
    from jax.ffi import ffi_call

    return ffi_call("{name}." + name, *args, **kwargs)
"""


def cargo_build() -> Path:
    """Build the host crate; the library's path comes from cargo's own messages."""
    # Where tvm-ffi-config is, also when no virtual environment is active.
    scripts = sysconfig.get_path("scripts")
    path = os.environ.get("PATH", "")
    if scripts not in path.split(os.pathsep):
        path = os.pathsep.join([scripts, path])
    command = ["cargo", "build", "--release", "--locked"]
    command += [f"--features={feature}" for feature in TABLE.get("features", [])]
    built = subprocess.run(
        [*command, "--message-format=json-render-diagnostics"],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if built.returncode:
        pytest.exit(f"{' '.join(command)} failed", returncode=1)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    libraries = [
        Path(file)
        for message in messages
        if message["reason"] == "compiler-artifact"
        and "cdylib" in message["target"]["kind"]
        for file in message["filenames"]
        if file.endswith((".so", ".dylib"))
    ]
    return libraries[-1]


def variant_name(backend: str) -> str:
    """Name of the build variant of this machine, as in tvm-ffi01-cpu-x86_64-linux."""
    major, minor = tvm_ffi.__version__.split(".")[:2]
    machine = platform.machine().replace("arm64", "aarch64").replace("AMD64", "x86_64")
    compute = "cpu"
    if backend == "cuda":
        torch = sys.modules.get("torch")
        version = torch.version.cuda if torch is not None else None
        compute = "cu" + (version or "13.0").replace(".", "")
    return f"tvm-ffi{major}{minor}-{compute}-{machine}-{platform.system().lower()}"


def stage(library: Path, backend: str) -> Path:
    """Lay out ``build/<variant>/``: Python package, library, metadata."""
    module = GENERAL["name"].replace("-", "_")
    digest = hashlib.sha256(library.read_bytes()).hexdigest()[:8]
    unique = f"_{module}_{backend}_{digest}"
    archs = {"archs": TABLE["cuda-capabilities"]} if backend == "cuda" else {}
    metadata = {
        "id": unique,
        "name": GENERAL["name"],
        "version": GENERAL["version"],
        "license": GENERAL["license"],
        "python-depends": GENERAL.get("python-depends", []),
        "backend": {"type": backend, **archs},
    }
    variant = ROOT / "build" / variant_name(backend)
    variant.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=variant.parent) as temporary:
        staged = Path(temporary, variant.name)
        ignored = shutil.ignore_patterns("__pycache__", "_ops.py")
        shutil.copytree(ROOT / "tvm-ffi-ext" / module, staged, ignore=ignored)
        shutil.copy(library, staged / f"{unique}{library.suffix}")
        ops = OPS.format(name=unique, file=f"{unique}{library.suffix}")
        (staged / "_ops.py").write_text(ops)
        (staged / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n")
        put(staged, variant)
    return variant


def put(staged: Path, variant: Path):
    """Make ``variant`` hold what is staged, and nothing else.

    Tests in another terminal read it meanwhile: what is the same stays.
    """
    variant.mkdir(exist_ok=True)
    kept = {"__pycache__"}
    for new in sorted(staged.iterdir()):
        kept.add(new.name)
        old = variant / new.name
        if new.is_dir():
            put(new, old)
        elif not old.is_file() or not filecmp.cmp(new, old, shallow=False):
            new.replace(old)
    for old in variant.iterdir():
        if old.name not in kept:
            shutil.rmtree(old) if old.is_dir() else old.unlink()


@pytest.fixture(scope="session")
def kernel(pytestconfig):
    """The loaded kernel: built here, or by kernel-builder, which sets LOCAL_KERNELS."""
    repo_id = GENERAL["hub"]["repo-id"]
    if f"{repo_id}=" in os.environ.get("LOCAL_KERNELS", ""):
        return kernels.get_kernel(repo_id, version=GENERAL["version"])
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # for cargo's progress and its errors
        print(flush=True)
        library = cargo_build()
    with (ROOT / "build.toml").open("rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # against tests in another terminal
        variants = {backend: stage(library, backend) for backend in BACKENDS}
        return kernels.get_local_kernel(variants[BACKEND])


@pytest.fixture(scope="session")
def loaded(kernel):
    """The devices whose tensors the loaded variant takes."""
    metadata = Path(kernel.__file__).with_name("metadata.json").read_text()
    return BACKENDS if json.loads(metadata)["backend"]["type"] == BACKEND else ["cpu"]


@pytest.fixture
def devices(request, loaded):
    """Those of them that a test is for: all, or DEVICES of its module."""
    return [d for d in loaded if d in getattr(request.module, "DEVICES", BACKENDS)]


FRAMEWORKS = [framework for backend in BACKENDS for framework in available(backend)]


@pytest.fixture(params=FRAMEWORKS, ids=str)
def framework(request, devices):
    """Whose tensors a test uses; skips, with the reason, where there are none."""
    return on_one_of(devices, request.param)


@pytest.fixture(params=[Torch(backend) for backend in BACKENDS], ids=str)
def in_torch(request, devices):
    """torch's tensors; skips, with the reason, where there are none."""
    return on_one_of(devices, request.param)


@pytest.fixture(params=[Jax(backend) for backend in BACKENDS], ids=str)
def in_jax(request, devices):
    """jax's arrays; skips, with the reason, where there are none."""
    return on_one_of(devices, request.param)


@pytest.fixture(params=[Numpy(backend) for backend in BACKENDS], ids=BACKENDS)
def contract(request, devices):
    """Makes tensors to be refused, which need no GPU: they are never read."""
    return on_one_of(devices, request.param)


@pytest.fixture
def elsewhere(devices):
    """Makes tensors on a device whose tensors are not taken."""
    return Numpy(next(d for d in ("cpu", "cuda", "rocm") if d not in devices))


def on_one_of(devices, framework):
    if framework.missing:
        pytest.skip(framework.missing)
    if framework.device not in devices:
        pytest.skip(f"the loaded variant, or this op, is not for {framework.device}")
    return framework
