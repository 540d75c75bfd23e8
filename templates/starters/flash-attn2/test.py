"""Attention against a plain computation in float64, and every error."""

import numpy as np
import pytest
from attention import ROUNDING, Inputs, dtypes, reference
from conftest import BACKENDS

# A multiple of the queries of every kernel's blocks.
ISLAND = 384
LENGTHS = [
    *[(1, 1), (1, 2), (2, 1), (1, 257), (257, 1), (2, 17), (17, 2), (17, 17), (63, 64)],
    *[(64, 63), (64, 64), (64, 65), (65, 64), (63, 200), (65, 65), (128, 17)],
    *[(128, 128), (128, 257), (200, 65), (200, 200), (257, 128), (257, 257), (5, 640)],
]
DIMS = [32, 40, 64, 72, 80, 96, 104, 128, 160, 192, 224, 256]
WINDOWS = [(0, 0), (3, 0), (-1, 0), (0, -1), (16, 5), (70, 70), (-1, 64), (300, 300)]


@pytest.fixture(params=dtypes(*BACKENDS))
def dtype(request, framework):
    if request.param not in dtypes(framework.device):
        pytest.skip("tensor cores do not take it")
    return request.param


def check(kernel, framework, inputs, **options):
    """Run the kernel and compare with the reference, in the dtype's own tolerance."""
    actual = inputs.run(kernel, framework, **options)
    compare(actual, reference(*inputs.values(framework), **options), inputs.dtype)
    return actual


def compare(actual, expected, dtype):
    """Assert that a result is within the rounding errors of its dtype.

    A result is a mean of values of v. Each weight may be rounded to the dtype, by u at
    most, which changes the mean by u times the mean of |v|; and the result is rounded
    once more. What is computed in float32 adds some of its own u: a score's error is
    relative to the sum of the magnitudes in it, and is a relative error of its weight.
    """
    (out, lse), low, single = actual, ROUNDING[dtype], ROUNDING["float32"]
    slack = single * (32 + 8 * expected.score_size)
    tolerance = low * (np.abs(expected.out) + expected.mean_size)
    tolerance += np.moveaxis(slack, 1, 2)[..., None] * expected.mean_size
    assert_close(out, expected.out, tolerance + 2.0**-25, "out")
    assert_close(lse, expected.lse, slack, "lse")


def assert_close(actual, expected, tolerance, name):
    assert actual.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite], err_msg=name)
    error = np.abs(actual - np.where(finite, expected, 0.0))
    wrong = finite & ~(error <= tolerance)
    if wrong.any():
        first = tuple(np.argwhere(wrong)[0])
        pytest.fail(
            f"{name}: {wrong.sum()} of {wrong.size} wrong; at {first} got "
            f"{actual[first]}, expected {expected[first]} +- {tolerance[first]}"
        )


@pytest.mark.kernels_ci
@pytest.mark.parametrize("causal", [False, True])
def test_values(kernel, framework, causal, dtype):
    inputs = Inputs(dtype, batch=2, lengths=(128, 128), heads=8, dim=64)
    window = (-1, 0) if causal else (-1, -1)
    out, _ = check(kernel, framework, inputs, window=window)
    if dtype == "float16":
        expected = reference(*inputs.values(framework), window=window).out
        np.testing.assert_allclose(out, expected, rtol=2.5e-2, atol=2e-3)


@pytest.mark.kernels_ci
@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (40, 10)], ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_lengths(kernel, framework, lengths, window, dtype):
    inputs = Inputs(dtype, batch=1, lengths=lengths, heads=2, dim=64)
    check(kernel, framework, inputs, window=window)


@pytest.mark.kernels_ci
@pytest.mark.parametrize("window", [(-1, -1), (-1, 0)], ids=str)
@pytest.mark.parametrize("dim", DIMS)
def test_dims(kernel, framework, dim, window, dtype):
    inputs = Inputs(dtype, batch=1, lengths=(129, 150), heads=2, dim=dim)
    check(kernel, framework, inputs, window=window)


