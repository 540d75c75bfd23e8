"""What must hold for the relu of an emitted rust-cuda repository on a GPU; `prove_gpu.py` runs these."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
Check = Callable[[list[ModuleType]], Any]
CHECKS: dict[str, Check] = {}
CHILD_CHECKS: dict[str, Check] = {}


class SkipCheck(Exception):  # noqa: N818  (not an error)
    """The check does not apply to this machine."""


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def in_child(function: Check) -> Check:
    """A check that must be the first use of the kernels in its process."""
    CHILD_CHECKS[function.__name__] = function
    return function


def same(kernel: ModuleType, x: torch.Tensor, out: torch.Tensor | None = None) -> None:
    """relu of `x` must be torch's, bit for bit but for the payload of NaN, and +0.0 for every zero."""
    expected = torch.relu(x)
    given = kernel.relu(x, out)
    assert (given.shape, given.dtype, given.device) == (x.shape, x.dtype, x.device)
    assert torch.equal(given.isnan(), expected.isnan())
    assert torch.equal(given.nan_to_num(7.0), expected.nan_to_num(7.0))
    assert not torch.signbit(given[given == 0]).any(), "-0.0 in the result"


@contextmanager
def raises(kind: type[Exception], *words: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        if missing := [word for word in words if word not in str(error)]:
            raise AssertionError(f"not said: {missing}") from error
        return
    raise AssertionError(f"no {kind.__name__} with {words}")


@check
def values(modules: list[ModuleType]) -> None:
    for kernel in modules:
        for dtype in DTYPES:
            for shape in [(), (1,), (7,), (4, 5), (3, 1, 257), (1 << 20,), (1000, 1003)]:
                same(kernel, torch.randn(shape, device="cuda").to(dtype))


@check
def every_16_bit_value(modules: list[ModuleType]) -> None:
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32, device="cuda").to(torch.int16)
    for kernel in modules:
        same(kernel, bits.view(torch.float16))
        same(kernel, bits.view(torch.bfloat16))


@check
def special_values(modules: list[ModuleType]) -> None:
    inf, nan = float("inf"), float("nan")
    for kernel in modules:
        for dtype in DTYPES:
            tiny = torch.finfo(dtype).smallest_normal / 4  # subnormal
            row = [inf, -inf, nan, -nan, 0.0, -0.0, tiny, -tiny, torch.finfo(dtype).max]
            same(kernel, torch.tensor(row * 100, device="cuda", dtype=dtype))


@check
def empty(modules: list[ModuleType]) -> None:
    for kernel in modules:
        for dtype in DTYPES:
            for shape in [(0,), (3, 0, 2)]:
                same(kernel, torch.empty(shape, device="cuda", dtype=dtype))


@check
def odd_sizes_and_misaligned(modules: list[ModuleType]) -> None:
    """Slices that begin at any element, of any size, in place too; what lies around them is left alone."""
    base = torch.randn(5000, device="cuda")
    for kernel in modules:
        for dtype in DTYPES:
            for start in range(9):
                for size in [1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 255, 257, 4099]:
                    x = base.to(dtype)[start : start + size]
                    same(kernel, x)
                    for offset in (0, start, 1):
                        frame = torch.full((5000,), 9.0, device="cuda", dtype=dtype)
                        same(kernel, x, frame[offset : offset + size])
                        around = torch.cat([frame[:offset], frame[offset + size :]])
                        assert (around == 9).all(), "wrote outside of out"
                copy = base.to(dtype)[start:]
                expected = torch.relu(copy)
                kernel.relu(copy, copy)
                assert torch.equal(copy, expected), "in place"


