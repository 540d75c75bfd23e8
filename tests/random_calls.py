"""Run as a program: calls a kernel at random, and says what came of it.

`python random_calls.py VARIANT [--calls 10000] [--threads 1] [--seed 0] [--memory guarded|malloc]` calls every function
of the kernel in the directory VARIANT with tensors of any shape, strides, dtype and device, and with what is no tensor,
too few and too many. A call may raise any Python exception but that of a panic; otherwise its value must be right,
where KNOWN has the function. Whatever memory is not the output's stays as it is. Guarded memory lies between pages that
nobody may touch, so that a step outside ends the process; memory of malloc is for valgrind.
"""

import argparse
import ctypes
import inspect
import json
import mmap
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernels
import numpy as np

Shape = tuple[int, ...]
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.malloc.restype = ctypes.c_void_p
PAGE = mmap.PAGESIZE
DTYPES = ["float32", "float16", "bfloat16"] * 3 + [
    "float64",
    "int8",
    "uint8",
    "int16",
    "int32",
    "int64",
    "bool",
    "complex64",
]
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 1e-45, -1e-45, 6e4, -6e4]
JUNK: list[Any] = [None, 1, -1, 1.5, float("nan"), 2**70, "x", b"x", [], [1.0], {}, object(), len, np.float32(1), True]


class Known:
    """A function of a starter: shapes of its arguments that fit each other, and what it computes of their values."""

    def __init__(
        self, shapes: Callable[[np.random.Generator], list[Shape]], reference: Callable[..., Any], error: float
    ):
        self.shapes, self.reference, self.error = shapes, reference, error


def any_shape(rng: np.random.Generator) -> Shape:
    return tuple(int(rng.choice([0, 1, 2, 3, 5, 8, 17, 33])) for _ in range(rng.integers(0, 5)))


def rows_and_weight(rng: np.random.Generator) -> list[Shape]:
    shape = (*any_shape(rng), int(rng.choice([0, 1, 2, 3, 7, 8, 33])))
    return [shape, shape[-1:]]


def rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray | None:
    """None for an infinite weight, which times what is 0 in float32 alone is NaN."""
    if np.isinf(weight).any():
        return None
    with np.errstate(all="ignore"):
        return x / np.sqrt((x * x).sum(-1, keepdims=True) / max(x.shape[-1], 1) + 1e-6) * weight


def queries_and_keys(rng: np.random.Generator) -> list[Shape]:
    batch, heads, group = (int(rng.choice(sizes)) for sizes in ([0, 1, 2], [1, 2], [1, 3]))
    dim = int(rng.choice([32, 40, 64]))
    queries, keys = (int(rng.choice([0, 1, 3, 17, 33])) for _ in range(2))
    return [(batch, queries, heads * group, dim)] + [(batch, keys, heads, dim)] * 2


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray | None:
    """None where scores are so large that float32 leaves little of their differences."""
    if any(not np.isfinite(x).all() or abs(x).max(initial=0.0) > 100 for x in (q, k, v)):
        return None
    k, v = (np.repeat(x, q.shape[2] // k.shape[2], axis=2) for x in (k, v))
    weights = np.exp(np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.shape[3]))
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.einsum("bhij,bjhd->bihd", weights / weights.sum(-1, keepdims=True), v))


KNOWN = {
    "relu": Known(lambda rng: [any_shape(rng)], lambda x: np.where(x <= 0, 0.0, x), 0.0),
    "rms_norm": Known(rows_and_weight, rms_norm, 0.01),
    "flash_attn_func": Known(queries_and_keys, attention, 0.02),
}
"""What is missing here is called all the same, without a look at its values."""


class Tensor:
    """numpy's memory as DLPack shows it, with what is written over in its description."""

    def __init__(self, array: np.ndarray, **changes: int):
        self.array, self.changes = array, changes
        self.shape = array.shape

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        address = pointer(capsule, b"dltensor")
        # struct DLTensor of dlpack.h: device type and number, dtype code and lanes.
        places = {
            "device": (8, ctypes.c_int32),
            "number": (12, ctypes.c_int32),
            "code": (20, ctypes.c_uint8),
            "lanes": (22, ctypes.c_uint16),
        }
        for name, value in self.changes.items():
            offset, kind = places[name]
            kind.from_address(address + offset).value = value
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.changes.get("device", 1), self.changes.get("number", 0)


