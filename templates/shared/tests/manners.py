"""What the tests of torch's manners share: graphs, layers, and what is registered."""

import logging
import shutil
from importlib import import_module
from pathlib import Path

import kernels
import pytest

torch = pytest.importorskip("torch")

# What it says of every graph would drown what pytest says of a failure.
logging.getLogger("torch.__trace").propagate = False

NEEDS_COMPILER = pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
BACKENDS = ["aot_eager", pytest.param("inductor", marks=NEEDS_COMPILER)]
MODES = [
    kernels.Mode.INFERENCE | kernels.Mode.TORCH_COMPILE,
    kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE,
]


def assert_same(actual, expected):
    """Bit for bit: a graph changes nothing of what a kernel computes."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def registered(kernel, module, op):
    """An op of the kernel as it is in `torch.library`."""
    return getattr(import_module(f"{kernel.__name__}.{module}"), op)


def compiled(function, backend="aot_eager", **options):
    """The function as one whole graph for any shape."""
    torch.compiler.reset()
    options = {"dynamic": True, **options}
    return torch.compile(function, backend=backend, fullgraph=True, **options)


def recorded(function, *tensors):
    """The ops besides torch's own that torch records of a call."""
    make_fx = import_module("torch.fx.experimental.proxy_tensor").make_fx
    graph = make_fx(lambda *tensors: function(*tensors))(*tensors).graph
    called = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    return [name.split(".")[1] for name in called if not name.startswith("aten.")]


def fake_tensors():
    """Tensors made within it have no memory: those of a GPU need none."""
    return import_module("torch._subclasses.fake_tensor").FakeTensorMode()


def kernelized(kernel, layer, model, device, mode):
    """The model with a layer of the kernel in the place of its layers of that name."""
    variant = Path(kernel.__file__).parent
    repository = kernels.LocalLayerRepository(variant, layer_name=layer)
    with kernels.use_kernel_mapping({layer: {device: repository}}):
        return kernels.kernelize(model, mode=mode, device=device, use_fallback=False)


def replayed(function, device):
    """The result of a function whose launches were recorded in a CUDA graph."""
    if device != "cuda":
        pytest.skip("CUDA graphs are for CUDA devices")
    function()  # The driver compiles the PTX at the first launch.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    result.zero_()
    graph.replay()
    return result