@pytest.mark.parametrize("dim", range(48, 256, 8))
def test_dims_between(kernel, framework, dim, dtype):
    inputs = Inputs(dtype, batch=1, lengths=(17, 33), heads=1, dim=dim)
    check(kernel, framework, inputs)


@pytest.mark.kernels_ci
@pytest.mark.parametrize("heads", [(8, 8), (8, 2), (6, 1), (15, 3)], ids=str)
def test_shared_heads(kernel, framework, heads, dtype):
    inputs = Inputs(
        dtype, batch=3, lengths=(33, 70), heads=heads[0], dim=64, kv_heads=heads[1]
    )
    check(kernel, framework, inputs)
    check(kernel, framework, inputs, window=(-1, 0))


@pytest.mark.kernels_ci
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("lengths", [(200, 200), (70, 257), (257, 70)], ids=str)
def test_windows(kernel, framework, lengths, window, dtype):
    inputs = Inputs(dtype, batch=1, lengths=lengths, heads=2, dim=64)
    check(kernel, framework, inputs, window=window)


@pytest.mark.kernels_ci
@pytest.mark.parametrize("softcap", [0.5, 5.0, 50.0])
def test_softcap(kernel, framework, softcap, dtype):
    inputs = Inputs(dtype, batch=1, lengths=(70, 130), heads=2, dim=64)
    for scale in (0.125, 2.0):
        check(kernel, framework, inputs, softcap=softcap, scale=scale)


@pytest.mark.kernels_ci
@pytest.mark.parametrize("per_batch", [False, True])
@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (30, 20)], ids=str)
@pytest.mark.parametrize("lengths", [(130, 130), (33, 200), (200, 65)], ids=str)
def test_alibi(kernel, framework, lengths, window, per_batch, dtype):
    inputs = Inputs(dtype, batch=2, lengths=lengths, heads=4, dim=64)
    slopes = 2.0 ** -np.arange(1.0, 9.0).reshape(2, 4)
    alibi = slopes if per_batch else slopes[1]
    check(kernel, framework, inputs, window=window, alibi=alibi)


@pytest.mark.kernels_ci
@pytest.mark.parametrize("dim", [40, 64, 128, 256])
def test_everything_at_once(kernel, framework, dim, dtype):
    inputs = Inputs(dtype, batch=2, lengths=(131, 203), heads=6, dim=dim, kv_heads=2)
    alibi = 2.0 ** -np.arange(1.0, 13.0).reshape(2, 6)
    for window in [(-1, 0), (100, 9)]:
        check(
            kernel,
            framework,
            inputs,
            window=window,
            alibi=alibi,
            softcap=4.0,
            scale=0.2,
        )


@pytest.mark.kernels_ci
def test_rows_that_see_no_key(kernel, framework, dtype):
    inputs = Inputs(dtype, batch=2, lengths=(100, 30), heads=2, dim=64)
    out, _ = check(kernel, framework, inputs, window=(-1, 0))
    assert (out[:, :70] == 0).all() and (out[:, 70:] != 0).any(axis=-1).all()


@pytest.mark.kernels_ci
def test_empty(kernel, framework, dtype):
    no_keys = Inputs(dtype, batch=2, lengths=(17, 0), heads=2, dim=64)
    for window in [(-1, -1), (-1, 0), (3, 3)]:
        out, _ = check(kernel, framework, no_keys, window=window)
        assert (out == 0).all()
    for batch, length, heads in [(2, 0, 2), (0, 17, 2), (2, 17, 0)]:
        inputs = Inputs(dtype, batch, (length, 17), heads, 64, kv_heads=2)
        check(kernel, framework, inputs)
        check(kernel, framework, inputs, window=(-1, 0))