def guarded(size: int, at_end: bool) -> np.ndarray:
    """Bytes that end where a forbidden page begins, or begin where one ends."""
    inside = max(1, -(-size // PAGE)) * PAGE
    memory = mmap.mmap(-1, inside + 2 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (start, start + PAGE + inside):
        if LIBC.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = PAGE + (inside - size if at_end else 0)
    return np.frombuffer(memory, np.uint8, size, offset)


def from_malloc(size: int, at_end: bool) -> np.ndarray:
    block = (ctypes.c_uint8 * size).from_address(LIBC.malloc(ctypes.c_size_t(max(size, 1))))
    return np.frombuffer(block, np.uint8) if size else np.empty(0, np.uint8)


class Caller:
    """One thread's calls."""

    def __init__(self, module: Any, seed: int, memory: Callable[[int, bool], np.ndarray]):
        self.module, self.memory = module, memory
        self.rng = np.random.default_rng(seed)
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def array(self, shape: Shape, dtype: str) -> tuple[np.ndarray, np.ndarray]:
        """Random values in memory of their own: the view that is passed on, and all of the memory."""
        kind = np.dtype("uint16" if dtype == "bfloat16" else dtype)
        layout = self.rng.choice(
            ["plain", "plain", "plain", "plain", "wide", "reversed", "swapped", "offset", "spread"]
        )
        full = list(shape)
        if layout == "wide" and full:
            full[-1] *= 2
        shift = int(self.rng.integers(1, 4)) if layout == "offset" else 0
        size = int(np.prod(full, dtype=np.int64)) * kind.itemsize
        whole = self.memory(size + shift, self.chance(0.5))
        values = self.rng.standard_normal(size // kind.itemsize) * 3
        some = self.rng.random(values.shape) < 0.1
        values[some] = self.rng.choice(SPECIAL, some.sum())
        with np.errstate(all="ignore"):
            if dtype == "bfloat16":
                data = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
            else:
                data = np.nan_to_num(values).astype(kind) if kind.kind in "iub" else values.astype(kind)
        whole[shift:] = np.frombuffer(data.tobytes(), np.uint8)
        view = whole[shift:].view(kind).reshape(full)
        if layout == "wide" and full:
            view = view[..., ::2]
        elif layout == "reversed" and full:
            view = view[tuple(slice(None, None, -1) for _ in full)]
        elif layout == "swapped":
            view = view.T
        elif layout == "spread" and shape:
            view = np.broadcast_to(view[:1], shape) if shape[0] else view
        return view, whole

    def describe(self, view: np.ndarray, dtype: str) -> Any:
        changes = {"code": 4} if dtype == "bfloat16" else {}
        if self.chance(0.06):
            changes |= {"device": int(self.rng.choice([2, 3, 4, 7, 8, 10, 13])), "number": int(self.rng.integers(0, 3))}
        if self.chance(0.02):
            changes["lanes"] = int(self.rng.choice([0, 2, 4]))
        if self.chance(0.02):
            changes["code"] = int(self.rng.choice([0, 1, 3, 5, 6, 7, 17, 18, 200]))
        return Tensor(view, **changes) if changes or self.chance(0.3) else view

    def call(self, name: str) -> None:
        """One call: mostly one that might be right, with up to a few things wrong."""
        known, parameters = KNOWN.get(name), inspect.signature(getattr(self.module, name)).parameters
        required = [parameter for parameter in parameters.values() if parameter.default is parameter.empty]
        shapes = known.shapes(self.rng) if known else [any_shape(self.rng)] * len(required)
        dtype = str(self.rng.choice(DTYPES))
        dtypes = [dtype if self.chance(0.95) else str(self.rng.choice(DTYPES)) for _ in [*shapes, "out"]]
        shapes = [shape if self.chance(0.95) else any_shape(self.rng) for shape in [*shapes, shapes[0]]]
        pairs = [self.array(shape, kind) for shape, kind in zip(shapes, dtypes, strict=True)]
        *tensors, out = [self.describe(view, kind) for (view, _), kind in zip(pairs, dtypes, strict=True)]
        inputs = [decode(view, kind) for (view, _), kind in zip(pairs[:-1], dtypes, strict=False)]
        before = [whole.copy() for _, whole in pairs]
        given, named = self.spoil(tensors, out, list(parameters)[len(required) :])
        try:
            getattr(self.module, name)(*given, **named)
        except Exception as error:
            self.counts[type(error).__name__] += 1
            if isinstance(error, SystemError) or "panicked" in str(error):
                self.failures.append(f"{name}{describe(given)}: {error!r}")
            if any(not np.array_equal(whole, old) for (_, whole), old in zip(pairs, before, strict=True)):
                self.failures.append(f"{name}{describe(given)} raised {error!r}, and wrote")
            return
        self.counts["accepted"] += 1
        as_meant = [*map(id, given), *map(id, named.values())] == [*map(id, tensors), id(out)]
        problem = f"{name}{describe([*given, *named.values()])}"
        given_out = any(argument is out for argument in [*given, *named.values()])
        self.look_elsewhere(problem, pairs, before, out_too=not given_out)
        if known and as_meant and set(named) <= {"out"}:
            found, right = decode(pairs[-1][0], dtypes[-1]), known.reference(*inputs)
            if right is None:
                return
            self.counts["checked"] += 1
            if dtypes[-1] == "float16":  # where what is too large for it is infinite
                with np.errstate(over="ignore"):
                    right = right.astype(np.float16).astype(np.float64)
            if not np.allclose(found, right, rtol=known.error, atol=known.error, equal_nan=True):
                self.failures.append(f"{problem} is wrong")

    def spoil(self, tensors: list[Any], out: Any, optional: list[str]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments, by place and by name: seldom without the output, with junk, too few or too many."""
        given, named = list(tensors), {}
        if "out" in optional and self.chance(0.8):
            if optional[0] == "out" and self.chance(0.5):
                given.append(out)
            else:
                named["out"] = out
        if self.chance(0.04) and given:
            given[int(self.rng.integers(len(given)))] = self.junk()
        if self.chance(0.02):
            given = given[: int(self.rng.integers(0, len(given) + 1))]
        if self.chance(0.02):
            given += [self.junk() for _ in range(self.rng.integers(1, 4))]
        if self.chance(0.02):
            named["nothing"] = 1
        named |= {name: self.junk() for name in optional if name != "out" and self.chance(0.05)}
        return given, named

    def junk(self) -> Any:
        return JUNK[int(self.rng.integers(len(JUNK)))]

    def look_elsewhere(self, problem: str, pairs: Any, before: Any, out_too: bool) -> None:
        """Nothing but the output is written, which comes last."""
        for index, ((view, whole), old) in enumerate(zip(pairs, before, strict=True)):
            expected = old.copy()
            if index == len(pairs) - 1 and not out_too:
                start = view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
                expected[start : start + view.nbytes] = whole[start : start + view.nbytes]
            if not np.array_equal(whole, expected):
                self.failures.append(f"{problem} wrote elsewhere, in argument {index}")


def decode(view: np.ndarray, dtype: str) -> np.ndarray:
    """The values of a tensor, as they are now."""
    if dtype == "bfloat16":
        view = (view.astype(np.uint32) << 16).view(np.float32)
    return view.astype(np.complex128 if dtype == "complex64" else np.float64)


def describe(given: list[Any]) -> str:
    arrays = [argument.array if isinstance(argument, Tensor) else argument for argument in given]
    return str([(a.dtype.name, a.shape, a.strides) if isinstance(a, np.ndarray) else type(a).__name__ for a in arrays])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", type=Path)
    parser.add_argument("--calls", type=int, default=10000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory", choices=["guarded", "malloc"], default="guarded")
    options = parser.parse_args()
    module = kernels.get_local_kernel(options.variant)
    memory = guarded if options.memory == "guarded" else from_malloc
    callers = [Caller(module, options.seed * 1000 + index, memory) for index in range(options.threads)]

    def work(caller: Caller) -> None:
        try:
            for number in range(options.calls // options.threads):
                caller.call(module.__all__[number % len(module.__all__)])
        except BaseException as error:
            caller.failures.append(f"the caller itself failed: {error!r}")
            raise

    threads = [threading.Thread(target=work, args=(caller,)) for caller in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failures = [failure for caller in callers for failure in caller.failures]
    counts = sum((caller.counts for caller in callers), Counter[str]())
    sys.stdout.write(json.dumps({"failures": failures[:10], "counts": counts}) + "\n")
    sys.stdout.flush()
    os._exit(1 if failures else 0)  # Python's own end is none of our concern, and worries valgrind.


if __name__ == "__main__":
    main()
