"""rms_norm in jax: compiled, with gradients."""

from functools import partial

import numpy as np
import pytest
from test_rms_norm import EPSILON, PAIRS, assert_close, gradients, random, reference

jax = pytest.importorskip("jax")


@pytest.fixture(params=[PAIRS[0], PAIRS[2], PAIRS[3]], ids="-".join)
def arguments(request, in_jax):
    """x and weight."""
    pairs = zip((random((3, 5, 96)), random(96)), request.param)
    return [in_jax.tensor(*pair) for pair in pairs]


def test_values(kernel, in_jax, arguments):
    expected = reference(*map(in_jax.values, arguments), 1e-5)
    function = partial(kernel.rms_norm, eps=1e-5)
    rows = jax.vmap(function, (0, None))
    for rms_norm in (function, jax.jit(function), rows, jax.jit(rows)):
        out = rms_norm(*arguments)
        assert out.dtype == arguments[0].dtype
        assert_close(in_jax.values(out), expected, str(out.dtype))


@pytest.mark.parametrize("graph", [False, True])
def test_gradient(kernel, in_jax, arguments, graph):
    """Rounded to the dtype, or wrong by the sums in float32."""
    function = jax.jit(kernel.rms_norm) if graph else kernel.rms_norm
    out, pullback = jax.vjp(function, *arguments)
    grad = in_jax.tensor(random(out.shape)[::-1], str(out.dtype))
    values = [in_jax.values(array) for array in (*arguments, grad)]
    for actual, expected in zip(pullback(grad), gradients(*values)):
        error = max(EPSILON[str(actual.dtype)], 2e-6)
        atol = error * np.abs(expected).max()
        np.testing.assert_allclose(
            in_jax.values(actual), expected, rtol=error, atol=atol
        )


def test_refusals(kernel, in_jax, arguments):
    x, weight = arguments
    with pytest.raises(TypeError, match="arrays of jax are immutable"):
        kernel.rms_norm(x, weight, out=x)
    with pytest.raises(Exception, match="weight: expected shape"):
        jax.block_until_ready(kernel.rms_norm(x, weight[1:]))
