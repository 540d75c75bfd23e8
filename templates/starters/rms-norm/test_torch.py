"""rms_norm in torch: in graphs, with gradients, as a layer."""

import numpy as np
import pytest
from conftest import BACKEND
from manners import (
    BACKENDS,
    MODES,
    assert_same,
    compiled,
    fake_tensors,
    kernelized,
    recorded,
    registered,
    replayed,
)
from test_rms_norm import EPSILON, PAIRS, gradients, random

torch = pytest.importorskip("torch")
kernels = pytest.importorskip("kernels")


@pytest.fixture(params=[PAIRS[0], PAIRS[2], PAIRS[3]], ids="-".join)
def arguments(request, in_torch):
    """x and weight, which ask for a gradient."""
    x, weight = random((3, 5, 96)), random(96)
    pairs = zip((x, weight), request.param)
    return [in_torch.tensor(*pair).requires_grad_() for pair in pairs]


@pytest.mark.kernels_ci
def test_is_an_op_of_torch(kernel, arguments):
    rms_norm = registered(kernel, "_torch_rms_norm", "rms_norm")
    rms_norm_out = registered(kernel, "_torch_rms_norm", "rms_norm_out")
    torch.library.opcheck(rms_norm, (*arguments, 1e-5))
    x, weight = (argument.detach() for argument in arguments)
    torch.library.opcheck(rms_norm_out, (x, weight, 1e-5, torch.empty_like(x)))
    assert recorded(kernel.rms_norm, x, weight) == ["rms_norm"]
    out = torch.empty_like(x)
    assert recorded(kernel.rms_norm, x, weight, 1e-5, out) == ["rms_norm_out"]


def test_takes_tensors_without_memory(kernel):
    with fake_tensors():
        x = torch.empty(5, 3, device=BACKEND, requires_grad=True)
    out = kernel.rms_norm(x.t(), x[:, 0])
    assert (out.shape, out.dtype, out.device) == ((3, 5), x.dtype, x.device)
    assert out.is_contiguous() and out.requires_grad


@pytest.mark.kernels_ci
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiles(kernel, arguments, backend):
    x, weight = (argument.detach() for argument in arguments)
    function = compiled(lambda x: kernel.rms_norm(x + 1, weight) * 2, backend)
    for part in (x, x[:2], x[1:]):
        assert_same(function(part), kernel.rms_norm(part + 1, weight) * 2)


def test_compiles_with_out(kernel, arguments):
    x, weight = (argument.detach() for argument in arguments)
    function, expected = compiled(kernel.rms_norm), kernel.rms_norm(x, weight)
    out = torch.empty_like(x)
    assert_same(function(x, weight, out=out), expected)
    assert_same(out, expected)
    function(x, weight, out=x)
    assert_same(x, expected)


def test_a_graph_refuses_strided_tensors(kernel, arguments):
    x, weight = arguments
    with pytest.raises(ValueError, match="x: must be contiguous"):
        compiled(kernel.rms_norm)(x[..., ::2], weight[:48])


@pytest.mark.kernels_ci
@pytest.mark.parametrize("graph", [False, True])
def test_gradient(kernel, in_torch, arguments, graph):
    """Rounded to the dtype, or wrong by the sums in float32."""
    x, weight = arguments
    grad = torch.randn_like(x)
    function = compiled(kernel.rms_norm) if graph else kernel.rms_norm
    function(x, weight, 1e-5).backward(grad)
    values = [in_torch.values(tensor.detach()) for tensor in (x, weight, grad)]
    for argument, expected in zip(arguments, gradients(*values, 1e-5)):
        error = max(EPSILON[str(argument.dtype).split(".")[1]], 2e-6)
        atol = error * np.abs(expected).max()
        actual = in_torch.values(argument.grad)
        np.testing.assert_allclose(actual, expected, rtol=error, atol=atol)


def test_gradient_of_one(kernel, arguments):
    """What asks for no gradient gets none."""
    x, weight = arguments
    for asked, other in ((x, weight), (weight, x)):
        x.grad = weight.grad = None
        other.requires_grad_(False)
        kernel.rms_norm(x, weight).sum().backward()
        assert asked.grad is not None and other.grad is None
        other.requires_grad_(True)


def test_out_has_no_gradient(kernel, arguments):
    out = torch.empty_like(arguments[0])
    with pytest.raises(RuntimeError, match="leave out= away"):
        kernel.rms_norm(*arguments, out=out)
    with torch.no_grad():
        kernel.rms_norm(*arguments, out=out)
        assert_same(out, kernel.rms_norm(*arguments))


@kernels.use_kernel_forward_from_hub("RMSNorm")
class Norm(torch.nn.RMSNorm):
    """A layer of a model, as `kernels` finds it."""


@kernels.use_kernel_forward_from_hub("RMSNorm")
class ModelsNorm(torch.nn.Module):
    """The same by the names of transformers' models."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        raise AssertionError("the kernel's layer takes its place")


@pytest.mark.kernels_ci
@pytest.mark.parametrize("norm", [Norm, ModelsNorm])
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_layer(kernel, in_torch, arguments, norm, mode):
    x, weight = arguments
    model = kernelized(kernel, "RMSNorm", norm(96, eps=0.25), in_torch.device, mode)
    model.weight = torch.nn.Parameter(weight.detach())
    expected = kernel.rms_norm(x.transpose(0, 1).contiguous(), weight, 0.25)
    assert_same(compiled(model)(x.transpose(0, 1)), expected)
    assert recorded(model, x.detach()) == ["rms_norm"]


@pytest.mark.kernels_ci
def test_cuda_graphs(kernel, in_torch, arguments):
    x, weight = (argument.detach() for argument in arguments)
    expected = kernel.rms_norm(x, weight)
    result = replayed(lambda: kernel.rms_norm(x, weight), in_torch.device)
    assert_same(result, expected)
    function = compiled(
        lambda x: kernel.rms_norm(x, weight) + 1,
        "inductor",
        mode="reduce-overhead",
        dynamic=False,
    )
    for _ in range(3):  # The second call is recorded, the third one replayed.
        assert_same(function(x), expected + 1)
