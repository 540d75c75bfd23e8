"""relu in jax: compiled, with gradients."""

import numpy as np
import pytest
from frameworks import DTYPES

jax = pytest.importorskip("jax")

VALUES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 1e-7, -1e-7]


@pytest.fixture(params=DTYPES)
def x(request, in_jax):
    return in_jax.tensor(np.tile(VALUES, (4, 3)), request.param)


def transformed(function):
    rows = jax.vmap(function)
    return [function, jax.jit(function), rows, jax.jit(rows)]


def test_values(kernel, in_jax, x):
    values = in_jax.values(x)
    for relu in transformed(kernel.relu):
        out = relu(x)
        assert out.dtype == x.dtype
        np.testing.assert_array_equal(
            in_jax.values(out), np.where(values <= 0, 0, values)
        )


def test_gradient(kernel, in_jax, x):
    """It passes where the result is not 0; NaN is not 0."""
    values = in_jax.values(x)
    for relu in transformed(kernel.relu):
        (grad,) = jax.vjp(relu, x)[1](x)
        np.testing.assert_array_equal(
            in_jax.values(grad), np.where(values <= 0, 0, values)
        )


def test_refusals(kernel, in_jax, x):
    with pytest.raises(TypeError, match="arrays of jax are immutable"):
        kernel.relu(x, x)
    with pytest.raises(Exception, match="x: expected float32, float16 or bfloat16"):
        jax.block_until_ready(kernel.relu(in_jax.tensor([1], "int32")))
