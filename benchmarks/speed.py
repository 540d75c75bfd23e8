"""How fast the ops of emitted repositories are, beside torch and a copy: results are checked first, then timed.

    python benchmarks/speed.py REPOSITORY... --report FILE.json [--device cuda] [--threads N] [--quick]

REPOSITORY holds a built `build/<variant>/`. Needs torch, kernels and apache-tvm-ffi. Each figure is the median of
rounds in which all candidates take turns. Where torch makes a new output, so do ours.
`speed_report.py` makes a page and a plot of the reports.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import kernels
import torch
import torch.nn.functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.append(str(Path(__file__).parent.parent / "tests/gpu"))
from starters import attention, starter

Call = Callable[[], Any]


@dataclass
class Case:
    """One size of one op: who can do it, and how much work it is."""

    op: str
    size: str
    dtype: torch.dtype
    work: float
    """Bytes that have to be read and written at least, or floating-point operations."""
    unit: str
    """TB/s, GB/s, TFLOP/s or GFLOP/s."""
    ours: dict[str, Call]
    others: dict[str, Call]
    expected: torch.Tensor
    """What ours must compute, in float64."""
    reference: str = "torch"
    """The candidate that ours is compared with."""

    def check(self) -> None:
        epsilon = torch.finfo(self.dtype).eps
        for call in self.ours.values():
            given = call().double()
            torch.testing.assert_close(given, self.expected, rtol=4 * epsilon, atol=max(4 * epsilon, 2e-6))


def tensors(device: str, dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    return [torch.randn(shape, device=device, generator=generator).to(dtype) for shape in shapes]


def relu(modules: dict[str, ModuleType], device: str, counts: list[int], dtypes: list[torch.dtype]) -> Iterator[Case]:
    for dtype in dtypes:
        for count in counts:
            (x,) = tensors(device, dtype, (count,))
            out = torch.empty_like(x)
            ours = {name: partial(module.relu, x, out) for name, module in modules.items()}
            # On a CPU, torch.relu spends most of its time on fresh memory.
            theirs = partial(torch.relu, x) if device == "cuda" else partial(torch.clamp_min, x, 0, out=out)
            others: dict[str, Call] = {"torch": theirs, "copy": partial(out.copy_, x)}
            unit = "TB/s" if device == "cuda" else "GB/s"
            yield Case("relu", f"{count}", dtype, 2 * x.nbytes, unit, ours, others, torch.relu(x.double()))


def rms_norm(
    modules: dict[str, ModuleType], device: str, shapes: list[tuple[int, int]], dtypes: list[torch.dtype]
) -> Iterator[Case]:
    for dtype in dtypes:
        for shape in shapes:
            x, weight = tensors(device, dtype, shape, shape[1:])
            out = torch.empty_like(x)
            ours = {name: partial(module.rms_norm, x, weight) for name, module in modules.items()}
            others: dict[str, Call] = {"torch": partial(F.rms_norm, x, shape[1:], weight, 1e-6)}
            others["copy"] = partial(out.copy_, x)
            expected = F.rms_norm(x.double(), shape[1:], weight.double(), 1e-6)
            unit = "TB/s" if device == "cuda" else "GB/s"
            size = " x ".join(map(str, shape))
            yield Case("rms_norm", size, dtype, 2 * x.nbytes + weight.nbytes, unit, ours, others, expected)


BACKENDS = {
    "torch flash": SDPBackend.FLASH_ATTENTION,
    "torch cuDNN": SDPBackend.CUDNN_ATTENTION,
    "torch efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def scaled_dot_product(backend: SDPBackend, *inputs: torch.Tensor, causal: bool) -> torch.Tensor:
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(*inputs, is_causal=causal)


def flash_attn2(
    modules: dict[str, ModuleType], device: str, shapes: list[tuple[int, ...]], dtypes: list[torch.dtype]
) -> Iterator[Case]:
    for dtype in dtypes:
        for batch, heads, length, dim in shapes:
            q, k, v = tensors(device, dtype, *[(batch, length, heads, dim)] * 3)
            theirs = [tensor.transpose(1, 2).contiguous() for tensor in (q, k, v)]
            for causal in (False, True):
                ours: dict[str, Call] = {
                    name: partial(module.flash_attn_func, q, k, v, causal=causal) for name, module in modules.items()
                }
                backends = BACKENDS if device == "cuda" else {"torch flash": SDPBackend.FLASH_ATTENTION}
                others: dict[str, Call] = {
                    name: partial(scaled_dot_product, backend, *theirs, causal=causal)
                    for name, backend in backends.items()
                }
                work = 4 * batch * heads * length**2 * dim / (2 if causal else 1)
                size = f"{batch}, {heads}, {length}, {dim}" + (", causal" if causal else "")
                unit = "TFLOP/s" if device == "cuda" else "GFLOP/s"
                expected = exact_attention(q, k, v, causal)
                yield Case("flash_attn2", size, dtype, work, unit, ours, others, expected, "torch flash")


def exact_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """In float64, one batch entry and some heads at a time, since the scores of all would not fit."""
    out = torch.empty_like(q, dtype=torch.float64)
    for b in range(q.shape[0]):
        for h in range(q.shape[2]):
            one = [tensor[b : b + 1, :, h : h + 1].double() for tensor in (q, k, v)]
            if causal:
                one = [tensor.transpose(1, 2) for tensor in one]
                out[b, :, h] = F.scaled_dot_product_attention(*one, is_causal=True)[0, 0]
            else:
                out[b, :, h] = attention(*one)[0, :, 0]
    return out


def seconds_on_gpu(call: Call, calls: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / calls / 1e3


def seconds_on_cpu(call: Call, calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls


def timed(case: Case, device: str, budget: float) -> dict[str, Any]:
    """Seconds of one call, for each candidate that can do it: the median of up to 30 rounds."""
    case.check()
    seconds = seconds_on_gpu if device == "cuda" else seconds_on_cpu
    calls: dict[str, Call] = {}
    for name, call in {**case.ours, **case.others}.items():
        try:
            seconds(call, 2)
        except RuntimeError:
            continue  # A backend of torch that does not take this.
        calls[name] = call
    slowest = max(seconds(call, 1) for call in calls.values())
    repeats = max(1, min(50, int(2e-3 / slowest)))
    rounds = max(5, min(30, int(budget / (slowest * repeats * len(calls)))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(seconds(call, repeats))
    found = {name: median(row) for name, row in times.items()}
    scale = {"T": 1e12, "G": 1e9}[case.unit[0]]
    return {
        "op": case.op,
        "size": case.size,
        "dtype": str(case.dtype).removeprefix("torch."),
        "unit": case.unit,
        "reference": case.reference,
        "ours": list(case.ours),
        "seconds": found,
        "speed": {name: case.work / value / scale for name, value in found.items()},
    }


def peaks(device: str) -> dict[str, float]:
    """What this machine does at best: a large copy, and a large product of float16 matrices."""
    if device != "cuda":
        return {}
    x = torch.randn(1 << 30, device=device)
    y = torch.empty_like(x)
    a = torch.randn(8192, 8192, device=device).half()
    copy = median(seconds_on_gpu(partial(y.copy_, x), 3) for _ in range(10))
    product = median(seconds_on_gpu(partial(torch.mm, a, a), 5) for _ in range(10))
    return {"copy, TB/s": 2 * x.nbytes / copy / 1e12, "float16 matrix product, TFLOP/s": 2 * 8192**3 / product / 1e12}


def call_times(modules: list[tuple[str, ModuleType]], device: str) -> list[dict[str, Any]]:
    """Microseconds that a small call takes the caller, back to back, from Python: one row of 4096, float32."""
    x, weight = tensors(device, torch.float32, (1, 4096), (4096,))
    out = torch.empty_like(x)
    calls: dict[str, dict[str, Call]] = {"relu": {"torch": partial(torch.relu, x)}}
    calls["rms_norm"] = {"torch": partial(F.rms_norm, x, (4096,), weight, 1e-6)}
    for name, module in modules:
        if hasattr(module, "relu"):
            calls["relu"][name] = partial(module.relu, x, out)
            calls["relu"][f"{name}, new output"] = partial(module.relu, x)
        if hasattr(module, "rms_norm"):
            calls["rms_norm"][name] = partial(module.rms_norm, x, weight, out=out)
            calls["rms_norm"][f"{name}, new output"] = partial(module.rms_norm, x, weight)
    return [{"op": op, "microseconds": caller_microseconds(row, device)} for op, row in calls.items() if len(row) > 1]


def caller_microseconds(calls: dict[str, Call], device: str) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(25):
        for name, call in calls.items():
            if device == "cuda":
                torch.cuda.synchronize()
            times[name].append(seconds_on_cpu(call, 400) * 1e6)
    return {name: median(row) for name, row in times.items()}


def cases(by_op: dict[str, dict[str, ModuleType]], device: str, quick: bool) -> Iterator[Case]:
    float32, float16, bfloat16 = torch.float32, torch.float16, torch.bfloat16
    if device == "cuda":
        sizes: dict[str, Any] = {
            "relu": [[1 << n for n in range(12, 29, 4)], [float32, float16]],
            "rms_norm": [
                [(1, 4096), (64, 4096), (4096, 4096), (16384, 8192), (65536, 1024), (1 << 20, 128), (128, 1 << 17)],
                [float32, float16, bfloat16],
            ],
            "flash_attn2": [
                [(2, 8, 128, 64), (8, 16, 512, 64), (4, 16, 2048, 64), (4, 16, 4096, 128), (2, 16, 8192, 128)],
                [float16, bfloat16],
            ],
        }
    else:
        sizes = {
            "relu": [[1 << 12, 1 << 18, 1 << 25], [float32, bfloat16]],
            "rms_norm": [[(1, 4096), (64, 4096), (8192, 4096)], [float32, bfloat16]],
            "flash_attn2": [
                [(1, 8, 128, 64), (2, 8, 1024, 64), (1, 8, 4096, 64), (1, 8, 2048, 128)],
                [float32, bfloat16],
            ],
        }
    makers = {"relu": relu, "rms_norm": rms_norm, "flash_attn2": flash_attn2}
    for op, modules in by_op.items():
        shapes, dtypes = sizes[op]
        yield from makers[op](modules, device, shapes[-2:] if quick else shapes, dtypes[:1] if quick else dtypes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repositories", nargs="+", type=Path)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of torch and of ours, on a CPU")
    parser.add_argument("--seconds", type=float, default=1.0, help="to spend on each case, about")
    parser.add_argument("--quick", action="store_true", help="the two largest sizes, one dtype")
    options = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    torch.set_num_threads(options.threads)
    backend = "cuda" if options.device == "cuda" else "cpu"
    named = [(path.name, kernels.get_local_kernel(path, backend=backend)) for path in options.repositories]
    by_op: dict[str, dict[str, ModuleType]] = {}
    for name, module in named:
        op = starter(module).function.replace("flash_attn_func", "flash_attn2")
        by_op.setdefault(op, {})[name] = module
    rows, failed = [], False
    for case in cases(by_op, options.device, options.quick):
        try:
            row = timed(case, options.device, options.seconds)
        except (AssertionError, RuntimeError) as error:
            failed = True
            print(f"{case.op} {case.size} {case.dtype}: FAILED: {str(error)[:500]}", flush=True)
            continue
        rows.append(row)
        speeds = ", ".join(f"{name} {speed:.3g}" for name, speed in row["speed"].items())
        print(f"{row['op']} {row['size']} {row['dtype']}: {speeds} {row['unit']}", flush=True)
    machine = {
        "date": str(date.today()),
        "device": torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or "CPU",
        "threads": options.threads if options.device == "cpu" else None,
        "torch": torch.__version__,
        **{package: version(package) for package in ("apache-tvm-ffi", "kernels")},
    }
    report = {
        "machine": machine,
        "peaks": peaks(options.device),
        "rows": rows,
        "calls": call_times(named, options.device),
    }
    options.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(report["peaks"], *report["calls"], sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
