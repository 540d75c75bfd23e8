"""relu against numpy in float64: values, dtypes, shapes, and every error."""

import numpy as np
import pytest
from frameworks import DTYPES

SHAPES = [
    (),
    (1,),
    (7,),
    (33, 65),
    (2, 3, 5, 7),
    (1 << 20,),
    ((1 << 20) + 3,),
    (0,),
    (4, 0, 3),
]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-8, -1e-8, 6e4, -6e4, 1e-45, -1e-45]


def reference(x):
    return np.where(x <= 0, 0.0, x)


def random(shape):
    return np.random.default_rng(0).standard_normal(shape) * 3


@pytest.mark.kernels_ci
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(kernel, framework, shape, dtype):
    x, out = framework.tensor(random(shape), dtype), framework.empty(shape, dtype)
    assert kernel.relu(x, out) is out
    np.testing.assert_array_equal(framework.values(out), reference(framework.values(x)))


@pytest.mark.kernels_ci
@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values(kernel, framework, dtype):
    x = framework.tensor(np.tile(SPECIAL, 50), dtype)
    out = framework.empty((len(SPECIAL) * 50,), dtype)
    kernel.relu(x, out)
    np.testing.assert_array_equal(framework.values(out), reference(framework.values(x)))
    assert not np.signbit(framework.values(out)[4::11]).any(), "relu(-0.0) is +0.0"


@pytest.mark.kernels_ci
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [5, (1 << 17) + 1])
def test_in_place(kernel, framework, count, dtype):
    x = framework.tensor(random(count), dtype)
    expected = reference(framework.values(x))
    kernel.relu(x, x)
    np.testing.assert_array_equal(framework.values(x), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("start", [1, 2, 3])
def test_slices_start_at_any_element(kernel, framework, start, dtype):
    x, out = framework.tensor(random(1000), dtype), framework.empty((1000,), dtype)
    kernel.relu(x[start:], out[start:])
    expected = np.concatenate(
        [np.full(start, 7.0), reference(framework.values(x))[start:]]
    )
    np.testing.assert_array_equal(framework.values(out), expected)


@pytest.mark.kernels_ci
def test_makes_its_own_output(kernel, framework):
    x = framework.tensor(random((3, 4)), "float32")
    out = kernel.relu(x)
    assert type(out) is type(x) and out is not x and out.shape == x.shape
    np.testing.assert_array_equal(framework.values(out), reference(framework.values(x)))


def test_needs_out_for_other_tensors(kernel, contract):
    with pytest.raises(TypeError, match="out: needed for tensors of type Dlpack"):
        kernel.relu(contract.tensor([1.0], "bfloat16"))


@pytest.mark.parametrize("dtype", ["float64", "int32", "uint8", "bool"])
def test_refuses_other_dtypes(kernel, contract, dtype):
    x = contract.tensor([1.0], dtype)
    with pytest.raises(
        TypeError, match=f"x: expected float32, float16 or bfloat16, got {dtype}"
    ):
        kernel.relu(x, x)


def test_refuses_strided_tensors(kernel, contract):
    x, out = (
        contract.tensor(np.zeros((4, 6)), "float32"),
        contract.empty((4, 3), "float32"),
    )
    with pytest.raises(ValueError, match="x: must be contiguous"):
        kernel.relu(x[:, ::2], out)
    with pytest.raises(ValueError, match="out: must be contiguous"):
        kernel.relu(out, x[:, ::2])


def test_refuses_misaligned_tensors(kernel, contract):
    memory = np.frombuffer(bytearray(41), np.uint8)[1:].view(np.float32)
    x, misaligned = contract.tensor(np.zeros(10), "float32"), contract.wrap(memory)
    with pytest.raises(ValueError, match="x: its memory must begin at a multiple of 4"):
        kernel.relu(misaligned, x)
    with pytest.raises(ValueError, match="out: its memory must begin at a multiple"):
        kernel.relu(x, misaligned)


def test_refuses_another_shape(kernel, contract):
    x = contract.tensor(np.zeros((2, 3)), "float32")
    for shape in [(3, 2), (6,), (2, 3, 1), (0,), ()]:
        with pytest.raises(ValueError, match="out: expected the shape of x"):
            kernel.relu(x, contract.empty(shape, "float32"))


def test_refuses_another_dtype_of_out(kernel, contract):
    with pytest.raises(
        TypeError, match="out: expected the dtype of x, float32, got float16"
    ):
        kernel.relu(
            contract.tensor([1.0], "float32"), contract.tensor([1.0], "float16")
        )


def test_refuses_partial_overlap(kernel, contract):
    x = contract.tensor(np.zeros(8), "float32")
    with pytest.raises(ValueError, match="out: overlaps x"):
        kernel.relu(x[:-1], x[1:])


def test_refuses_what_is_no_tensor(kernel, contract):
    x = contract.tensor([1.0], "float32")
    for arguments in [(x, 1.0), ("x", x), (x, [1.0]), (None, x)]:
        with pytest.raises(TypeError):
            kernel.relu(*arguments)
    with pytest.raises(TypeError, match="expected a tensor, got list"):
        kernel.relu([1.0])


def test_refuses_another_device(kernel, contract, devices, elsewhere):
    x, other = contract.tensor([1.0], "float32"), elsewhere.tensor([1.0], "float32")
    message = f"x: expected a tensor on {devices[0]}, got one on"
    with pytest.raises(ValueError, match=message):
        kernel.relu(other, other)
    with pytest.raises(ValueError, match="out: expected the device of x"):
        kernel.relu(x, other)
