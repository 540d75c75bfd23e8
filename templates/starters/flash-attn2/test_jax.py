"""flash_attn2 in jax: compiled."""

from functools import partial

import pytest
from attention import Inputs, dtypes, reference
from conftest import BACKEND
from test_flash_attn2 import compare

jax = pytest.importorskip("jax")


@pytest.mark.parametrize("dtype", dtypes(BACKEND))
@pytest.mark.parametrize("graph", [False, True])
def test_values(kernel, in_jax, graph, dtype):
    inputs = Inputs(dtype, batch=2, lengths=(33, 40), heads=4, dim=64, kv_heads=2)
    slopes = [0.5, 0.25, 1.0, 2.0]
    for arguments, options in (
        ({}, {}),
        ({"causal": True, "window_size": (7, -1)}, {"window": (7, 0)}),
        (
            {"alibi_slopes": in_jax.tensor(slopes, "float32"), "softcap": 3.0},
            {"alibi": slopes, "softcap": 3.0},
        ),
    ):
        attention = partial(kernel.flash_attn_func, **arguments, return_lse=True)
        attention = jax.jit(attention) if graph else attention
        results = attention(*inputs.tensors(in_jax))
        expected = reference(*inputs.values(in_jax), **options)
        compare([in_jax.values(result) for result in results], expected, dtype)


def test_refusals(kernel, in_jax):
    inputs = Inputs("float16", batch=1, lengths=(3, 3), heads=1, dim=64)
    q, k, v = inputs.tensors(in_jax)
    with pytest.raises(TypeError, match="arrays of jax are immutable"):
        kernel.flash_attn_func(q, k, v, out=q)
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(lambda q: kernel.flash_attn_func(q, k, v).sum())(q)
    with pytest.raises(Exception, match="q: expected 4 dimensions"):
        jax.block_until_ready(kernel.flash_attn_func(q[0], k, v))
