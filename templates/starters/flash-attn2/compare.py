# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "apache-tvm-ffi==0.1.15.post2",
#     "kernels==0.17.2",
#     "numpy",
#     "torch",
# ]
# ///
"""Compare this repository's attention with flash-attn2 of the Hub, or with torch.

``pytest`` builds the kernel; then ``uv run compare.py``, or ``python compare.py`` where
the packages above are installed. Exits with 1 where results differ.
"""

import os
import statistics
import sys
import time
import tomllib
from functools import partial
from pathlib import Path

# Without a connection to the Hub, it is not waited for.
os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", "5")
os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", "10")

import kernels
import torch

ROOT = Path(__file__).resolve().parent
BUILD = tomllib.loads((ROOT / "build.toml").read_text(encoding="utf-8"))
BACKENDS = BUILD["general"]["backends"]
DEVICE = BACKENDS[-1] if torch.cuda.is_available() else BACKENDS[0]

HUB = "kernels-community/flash-attn2"
BATCH, SEQLEN, HEADS, DIM = 2, 128, 8, 64
ATOL, RTOL = 2e-3, 2.5e-2
CALLS = 100


def own_attention():
    """The attention of the kernel in build/, which takes any version of CUDA."""
    kind = "cu[0-9]*" if "cuda" in BACKENDS else "cpu"
    variants = sorted(ROOT.glob(f"build/tvm-ffi*-{kind}-*"))
    if not variants:
        sys.exit("build/ has no kernel: run `pytest`, which builds it")
    return kernels.get_local_kernel(variants[-1]).flash_attn_func


def reference_attention():
    """Name and function of what to compare with."""
    if DEVICE == "cuda":
        try:
            return HUB, kernels.get_kernel(HUB, version=2).flash_attn_func
        except Exception as error:  # noqa: BLE001 whatever it is, there is torch
            print(f"{HUB} is not to be had: {type(error).__name__}: {error}\n")
    return "torch", torch_attention


def torch_attention(q, k, v, causal):
    # torch has the heads before the sequence.
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    attention = torch.nn.functional.scaled_dot_product_attention
    return attention(q, k, v, is_causal=causal).transpose(1, 2)


def microseconds(function) -> float:
    """Median time of a call, on the device where there is one."""
    times = []
    for _ in range(CALLS):
        if DEVICE == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            function()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3)
        else:
            begin = time.perf_counter()
            function()
            times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def main() -> int:
    if DEVICE == "cuda" and not torch.cuda.is_available():
        sys.exit("There is no CUDA device to compare on")
    own, (name, reference) = own_attention(), reference_attention()
    torch.manual_seed(0)
    shape = (BATCH, SEQLEN, HEADS, DIM)
    q, k, v = (torch.randn(shape).to(DEVICE, torch.float16) for _ in range(3))

    columns = ["causal", "largest difference", "this (us)", f"{name} (us)", ""]
    table, equal = [columns], True
    for causal in (False, True):
        functions = [partial(f, q, k, v, causal=causal) for f in (own, reference)]
        ours, theirs = (function().float() for function in functions)
        same = torch.allclose(ours, theirs, atol=ATOL, rtol=RTOL)
        equal = equal and same
        difference = (ours - theirs).abs().max().item()
        times = [f"{microseconds(function):.1f}" for function in functions]
        verdict = "same" if same else "DIFFERENT"
        table.append([str(causal), f"{difference:.6f}", *times, verdict])

    print(f"float16 {shape} on {DEVICE}: within {ATOL} + {RTOL} * |{name}|?")
    widths = [max(map(len, column)) for column in zip(*table)]
    for row in table:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip())
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
