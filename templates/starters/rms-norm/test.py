"""rms_norm against numpy in float64: values, dtypes, shapes, and every error."""

import numpy as np
import pytest
from frameworks import DTYPES

# Dtypes of x and weight.
PAIRS = [(dtype, dtype) for dtype in DTYPES]
PAIRS += [("float16", "float32"), ("bfloat16", "float32")]
LENGTHS = [1, 2, 3, 7, 8, 31, 255, 256, 1000, 4096, 4099, 8193, 131072]
SHAPES = [(rows, n) for n in LENGTHS for rows in {1, 3, min(1000, 2**18 // n)}]
SHAPES += [(2, 3, 5, 7), (16,), (1, 1, 1), (3, 1 << 20)]
# More long rows than a GPU takes at a time, and lengths that are cut into uneven parts.
SHAPES += [(64, 1 << 17), (9, 20488), (5, 33032)]

# Distance from 1 to the next number, and from 0 to the next number.
EPSILON = {"float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}
SMALLEST = {"float32": 2**-149, "float16": 2**-24, "bfloat16": 2**-133}


def reference(x, weight, eps=1e-6):
    with np.errstate(invalid="ignore", divide="ignore"):
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight


def gradients(x, weight, grad, eps=1e-6):
    """Of the sum of ``grad * reference`` by x and by weight: central differences."""

    def difference(dx, dweight):
        above = reference(x + dx, weight + dweight, eps)
        return grad * (above - reference(x - dx, weight - dweight, eps)) / 2e-6

    units = 1e-6 * np.eye(len(weight))
    by_x = [difference(unit, 0.0).sum(-1) for unit in units]
    by_weight = [difference(0.0, unit).sum() for unit in units]
    return np.stack(by_x, -1), np.array(by_weight)


def assert_close(out, expected, dtype):
    """Allow for what float32 arithmetic and one rounding to the dtype can do at most.

    Each operation of float32 is wrong by a factor of at most 1 + u with u = 2**-24, an
    inverse root on a GPU by 1 + 2.2 u. A square comes into the sum through at most
    32 + n / 256 additions, where n are the elements of a row, because many threads or
    vector lanes add. The root halves the error of the sum and those of the square, the
    division by n and the addition of eps. Two products follow. Then the dtype is half
    an epsilon apart from the exact result, or half of its smallest number.
    """
    additions = 32 + expected.shape[-1] / 256
    relative = ((additions + 3) / 2 + 2.2 + 2) * 2**-24 + EPSILON[dtype] / 2
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(out[~finite], expected[~finite])
    np.testing.assert_allclose(
        out[finite], expected[finite], rtol=relative, atol=SMALLEST[dtype] / 2
    )


def random(shape):
    return np.random.default_rng(0).standard_normal(shape) * 3


class Call:
    """The arguments of one call and what it should result in."""

    def __init__(self, framework, x, dtype, weight=None, weight_dtype=None):
        self.framework, self.dtype = framework, dtype
        n = np.shape(x)[-1]
        weight = random(n)[::-1] + 0.1 if weight is None else weight
        self.x = framework.tensor(x, dtype)
        self.weight = framework.tensor(weight, weight_dtype or dtype)
        self.out = framework.empty(np.shape(x), dtype)

    def expected(self, eps=1e-6):
        values = self.framework.values
        return reference(values(self.x), values(self.weight), eps)

    def check(self, kernel, eps=1e-6, expected=None):
        expected = self.expected(eps) if expected is None else expected
        assert kernel.rms_norm(self.x, self.weight, eps, self.out) is self.out
        result = self.framework.values(self.out)
        assert_close(result, expected, self.dtype)
        return result


@pytest.mark.kernels_ci
@pytest.mark.parametrize("dtypes", PAIRS, ids="-".join)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(kernel, framework, shape, dtypes):
    dtype, weight_dtype = dtypes
    call = Call(framework, random(shape), dtype, weight_dtype=weight_dtype)
    call.check(kernel)


@pytest.mark.kernels_ci
@pytest.mark.parametrize("dtypes", PAIRS, ids="-".join)
@pytest.mark.parametrize("shape", [(0,), (0, 8), (3, 0), (2, 0, 5)], ids=str)
def test_empty_tensors(kernel, framework, shape, dtypes):
    dtype, weight_dtype = dtypes
    call = Call(framework, random(shape), dtype, weight_dtype=weight_dtype)
    call.check(kernel, expected=np.zeros(shape))


@pytest.mark.kernels_ci
@pytest.mark.parametrize("dtypes", PAIRS, ids="-".join)
@pytest.mark.parametrize("n", [5, 64, 1001, 8192, 50001, 131072])
def test_in_place(kernel, framework, n, dtypes):
    dtype, weight_dtype = dtypes
    call = Call(framework, random((7, n)), dtype, weight_dtype=weight_dtype)
    expected = call.expected()
    call.out = call.x
    call.check(kernel, expected=expected)


@pytest.mark.parametrize("n", [128, 8193, 40008])
def test_calls_wait_for_one_another(kernel, framework, n):
    """Each takes what the last one wrote, whether the caller looks at it between or not."""
    call = Call(framework, random((64, n)), "float32", weight=np.linspace(0.5, 2, n))
    ahead, behind = call.x, framework.tensor(framework.values(call.x), "float32")
    for _ in range(20):
        kernel.rms_norm(ahead, call.weight, 1e-6, ahead)
    for _ in range(20):
        kernel.rms_norm(behind, call.weight, 1e-6, behind)
        framework.values(behind)
    result = framework.values(ahead)
    np.testing.assert_array_equal(result, framework.values(behind))


@pytest.mark.parametrize("dtypes", PAIRS, ids="-".join)
@pytest.mark.parametrize("start", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [9, 1000, 70001])
def test_slices_start_at_any_element(kernel, framework, n, start, dtypes):
    dtype, weight_dtype = dtypes
    whole = Call(framework, random(n), dtype, weight_dtype=weight_dtype)
    for x, weight, out in [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)]:
        call = Call(framework, random(n), dtype, weight_dtype=weight_dtype)
        call.x = whole.x[start:] if x else whole.x[:-start]
        call.weight = whole.weight[start:] if weight else whole.weight[:-start]
        all_of_out = call.out
        call.out = call.out[start:] if out else call.out[:-start]
        call.check(kernel)
        rest = framework.values(all_of_out)[slice(start) if out else slice(-start, n)]
        np.testing.assert_array_equal(rest, 7.0)


@pytest.mark.parametrize("dtypes", PAIRS, ids="-".join)
@pytest.mark.parametrize("n", [3, 65, 1001])
def test_slices_of_rows(kernel, framework, n, dtypes):
    dtype, weight_dtype = dtypes
    call = Call(framework, random((9, n)), dtype, weight_dtype=weight_dtype)
    all_of_out = call.out
    call.x, call.out = call.x[1:-2], call.out[2:-1]
    call.check(kernel)
    rest = framework.values(all_of_out)[[0, 1, 8]]
    np.testing.assert_array_equal(rest, 7.0)


@pytest.mark.kernels_ci
@pytest.mark.parametrize("dtypes", PAIRS, ids="-".join)
@pytest.mark.parametrize("n", [6, 64, 4096])
def test_special_values(kernel, framework, n, dtypes):
    """Infinity and NaN are dealt with as by the formula, and reach no other row."""
    dtype, weight_dtype = dtypes
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 6e4, -6e4, 1e-4, 1e-7, 1e-37]
    x = random((2 * len(special), n))
    x[0::2, 1] = special
    call = Call(framework, x, dtype, weight_dtype=weight_dtype)
    result = call.check(kernel)
    zeros = call.expected() == 0
    signs = np.signbit(call.expected()) == np.signbit(result)
    assert signs[zeros].all(), "-0.0 stays -0.0"


@pytest.mark.kernels_ci
@pytest.mark.parametrize("dtypes", PAIRS, ids="-".join)
@pytest.mark.parametrize("n", [1, 100, 4096, 20000])
def test_special_rows(kernel, framework, n, dtypes):
    """Rows of the largest float16, of zeros, of small numbers; infinite weights."""
    dtype, weight_dtype = dtypes
    rows = [65504.0, -65504.0, 0.0, -0.0, 1e-4, 2.0**-20]
    x = np.repeat(rows, n).reshape(len(rows), n)
    weight = np.resize([1.0, -2.0, 0.0, -0.0, 0.5], n)
    for eps in [0.0, 1e-12, 1e-6, 1, 1e6]:
        Call(framework, x, dtype, weight, weight_dtype).check(kernel, eps)
    for infinity in [np.inf, -np.inf, np.nan]:
        weight[0] = infinity
        Call(framework, x, dtype, weight, weight_dtype).check(kernel)
    assert (Call(framework, x, dtype).check(kernel, np.inf) == 0).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_squares_are_float32(kernel, framework, dtype):
    """What has no square in float32 counts as infinity or as nothing."""
    x = np.repeat([[1e30], [-1e-30]], 64, axis=1)
    expected = np.repeat([[0.0], [-np.inf]], 64, axis=1)
    Call(framework, x, dtype, np.ones(64)).check(kernel, 0.0, expected)


@pytest.mark.kernels_ci
def test_makes_its_own_output(kernel, framework):
    call = Call(framework, random((3, 4)), "float32")
    out = kernel.rms_norm(call.x, call.weight)
    assert type(out) is type(call.x) and out is not call.x
    assert_close(framework.values(out), call.expected(), "float32")
    out = kernel.rms_norm(call.x, call.weight, eps=2)
    assert_close(framework.values(out), call.expected(2), "float32")


@pytest.fixture
def valid(contract):
    """Arguments that no check refuses."""
    return Call(contract, np.zeros((2, 6)), "float32")


def test_needs_out_for_other_tensors(kernel, contract):
    call = Call(contract, np.zeros(8), "bfloat16")
    with pytest.raises(TypeError, match="out: needed for tensors of type Dlpack"):
        kernel.rms_norm(call.x, call.weight)


@pytest.mark.parametrize("dtype", ["float64", "int32", "uint8", "bool"])
def test_refuses_other_dtypes(kernel, contract, valid, dtype):
    x = contract.tensor(np.zeros((2, 6)), dtype)
    with pytest.raises(
        TypeError, match=f"x: expected float32, float16 or bfloat16, got {dtype}"
    ):
        kernel.rms_norm(x, valid.weight, out=x)


@pytest.mark.parametrize(
    "dtype, other, expected",
    [
        ("float32", "float16", "float32"),
        ("float16", "bfloat16", "float16 or float32"),
        ("bfloat16", "float16", "bfloat16 or float32"),
        ("bfloat16", "float64", "bfloat16 or float32"),
    ],
)
def test_refuses_other_dtypes_of_weight(kernel, contract, dtype, other, expected):
    call = Call(contract, np.zeros((2, 6)), dtype, weight_dtype=other)
    with pytest.raises(TypeError, match=f"weight: expected {expected}, got {other}"):
        kernel.rms_norm(call.x, call.weight, out=call.out)


def test_refuses_a_scalar(kernel, contract, valid):
    x = contract.tensor(1.0, "float32")
    with pytest.raises(ValueError, match="x: expected one dimension or more, got none"):
        kernel.rms_norm(x, valid.weight, out=x)


def test_refuses_strided_tensors(kernel, contract, valid):
    strided = contract.tensor(np.zeros((2, 12)), "float32")[:, ::2]
    with pytest.raises(ValueError, match="x: must be contiguous"):
        kernel.rms_norm(strided, valid.weight, out=valid.out)
    with pytest.raises(ValueError, match="out: must be contiguous"):
        kernel.rms_norm(valid.x, valid.weight, out=strided)
    weight = contract.tensor(np.zeros(12), "float32")[::2]
    with pytest.raises(ValueError, match="weight: must be contiguous"):
        kernel.rms_norm(valid.x, weight, out=valid.out)


def test_refuses_misaligned_tensors(kernel, contract):
    memory = np.frombuffer(bytearray(41), np.uint8)[1:].view(np.float32)
    misaligned = contract.wrap(memory)
    x, weight, out = (contract.tensor(np.zeros(10), "float32") for _ in range(3))
    with pytest.raises(ValueError, match="x: its memory must begin at a multiple of 4"):
        kernel.rms_norm(misaligned, weight, out=out)
    with pytest.raises(ValueError, match="weight: its memory must begin at a multiple"):
        kernel.rms_norm(x, misaligned, out=out)
    with pytest.raises(ValueError, match="out: its memory must begin at a multiple"):
        kernel.rms_norm(x, weight, out=misaligned)


def test_refuses_another_shape(kernel, contract, valid):
    for shape in [(6, 2), (12,), (2, 6, 1), (0,), ()]:
        with pytest.raises(ValueError, match="out: expected the shape of x"):
            out = contract.empty(shape, "float32")
            kernel.rms_norm(valid.x, valid.weight, out=out)
    for shape in [(5,), (1,), (1, 6), (2, 6), (0,), ()]:
        with pytest.raises(ValueError, match="weight: expected shape"):
            weight = contract.empty(shape, "float32")
            kernel.rms_norm(valid.x, weight, out=valid.out)


def test_refuses_another_dtype_of_out(kernel, contract, valid):
    with pytest.raises(
        TypeError, match="out: expected the dtype of x, float32, got float16"
    ):
        out = contract.empty((2, 6), "float16")
        kernel.rms_norm(valid.x, valid.weight, out=out)


def test_refuses_overlap(kernel, contract):
    x, weight = (contract.tensor(np.zeros(8), "float32") for _ in range(2))
    with pytest.raises(ValueError, match="out: overlaps x"):
        kernel.rms_norm(x[:-1], weight[1:], out=x[1:])
    with pytest.raises(ValueError, match="out: overlaps weight"):
        kernel.rms_norm(x, weight, out=weight)
    with pytest.raises(ValueError, match="out: overlaps weight"):
        kernel.rms_norm(x[1:], weight[1:], out=weight[:-1])
    rows = contract.tensor(np.zeros((2, 8)), "float32")
    with pytest.raises(ValueError, match="out: overlaps weight"):
        kernel.rms_norm(rows, rows[1], out=rows)


@pytest.mark.parametrize("eps", [-1e-6, -np.inf, np.nan])
def test_refuses_eps(kernel, valid, eps):
    with pytest.raises(ValueError, match="eps: expected a number of at least 0, got"):
        kernel.rms_norm(valid.x, valid.weight, eps, valid.out)


def test_refuses_what_is_no_tensor(kernel, valid):
    x, weight, out = valid.x, valid.weight, valid.out
    for arguments in [
        (x, weight, 1e-6, 1.0),
        ("x", weight, 1e-6, out),
        (x, None, 1e-6, out),
        (x, [1.0] * 6, 1e-6, out),
        (x, weight, "1e-6", out),
        (x, weight, None, out),
    ]:
        with pytest.raises(TypeError):
            kernel.rms_norm(*arguments)
    with pytest.raises(TypeError, match="expected a tensor, got list"):
        kernel.rms_norm([1.0], weight)


def test_refuses_another_device(kernel, contract, valid, devices, elsewhere):
    other = Call(elsewhere, np.zeros((2, 6)), "float32")
    message = f"x: expected a tensor on {devices[0]}, got one on"
    with pytest.raises(ValueError, match=message):
        kernel.rms_norm(other.x, other.weight, out=other.out)
    with pytest.raises(ValueError, match="weight: expected the device of x"):
        kernel.rms_norm(valid.x, other.weight, out=valid.out)
    with pytest.raises(ValueError, match="out: expected the device of x"):
        kernel.rms_norm(valid.x, valid.weight, out=other.out)