@pytest.mark.kernels_ci
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", ["q", "k", "v"])
def test_infinity_and_nan(kernel, framework, which, value, dtype):
    inputs = Inputs(dtype, batch=2, lengths=(ISLAND + 20,) * 2, heads=2, dim=64)
    getattr(inputs, which)[1, ISLAND + 10, 1, 5] = value
    for window in [(-1, -1), (-1, 0), (10, 10)]:
        check_island(kernel, framework, inputs, which, window=window)


@pytest.mark.kernels_ci
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", ["k", "v"])
def test_hidden_keys_never_leak(kernel, framework, which, value, dtype):
    inputs = Inputs(dtype, batch=1, lengths=(ISLAND + 20,) * 2, heads=2, dim=64)
    getattr(inputs, which)[:, ISLAND:] = value
    check_island(kernel, framework, inputs, which, window=(-1, 0))


def check_island(kernel, framework, inputs, which, window):
    """Like `check`, but for what tensor cores make of v: 0 times NaN is NaN.

    So a value of v that is not finite may reach all queries of a block of which one
    sees it. No block is on both sides of ISLAND.
    """
    out, lse = inputs.run(kernel, framework, window=window)
    expected = reference(*inputs.values(framework), window=window)
    if framework.device == "cuda" and which == "v":
        out[:, ISLAND:] = expected.out[:, ISLAND:]
    compare((out, lse), expected, inputs.dtype)


@pytest.mark.kernels_ci
def test_large_scores(kernel, framework, dtype):
    inputs = Inputs(dtype, batch=1, lengths=(70, 130), heads=2, dim=64)
    inputs.q *= 1e4
    out, _ = check(kernel, framework, inputs, window=(-1, 0))
    assert np.isfinite(out).all()
    # Descending scores, so that the first key has the largest; and the reverse.
    for sign in (1.0, -1.0):
        inputs.q[:] = 10.0
        inputs.k[:] = sign * np.linspace(10.0, -10.0, 130)[None, :, None, None]
        check(kernel, framework, inputs)


@pytest.mark.kernels_ci
def test_equal_scores_give_the_mean(kernel, framework, dtype):
    inputs = Inputs(dtype, batch=1, lengths=(20, 200), heads=2, dim=64)
    for value in (0.0, -0.0, 3.0):
        inputs.k[:] = value
        check(kernel, framework, inputs)
    inputs.v[:] = -0.0
    out, _ = check(kernel, framework, inputs)
    assert (out == 0).all()


@pytest.mark.kernels_ci
def test_slices_of_packed_tensors(kernel, framework, dtype):
    packed = np.random.default_rng(1).standard_normal((2, 70, 3, 4, 64))
    inputs = Inputs(dtype, batch=2, lengths=(70, 70), heads=4, dim=64)
    tensor = framework.tensor(packed, dtype)
    inputs.q, inputs.k, inputs.v = (packed[:, :, i] for i in range(3))
    expected = reference(*inputs.values(framework), window=(-1, 0))
    views = [tensor[:, :, i] for i in range(3)]
    compare(inputs.call(kernel, framework, *views, window=(-1, 0)), expected, dtype)
    # Every second query, and the last half of the dimension.
    views[0], inputs.q = tensor[:, ::2, 0], packed[:, ::2, 0]
    views = [view[..., 32:] for view in views]
    inputs.q, inputs.k, inputs.v = (
        array[..., 32:] for array in (inputs.q, inputs.k, inputs.v)
    )
    expected = reference(*inputs.values(framework))
    compare(inputs.call(kernel, framework, *views), expected, dtype)


