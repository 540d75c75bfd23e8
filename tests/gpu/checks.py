"""What must hold for the op of an emitted rust-cuda repository on a GPU; `prove_gpu.py` runs these."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from starters import FLOATS, starter

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


def relus(modules: list[ModuleType]) -> list[ModuleType]:
    """Those with relu, of which every bit is known."""
    if found := [kernel for kernel in modules if hasattr(kernel, "relu")]:
        return found
    raise SkipCheck("for relu")


@check
def values(modules: list[ModuleType]) -> None:
    for kernel in modules:
        op = starter(kernel)
        for dtype in op.dtypes:
            for count in [1, 7, 20, 771, 1 << 16, 1_003_000]:
                op.check(kernel, count, dtype)


@check
def every_16_bit_value(modules: list[ModuleType]) -> None:
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32, device="cuda").to(torch.int16)
    for kernel in relus(modules):
        same(kernel, bits.view(torch.float16))
        same(kernel, bits.view(torch.bfloat16))


@check
def special_values(modules: list[ModuleType]) -> None:
    inf, nan = float("inf"), float("nan")
    for kernel in relus(modules):
        for dtype in FLOATS:
            tiny = torch.finfo(dtype).smallest_normal / 4  # subnormal
            row = [inf, -inf, nan, -nan, 0.0, -0.0, tiny, -tiny, torch.finfo(dtype).max]
            same(kernel, torch.tensor(row * 100, device="cuda", dtype=dtype))


@check
def empty(modules: list[ModuleType]) -> None:
    for kernel in relus(modules):
        for dtype in FLOATS:
            for shape in [(0,), (3, 0, 2)]:
                same(kernel, torch.empty(shape, device="cuda", dtype=dtype))


@check
def odd_sizes_and_misaligned(modules: list[ModuleType]) -> None:
    """Slices that begin at any element, of any size, in place too; what lies around them is left alone."""
    base = torch.randn(5000, device="cuda")
    for kernel in relus(modules):
        for dtype in FLOATS:
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
def more_than_2_to_the_32_elements(modules: list[ModuleType]) -> None:
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        raise SkipCheck("needs 40 GiB of free GPU memory")
    for kernel in modules:
        op = starter(kernel)
        inputs = op.huge()
        count = len(inputs[0])
        assert inputs[0].numel() > 1 << 32
        out = torch.full_like(inputs[0], 9.0)
        op.call(kernel, inputs, out)
        assert torch.equal(out[:8], out[-8:])
        op.compare([tensor[:8] if len(tensor) == count else tensor for tensor in inputs], out[:8])
        for i in range(8, count - 8, 1 << 22):
            # The input is 0 there, so that no result is 9 by chance.
            left = (out[i : min(i + (1 << 22), count - 8)] == 9).flatten(1).any(1)
            assert not left.any(), f"{kernel.__name__}: not written, from {i + int(left.nonzero()[0])} on"
        del inputs, out
        torch.cuda.empty_cache()


@check
def side_streams(modules: list[ModuleType]) -> None:
    """Runs on the caller's stream, after what is there, and waits for nothing."""
    for kernel in modules:
        op = starter(kernel)
        dtype = op.dtypes[-1]
        inputs = op.inputs(1 << 18, dtype, "cuda")
        late, out = inputs[0].clone(), torch.empty_like(inputs[0])
        op.check(kernel, 1000, dtype)  # torch, too, loads its kernels at their first use
        op.call(kernel, inputs, out)
        inputs[0].zero_()
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in range(2)]
        with torch.cuda.stream(streams[0]):
            torch.cuda._sleep(500_000_000)
            inputs[0].copy_(late)
            began = time.perf_counter()
            op.call(kernel, inputs, out)
            assert time.perf_counter() - began < 0.05, "the call waited"
            assert not streams[0].query(), "the stream is already empty"
        with torch.cuda.stream(streams[1]):
            op.check(kernel, 1000, dtype)
        assert not streams[0].query(), "another stream waited for this one"
        streams[0].synchronize()
        op.compare(inputs, out)


