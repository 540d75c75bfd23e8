"""flash_attn2 in torch: in graphs, as a layer, and without a gradient."""

import pytest
from attention import Inputs, dtypes
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

torch = pytest.importorskip("torch")
kernels = pytest.importorskip("kernels")


@pytest.fixture(params=dtypes(BACKEND))
def qkv(request, in_torch):
    inputs = Inputs(
        request.param, batch=2, lengths=(33, 40), heads=4, dim=64, kv_heads=2
    )
    return inputs.tensors(in_torch)


@pytest.mark.kernels_ci
def test_is_an_op_of_torch(kernel, in_torch, qkv):
    fwd = registered(kernel, "_torch_flash_attn2", "fwd")
    out, lse = torch.empty_like(qkv[0]), qkv[0].new_empty(2, 4, 33, dtype=torch.float32)
    slopes = in_torch.tensor([0.5, 0.25, 1.0, 2.0], "float32")
    torch.library.opcheck(fwd, (*qkv, None, out, None, -1, 0, None, 0.0))
    torch.library.opcheck(fwd, (*qkv, slopes, out, lse, 7, 3, 0.125, 30.0))
    assert recorded(kernel.flash_attn_func, *qkv) == ["fwd"]


def test_takes_tensors_without_memory(kernel):
    with fake_tensors():
        q = torch.empty(2, 4, 33, 64, dtype=torch.float16, device=BACKEND)
    q = q.transpose(1, 2)
    out, lse = kernel.flash_attn_func(q, q, q, return_lse=True)
    assert (out.shape, out.dtype, out.device) == (q.shape, q.dtype, q.device)
    assert lse.shape == (2, 4, 33) and lse.dtype == torch.float32
    assert lse.device == q.device
    assert out.is_contiguous() and lse.is_contiguous()


@pytest.mark.kernels_ci
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiles(kernel, qkv, backend):
    def attention(q, k, v):
        out, lse = kernel.flash_attn_func(q * 2, k, v, causal=True, return_lse=True)
        return out + 1, lse

    function = compiled(attention, backend)
    for start in (0, 1, 20):
        parts = [x[:, start:] for x in qkv]
        for actual, expected in zip(function(*parts), attention(*parts)):
            assert_same(actual, expected)


def test_compiles_with_outputs(kernel, qkv):
    function = compiled(kernel.fwd)
    options = (None, None, True, 7, -1, 0.0)
    expected = kernel.fwd(*qkv, *options)
    outputs = [torch.empty_like(tensor) for tensor in expected]
    results = function(*qkv, *options, *outputs)
    for tensors in zip(expected, outputs, results):
        assert_same(*tensors[:2])
        assert_same(*tensors[1:])


def test_a_graph_refuses_strided_tensors(kernel, qkv):
    with pytest.raises(ValueError, match="q: its last dimension must be contiguous"):
        compiled(kernel.flash_attn_func)(*(x[..., ::2] for x in qkv))


@pytest.mark.parametrize("argument", range(3))
def test_has_no_gradient(kernel, qkv, argument):
    expected = kernel.flash_attn_func(*qkv)
    qkv[argument].requires_grad_()
    for call in (kernel.flash_attn_func, kernel.layers.FlashAttention2()):
        with pytest.raises(RuntimeError, match="scaled_dot_product_attention"):
            call(*qkv)
        with torch.no_grad():
            assert_same(call(*qkv), expected)


@kernels.use_kernel_forward_from_hub("FlashAttention2")
class Attention(torch.nn.Module):
    """A layer of a model, as `kernels` finds it."""

    def forward(self, q, k, v, softmax_scale=None, causal=False):
        raise AssertionError("the kernel's layer takes its place")


@pytest.mark.kernels_ci
def test_layer(kernel, in_torch, qkv):
    inference, training = MODES
    layer, device = "FlashAttention2", in_torch.device
    model = kernelized(kernel, layer, Attention(), device, inference)
    expected = kernel.flash_attn_func(*qkv, causal=True)
    assert_same(compiled(model)(*qkv, causal=True), expected)
    with pytest.raises(ValueError, match="does not support mode"):
        kernelized(kernel, layer, Attention(), device, training)


@pytest.mark.kernels_ci
def test_cuda_graphs(kernel, in_torch, qkv):
    expected = kernel.flash_attn_func(*qkv)
    result = replayed(lambda: kernel.flash_attn_func(*qkv), in_torch.device)
    assert_same(result, expected)
    function = compiled(
        lambda q, k, v: kernel.flash_attn_func(q, k, v) + 1,
        "inductor",
        mode="reduce-overhead",
        dynamic=False,
    )
    for _ in range(3):  # The second call is recorded, the third one replayed.
        assert_same(function(*qkv), expected + 1)