@pytest.mark.kernels_ci
def test_function(kernel, framework, dtype):
    inputs = Inputs(dtype, batch=2, lengths=(33, 33), heads=4, dim=64)
    q, k, v = inputs.tensors(framework)
    slopes = framework.tensor([0.5, 0.25, 0.125, 0.0625], "float32")
    alibi, values = framework.values(slopes), inputs.values(framework)
    out = framework.empty((2, 33, 4, 64), dtype)
    for arguments, options in [
        ({}, {}),
        ({"causal": True}, {"window": (-1, 0)}),
        ({"causal": True, "window_size": (7, 5)}, {"window": (7, 0)}),
        (
            {"window_size": (7, 5), "softmax_scale": 0.5},
            {"window": (7, 5), "scale": 0.5},
        ),
        ({"softcap": 3.0, "alibi_slopes": slopes}, {"softcap": 3.0, "alibi": alibi}),
    ]:
        assert kernel.flash_attn_func(q, k, v, **arguments, out=out) is out
        expected = reference(*values, **options)
        compare((framework.values(out), expected.lse), expected, dtype)


@pytest.mark.kernels_ci
def test_makes_its_own_outputs(kernel, framework):
    inputs = Inputs("float16", batch=2, lengths=(33, 40), heads=4, dim=64)
    q, k, v = inputs.tensors(framework)
    expected = reference(*inputs.values(framework))
    pairs = [
        kernel.flash_attn_func(q, k, v, return_lse=True),
        kernel.fwd(q, k, v, None, None, False, -1, -1, 0.0),
    ]
    for out, lse in [(kernel.flash_attn_func(q, k, v), pairs[0][1]), *pairs]:
        assert type(out) is type(lse) is type(q)
        assert out.shape == q.shape and out.dtype == q.dtype
        assert str(lse.dtype).endswith("float32")
        result = framework.values(out), framework.values(lse)
        compare(result, expected, "float16")


def test_says_what_is_wrong_with_q_before_it_makes_outputs(kernel, framework):
    q = framework.empty((2, 5, 64), "float16")
    with pytest.raises(ValueError, match="q: expected 4 dimensions"):
        kernel.flash_attn_func(q, q, q, return_lse=True)


def test_needs_out_for_other_tensors(kernel, contract):
    q = contract.tensor(np.zeros((1, 2, 3, 64)), "bfloat16")
    with pytest.raises(TypeError, match="out: needed for tensors of type Dlpack"):
        kernel.flash_attn_func(q, q, q)
    with pytest.raises(TypeError, match="lse: needed for tensors of type Dlpack"):
        kernel.flash_attn_func(q, q, q, out=q, return_lse=True)


def refused(kernel, contract, error, match, **changes):
    """Expect an error of a call whose arguments are right but for ``changes``."""
    arguments = {
        "q": contract.tensor(np.zeros((2, 5, 4, 64)), "float16"),
        "k": contract.tensor(np.zeros((2, 7, 2, 64)), "float16"),
        "v": contract.tensor(np.zeros((2, 7, 2, 64)), "float16"),
        "alibi_slopes": None,
        "softmax_scale": 0.125,
        "is_causal": False,
        "window_left": -1,
        "window_right": -1,
        "softcap": 0.0,
        "out": contract.empty((2, 5, 4, 64), "float16"),
        "lse": contract.empty((2, 4, 5), "float32"),
    }
    with pytest.raises(error, match=match):
        kernel.fwd(**(arguments | changes))


@pytest.mark.parametrize("dtype", ["float64", "int32", "uint8", "bool"])
def test_refuses_other_dtypes(kernel, contract, dtype):
    *others, last = dtypes(contract.device)
    names = f"{', '.join(others)} or {last}"
    x = contract.empty((2, 5, 4, 64), dtype)
    refused(kernel, contract, TypeError, f"q: expected {names}, got {dtype}", q=x)
    for name in ("k", "v"):
        message = f"{name}: expected the dtype of "
        changes = {name: contract.empty((2, 7, 2, 64), dtype)}
        refused(kernel, contract, TypeError, message, **changes)
    message = "out: expected the dtype of q, float16, got"
    refused(kernel, contract, TypeError, message, out=x)
    message = f"lse: expected float32, got {dtype}"
    lse = contract.empty((2, 4, 5), dtype)
    refused(kernel, contract, TypeError, message, lse=lse)
    message = f"alibi_slopes: expected float32, got {dtype}"
    slopes = contract.empty((4,), dtype)
    refused(kernel, contract, TypeError, message, alibi_slopes=slopes)


