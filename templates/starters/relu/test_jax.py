"""relu in jax: compiled, with gradients."""

import numpy as np
import pytest
from frameworks import DTYPES
from test_relu import reference

jax = pytest.importorskip("jax")

VALUES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 1e-7, -1e-7]


def transformed(function):
    rows = jax.vmap(function)
    return [function, jax.jit(function), rows, jax.jit(rows)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_values(kernel, in_jax, dtype):
    x = in_jax.tensor(np.tile(VALUES, (4, 3)), dtype)
    for relu in transformed(kernel.relu):
        out = relu(x)
        assert out.dtype == x.dtype
        np.testing.assert_array_equal(in_jax.values(out), reference(in_jax.values(x)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient(kernel, in_jax, dtype):
    """As differences of the reference, apart from its kink."""
    x = in_jax.tensor([-2.0, -1.0, 1.0, 2.0], dtype)
    values = in_jax.values(x)
    slope = (reference(values + 2**-20) - reference(values - 2**-20)) * 2**19
    for relu in transformed(kernel.relu):
        (grad,) = jax.vjp(relu, x)[1](x)
        np.testing.assert_array_equal(in_jax.values(grad), slope * values)


def test_refusals(kernel, in_jax):
    x = in_jax.tensor([1.0], "float32")
    with pytest.raises(TypeError, match="arrays of jax are immutable"):
        kernel.relu(x, x)
    with pytest.raises(Exception, match="x: expected float32, float16 or bfloat16"):
        jax.block_until_ready(kernel.relu(in_jax.tensor([1], "int32")))
