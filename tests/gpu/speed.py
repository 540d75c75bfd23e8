"""How fast the relu of an emitted rust-cuda repository is on a GPU, beside torch and a copy."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from types import ModuleType
from typing import Any

import torch
from checks import DTYPES, check


@check
def bandwidth(modules: list[ModuleType]) -> dict[str, Any]:
    """TB/s read and written at 2^26 elements: the median of interleaved rounds, by CUDA events."""
    return {str(dtype): compare(modules, dtype) for dtype in DTYPES}


def compare(modules: list[ModuleType], dtype: torch.dtype) -> dict[str, dict[str, float]]:
    x = torch.randn(1 << 26, device="cuda").to(dtype)
    out = torch.empty_like(x)
    calls: dict[str, Callable[[], Any]] = {"copy": partial(out.copy_, x), "torch": partial(torch.relu, x)}
    for kernel in modules:
        calls[kernel.__name__] = partial(kernel.relu, x, out)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(30):
        for name, call in calls.items():
            times[name].append(milliseconds(call, 20))
    speed = {name: 2 * x.nbytes / median(row) / 1e9 for name, row in times.items()}
    return {
        name: {
            "TB/s": round(speed[name], 3),
            "of torch": round(speed[name] / speed["torch"], 3),
            "of copy": round(speed[name] / speed["copy"], 3),
        }
        for name in calls
    }


def milliseconds(call: Callable[[], Any], calls: int) -> float:
    """Time of one of some calls that run back to back."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / calls


@check
def time_of_a_call(modules: list[ModuleType]) -> dict[str, float]:
    """Microseconds that a call of 256 elements takes the caller."""
    x = torch.randn(256, device="cuda")
    calls: dict[str, Callable[[], Any]] = {"torch.relu_": partial(torch.relu_, x)}
    for kernel in modules:
        calls[kernel.__name__] = partial(kernel.relu, x, x)
    report = {}
    for name, call in calls.items():
        times = []
        for _ in range(20):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(500):
                call()
            times.append((time.perf_counter() - began) / 500 * 1e6)
        report[name] = round(median(times), 2)
    return report