def test_refuses_float32_where_tensor_cores_do_not_take_it(kernel, contract):
    if contract.device == "cpu":
        pytest.skip("the CPU takes float32")
    x = contract.empty((2, 5, 4, 64), "float32")
    message = "q: expected float16 or bfloat16, got float32"
    refused(kernel, contract, TypeError, message, q=x)


@pytest.mark.parametrize(
    "name, shape, message",
    [
        ("q", (2, 5, 64), r"q: expected 4 dimensions \(batch, seqlen, heads, dim\)"),
        ("q", (2, 5, 4, 1, 64), "q: expected 4 dimensions"),
        ("q", (2, 5, 4, 60), "q: expected a dim that is a multiple of 8 from 32"),
        ("q", (2, 5, 4, 24), "q: expected a dim"),
        ("q", (2, 5, 4, 264), "q: expected a dim"),
        ("q", (2, 5, 4, 0), "q: expected a dim"),
        ("q", (2, 5, 3, 64), "q: expected a number of heads that is a multiple of"),
        ("q", (3, 5, 4, 64), r"k: expected shape \[3, 7, 2, 64\], by batch and dim of"),
        ("k", (2, 7, 64), "k: expected 4 dimensions"),
        ("k", (2, 7, 2, 72), r"k: expected shape \[2, 7, 2, 64\]"),
        ("k", (2, 7, 0, 64), "q: expected a number of heads that is a multiple of"),
        ("v", (2, 8, 2, 64), "v: expected the shape of k"),
        ("v", (2, 7, 4, 64), "v: expected the shape of k"),
        ("out", (2, 5, 4, 72), "out: expected the shape of q"),
        ("lse", (2, 5, 4), r"lse: expected shape \[2, 4, 5\]"),
        ("lse", (2, 4, 5, 1), r"lse: expected shape \[2, 4, 5\]"),
    ],
    ids=str,
)
def test_refuses_other_shapes(kernel, contract, name, shape, message):
    dtype = "float32" if name == "lse" else "float16"
    changes = {name: contract.empty(shape, dtype)}
    refused(kernel, contract, ValueError, message, **changes)


@pytest.mark.parametrize("shape", [(), (2,), (4, 2), (3, 4), (1, 4), (2, 4, 1)])
def test_refuses_other_shapes_of_slopes(kernel, contract, shape):
    slopes = contract.empty(shape, "float32")
    message = r"alibi_slopes: expected shape \[(2, )?4\]"
    refused(kernel, contract, ValueError, message, alibi_slopes=slopes)


def test_refuses_strides(kernel, contract):
    for name, shape in [("q", (2, 5, 4, 128)), ("k", (2, 7, 2, 128))]:
        changes = {name: contract.empty(shape, "float16")[..., ::2]}
        message = f"{name}: its last dimension must be contiguous"
        refused(kernel, contract, ValueError, message, **changes)
    for name, x in [
        ("out", contract.empty((2, 10, 4, 64), "float16")[:, ::2]),
        ("lse", contract.empty((2, 4, 10), "float32")[..., ::2]),
        ("alibi_slopes", contract.empty((8,), "float32")[::2]),
    ]:
        message = f"{name}: must be contiguous"
        refused(kernel, contract, ValueError, message, **{name: x})


def at_offset(contract, offset):
    """A tensor like q that begins so many bytes after a multiple of 16."""
    size = 2 * 5 * 4 * 64 * 2
    memory = np.zeros(size + 32, np.uint8)
    start = -memory.ctypes.data % 16 + offset
    part = memory[start : start + size].view(np.float16)
    return contract.wrap(part.reshape(2, 5, 4, 64))


