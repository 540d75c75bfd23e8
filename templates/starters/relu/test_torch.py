"""relu in torch: in graphs, with gradients, as a layer."""

import numpy as np
import pytest
from conftest import BACKEND
from frameworks import DTYPES
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
from test_relu import reference

torch = pytest.importorskip("torch")
kernels = pytest.importorskip("kernels")

VALUES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 1e-7, -1e-7]


@pytest.fixture(params=DTYPES)
def x(request, in_torch):
    return in_torch.tensor(np.tile(VALUES, (4, 3)), request.param)


@pytest.mark.kernels_ci
def test_is_an_op_of_torch(kernel, x):
    relu = registered(kernel, "_torch_relu", "relu")
    relu_out = registered(kernel, "_torch_relu", "relu_out")
    x, out = x.nan_to_num(), torch.empty_like(x)  # opcheck takes NaN for unequal.
    torch.library.opcheck(relu, (x.clone().requires_grad_(),))
    torch.library.opcheck(relu_out, (x, out))
    assert recorded(kernel.relu, x) == ["relu"]
    assert recorded(kernel.relu, x, out) == ["relu_out"]


def test_takes_tensors_without_memory(kernel):
    with fake_tensors():
        x = torch.empty(5, 3, device=BACKEND, requires_grad=True)
    out = kernel.relu(x.t())
    assert (out.shape, out.dtype, out.device) == ((3, 5), x.dtype, x.device)
    assert out.is_contiguous() and out.requires_grad


@pytest.mark.kernels_ci
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiles(kernel, x, backend):
    def calls(x):
        return kernel.relu(x + 1) * 2

    function = compiled(calls, backend)
    for part in (x, x[:3], x[:2]):
        assert_same(function(part), calls(part))


def test_compiles_with_out(kernel, x):
    function, expected = compiled(kernel.relu), kernel.relu(x)
    out = torch.empty_like(x)
    assert_same(function(x, out), expected)
    assert_same(out, expected)
    function(x, x)
    assert_same(x, expected)


def test_a_graph_refuses_strided_tensors(kernel, x):
    with pytest.raises(ValueError, match="x: must be contiguous"):
        compiled(kernel.relu)(x.t())


@pytest.mark.kernels_ci
@pytest.mark.parametrize("graph", [False, True])
def test_gradient(kernel, in_torch, x, graph):
    """As differences of the reference, apart from its kink."""
    function = compiled(kernel.relu) if graph else kernel.relu
    leaf = in_torch.tensor([-2.0, -1.0, 1.0, 2.0], str(x.dtype).split(".")[1])
    values = in_torch.values(leaf)
    slope = (reference(values + 2**-20) - reference(values - 2**-20)) * 2**19
    function(leaf.requires_grad_()).backward(leaf.detach())
    np.testing.assert_array_equal(in_torch.values(leaf.grad), slope * values)


def test_formula(kernel, x):
    """What torch takes the gradient of is what the kernel computes."""
    formula = registered(kernel, "_torch_relu", "formula")
    assert_same(formula(x), kernel.relu(x))


def test_out_has_no_gradient(kernel, x):
    leaf, out = x.clone().requires_grad_(), torch.empty_like(x)
    with pytest.raises(RuntimeError, match="leave out= away"):
        kernel.relu(leaf, out)
    with torch.no_grad():
        assert_same(kernel.relu(leaf, out), kernel.relu(x))


@kernels.use_kernel_forward_from_hub("ReLU")
class Activation(torch.nn.ReLU):
    """A layer of a model, as `kernels` finds it."""


@pytest.mark.kernels_ci
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_layer(kernel, in_torch, x, mode):
    model = kernelized(kernel, "ReLU", Activation(), in_torch.device, mode)
    assert recorded(model, x) == ["relu"]
    assert_same(compiled(model)(x.t()), kernel.relu(x.t().contiguous()))


@pytest.mark.kernels_ci
def test_cuda_graphs(kernel, in_torch, x):
    assert_same(replayed(lambda: kernel.relu(x), in_torch.device), kernel.relu(x))
    function = compiled(
        lambda x: kernel.relu(x) + 1, "inductor", mode="reduce-overhead", dynamic=False
    )
    for _ in range(3):  # The second call is recorded, the third one replayed.
        assert_same(function(x), kernel.relu(x) + 1)