@check
def graph_capture_and_replay(modules: list[ModuleType]) -> None:
    for kernel in modules:
        op = starter(kernel)
        inputs = op.inputs(100_003, op.dtypes[-1], "cuda")
        out = torch.empty_like(inputs[0])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            op.call(kernel, inputs, out)
        for _ in range(3):
            inputs[0].normal_()
            out.fill_(-3.0)
            graph.replay()
            op.compare(inputs, out)


@in_child
def first_call_inside_a_capture(modules: list[ModuleType]) -> None:
    graph_capture_and_replay(modules)


@in_child
def first_call_from_8_threads(modules: list[ModuleType]) -> None:
    together = threading.Barrier(8)
    failures: list[str] = []

    def call(count: int) -> None:
        together.wait()
        try:
            for kernel in modules:
                starter(kernel).check(kernel, count, torch.float16)
        except Exception:
            failures.append(traceback.format_exc())

    run_together([threading.Thread(target=call, args=(1000 + i,)) for i in range(8)])
    assert not failures, failures[0]


def run_together(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@check
def launches_with_more_and_less_shared_memory(modules: list[ModuleType]) -> None:
    """From several threads at once: none takes from another what it asked the driver for."""
    found = [kernel for kernel in modules if hasattr(kernel, "rms_norm")]
    if not found:
        raise SkipCheck("no rms_norm")
    problems: list[BaseException] = []

    def call(kernel: ModuleType, columns: int) -> None:
        x, weight = torch.ones(2, columns, device="cuda"), torch.ones(columns, device="cuda")
        try:
            for _ in range(2000):
                kernel.rms_norm(x, weight)
        except BaseException as problem:
            problems.append(problem)

    for kernel in found:
        run_together([threading.Thread(target=call, args=(kernel, n)) for n in (9001, 20004, 40004, 60001, 140004)])
    assert not problems, problems[0]


@check
def several_kernels_in_one_process(modules: list[ModuleType]) -> str:
    if len(modules) < 2:
        raise SkipCheck("give two repositories")
    for kernel in modules * 3:
        starter(kernel).check(kernel, 12345, torch.float16)
    return f"{len(modules)} kernels"


@in_child
def two_devices(modules: list[ModuleType]) -> str:
    """The first call is for the second device, while the first one is current; and the current device stays."""
    if torch.cuda.device_count() < 2:
        raise SkipCheck("one GPU")
    with torch.cuda.device(0):
        for kernel in modules:
            for device in ("cuda:1", "cuda:0", "cuda:1"):
                starter(kernel).check(kernel, 10_001, torch.float16, device)
                assert torch.cuda.current_device() == 0
            inputs = starter(kernel).inputs(100, torch.float16, "cuda:0")
            with raises(ValueError, "out", "cuda:0", "cuda:1"):
                starter(kernel).call(kernel, inputs, inputs[0].to("cuda:1"))
    checks = [(starter(kernel), (kernel, 999, torch.float16, f"cuda:{i % 2}")) for kernel in modules for i in range(8)]
    run_together([threading.Thread(target=op.check, args=arguments) for op, arguments in checks])
    return f"{torch.cuda.device_count()} GPUs"


@in_child
def small_calls(modules: list[ModuleType]) -> None:
    """What runs under compute-sanitizer."""
    for kernel in modules:
        op = starter(kernel)
        for dtype in op.dtypes:
            for count in [1, 1021, 4099]:
                inputs = op.inputs(count, dtype, "cuda")
                op.call(kernel, inputs, torch.empty_like(inputs[0]))
            if op.function == "rms_norm":  # Rows that blocks of a cluster share, and rows for shared memory.
                for columns in [40_008, 300_008]:
                    x = torch.ones(3, columns, device="cuda", dtype=dtype)
                    op.call(kernel, [x, x[0]], torch.empty_like(x))
    torch.cuda.synchronize()