def test_refuses_misaligned_tensors(kernel, contract):
    x = at_offset(contract, 1)
    message = "q: its address and strides must be multiples of"
    refused(kernel, contract, ValueError, message, q=x)
    message = "out: its memory must begin at a multiple of 2 bytes"
    refused(kernel, contract, ValueError, message, out=x)


def test_refuses_what_is_not_at_16_bytes(kernel, contract):
    if contract.device == "cpu":
        pytest.skip("the CPU takes any multiple of an element")
    message = "its address and strides must be multiples of 16 bytes"
    for name in ("q", "out"):
        changes = {name: at_offset(contract, 8)}
        refused(kernel, contract, ValueError, f"{name}: {message}", **changes)
    x = contract.empty((2, 7, 2, 68), "float16")[..., :64]
    refused(kernel, contract, ValueError, f"k: {message}", k=x)


def test_refuses_overlap(kernel, contract):
    memory = np.zeros(2 * 5 * 4 * 64 * 2, np.uint8)
    x = contract.wrap(memory.view(np.float16).reshape(2, 5, 4, 64))
    part = contract.wrap(memory[: 2 * 4 * 5 * 4].view(np.float32).reshape(2, 4, 5))
    refused(kernel, contract, ValueError, "out: overlaps q; pass memory", q=x, out=x)
    refused(kernel, contract, ValueError, "out: overlaps k", k=x, v=x, out=x)
    refused(kernel, contract, ValueError, "lse: overlaps q", q=x, lse=part)
    refused(kernel, contract, ValueError, "lse: overlaps out", out=x, lse=part)
    # out begins and ends between the first and the last query of q.
    spread = contract.empty((1, 10, 4, 64), "float16")
    q, out = spread[:, ::2], spread[:, 1:6]
    k = contract.empty((1, 7, 2, 64), "float16")
    changes = {"q": q, "k": k, "v": k, "out": out}
    changes["lse"] = contract.empty((1, 4, 5), "float32")
    refused(kernel, contract, ValueError, "out: overlaps q", **changes)


def test_refuses_other_numbers(kernel, contract):
    for scale in (0.0, -1.0, np.inf, np.nan):
        message = "softmax_scale: expected a finite number above 0, got"
        refused(kernel, contract, ValueError, message, softmax_scale=scale)
    for softcap in (-1.0, np.inf, np.nan):
        message = r"softcap: expected a finite number, 0 \(off\) or above, got"
        refused(kernel, contract, ValueError, message, softcap=softcap)
    for name in ("softmax_scale", "softcap", "window_left", "window_right"):
        refused(kernel, contract, TypeError, None, **{name: "much"})
    refused(kernel, contract, TypeError, None, window_left=0.5)


def test_refuses_what_is_no_tensor(kernel, contract):
    for name in ("q", "k", "v", "alibi_slopes", "out", "lse"):
        for value in (1.0, "x", [1.0]):
            refused(kernel, contract, TypeError, None, **{name: value})
    for name in ("q", "k", "v"):
        refused(kernel, contract, TypeError, None, **{name: None})
    with pytest.raises(TypeError, match="expected a tensor, got float"):
        kernel.flash_attn_func(1.0, 1.0, 1.0)


def test_refuses_another_device(kernel, contract, devices, elsewhere):
    shapes = {"q": (2, 5, 4, 64), "k": (2, 7, 2, 64), "v": (2, 7, 2, 64)}
    shapes |= {"out": (2, 5, 4, 64), "lse": (2, 4, 5), "alibi_slopes": (4,)}
    for name, shape in shapes.items():
        dtype = "float16" if len(shape) == 4 else "float32"
        message = f"{name}: expected the device of "
        if name == "q":
            message = f"q: expected a tensor on {devices[0]}, got one on"
        changes = {name: elsewhere.empty(shape, dtype)}
        refused(kernel, contract, ValueError, message, **changes)