@check
def more_than_2_to_the_32_elements(modules: list[ModuleType]) -> str:
    count = (1 << 32) + 13
    if torch.cuda.mem_get_info()[0] < 5 * count:
        raise SkipCheck(f"needs {5 * count >> 30} GiB of free GPU memory")
    for kernel in modules:
        for shift in (0, 1):  # 1: not aligned alike, so one element at a time
            x = torch.full((count,), -1.0, device="cuda", dtype=torch.float16)
            out = torch.full((count + 1,), 9.0, device="cuda", dtype=torch.float16)[shift:][:count]
            x[-1], x[1 << 32], x[(1 << 31) + 3], x[0] = 4.0, 3.0, 2.0, 1.0
            kernel.relu(x, out)
            assert int(torch.count_nonzero(out)) == 4
            assert [float(out[i]) for i in (-1, 1 << 32, (1 << 31) + 3, 0)] == [4.0, 3.0, 2.0, 1.0]
            del x, out
    torch.cuda.empty_cache()
    return f"{count} float16 elements"


@check
def side_streams(modules: list[ModuleType]) -> None:
    """Runs on the caller's stream, after what is there, and waits for nothing."""
    for kernel in modules:
        x, out = (torch.full((1 << 20,), -1.0, device="cuda") for _ in range(2))
        kernel.relu(x, out)
        same(kernel, torch.randn(1000, device="cuda"))  # torch, too, loads its kernels at their first use
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in range(2)]
        with torch.cuda.stream(streams[0]):
            torch.cuda._sleep(500_000_000)
            x.fill_(5.0)
            began = time.perf_counter()
            kernel.relu(x, out)
            assert time.perf_counter() - began < 0.05, "the call waited"
            assert not streams[0].query(), "the stream is already empty"
        with torch.cuda.stream(streams[1]):
            same(kernel, torch.randn(1000, device="cuda"))
        assert not streams[0].query(), "another stream waited for this one"
        streams[0].synchronize()
        assert (out == 5).all()


@check
def graph_capture_and_replay(modules: list[ModuleType]) -> None:
    for kernel in modules:
        x = torch.randn(100_003, device="cuda")
        out = torch.empty_like(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernel.relu(x, out)
            kernel.relu(out, out)
        for _ in range(3):
            x.normal_()
            out.fill_(-3.0)
            graph.replay()
            assert torch.equal(out, torch.relu(x))


@in_child
def first_call_inside_a_capture(modules: list[ModuleType]) -> None:
    graph_capture_and_replay(modules)


@in_child
def first_call_from_8_threads(modules: list[ModuleType]) -> None:
    tensors = [torch.randn(1000 + i, device="cuda") for i in range(8)]
    together = threading.Barrier(8)
    failures: list[str] = []

    def call(x: torch.Tensor) -> None:
        together.wait()
        try:
            for kernel in modules:
                same(kernel, x)
        except Exception:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=call, args=(x,)) for x in tensors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


@check
def several_kernels_in_one_process(modules: list[ModuleType]) -> str:
    if len(modules) < 2:
        raise SkipCheck("give two repositories")
    x = torch.randn(12345, device="cuda")
    for kernel in modules * 3:
        same(kernel, x)
    return f"{len(modules)} kernels"


@in_child
def two_devices(modules: list[ModuleType]) -> str:
    """The first call is for the second device, while the first one is current; and the current device stays."""
    if torch.cuda.device_count() < 2:
        raise SkipCheck("one GPU")
    with torch.cuda.device(0):
        for kernel in modules:
            for device in ("cuda:1", "cuda:0", "cuda:1"):
                same(kernel, torch.randn(10_001, device=device))
                assert torch.cuda.current_device() == 0
            with raises(ValueError, "out", "cuda:0", "cuda:1"):
                kernel.relu(torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1"))
    threads = [
        threading.Thread(target=same, args=(kernel, torch.randn(999, device=f"cuda:{i % 2}")))
        for kernel in modules
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return f"{torch.cuda.device_count()} GPUs"


@in_child
def small_calls(modules: list[ModuleType]) -> None:
    """What runs under compute-sanitizer."""
    for kernel in modules:
        for dtype in DTYPES:
            for start, size in [(0, 1), (0, 4096), (1, 4099), (3, 1021)]:
                x = torch.zeros(start + size, device="cuda", dtype=dtype)[start:]
                kernel.relu(x, x)
                kernel.relu(x, torch.zeros(size, device="cuda", dtype=dtype))
    torch.cuda.synchronize()
