"""rms_norm in jax: compiled, with gradients."""

from functools import partial

import numpy as np
import pytest
from test_rms_norm import EPSILON, PAIRS, assert_close, random, reference

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
    """Against differences of the formula in float64."""
    function = jax.jit(kernel.rms_norm) if graph else kernel.rms_norm
    out, pullback = jax.vjp(function, *arguments)
    grad = in_jax.tensor(random(out.shape)[::-1], str(out.dtype))
    exact = [in_jax.values(argument) for argument in arguments]
    step = random(96)
    for i, actual in enumerate(pullback(grad)):
        assert actual.dtype == arguments[i].dtype
        along = [step * 1e-6 if j == i else 0.0 for j in range(2)]
        above, below = (
            reference(*(x + sign * dx for x, dx in zip(exact, along)))
            for sign in (1, -1)
        )
        expected = np.sum((above - below) / 2e-6 * in_jax.values(grad))
        products = in_jax.values(actual) * step
        error = 8 * max(EPSILON[str(actual.dtype)], 2e-6)
        assert abs(products.sum() - expected) <= error * np.abs(products).sum()


def test_refusals(kernel, in_jax, arguments):
    x, weight = arguments
    with pytest.raises(TypeError, match="arrays of jax are immutable"):
        kernel.rms_norm(x, weight, out=x)
    with pytest.raises(Exception, match="weight: expected shape"):
        jax.block_until_ready(kernel.rms_norm(x, weight[1:]))
