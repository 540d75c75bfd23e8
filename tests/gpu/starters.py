"""One way to call the op of every starter, for the checks that do not care what it computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Starter:
    """Its op, `call(kernel, inputs, out)`, writes a tensor like the first input."""

    function: str
    """By which a kernel is known."""
    dtypes: tuple[torch.dtype, ...]
    inputs: Callable[[int, torch.dtype, str], Tensors]
    """About so many elements of a dtype on a device, in a shape that varies with the number."""
    call: Callable[[ModuleType, Tensors, torch.Tensor], Any]
    reference: Callable[..., torch.Tensor]
    """The same from float64."""
    huge: Callable[[], Tensors]
    """Inputs whose first has more than 2^32 elements; its last 8 entries are the same as its first 8."""

    def check(self, kernel: ModuleType, count: int, dtype: torch.dtype, device: str = "cuda") -> None:
        inputs = self.inputs(count, dtype, device)
        out = torch.full_like(inputs[0], 7.0)
        self.call(kernel, inputs, out)
        self.compare(inputs, out)

    def compare(self, inputs: Tensors, out: torch.Tensor) -> None:
        """Within what the dtype's rounding and a float32 sum allow."""
        expected = self.reference(*(tensor.double() for tensor in inputs))
        epsilon = torch.finfo(out.dtype).eps
        torch.testing.assert_close(out.double(), expected, rtol=4 * epsilon, atol=max(4 * epsilon, 2e-6))


def relu_inputs(count: int, dtype: torch.dtype, device: str) -> Tensors:
    return [torch.randn(count, device=device).to(dtype)]


def rms_norm_inputs(count: int, dtype: torch.dtype, device: str) -> Tensors:
    columns = min(count, 64 + count % 1000)
    x = torch.randn(-(-count // columns), columns, device=device).to(dtype)
    return [x, torch.randn(columns, device=device).to(dtype)]


def attention_inputs(count: int, dtype: torch.dtype, device: str) -> Tensors:
    length = min(1 + count // 256, 1000)
    return [torch.randn(2, length, 4, 64, device=device).to(dtype)] + [
        torch.randn(2, length + 13, 2, 64, device=device).to(dtype) for _ in range(2)
    ]


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    return ((q @ k.transpose(2, 3) / q.shape[3] ** 0.5).softmax(3) @ v).transpose(1, 2)


def repeated(*shape: int) -> torch.Tensor:
    """Zeros, but for the first and the last 8 entries, which are the same random numbers."""
    x = torch.zeros(shape, device="cuda", dtype=torch.float16)
    x[:8] = x[-8:] = torch.randn(8, *shape[1:], device="cuda")
    return x


def huge_attention() -> Tensors:
    """One query for each of very many batch entries, which share their keys and values."""
    q = repeated((1 << 25) + 1, 1, 1, 128)
    return [q] + [torch.randn(1, 40, 1, 128, device="cuda").half().expand(len(q), -1, -1, -1) for _ in range(2)]


FLOATS = (torch.float32, torch.float16, torch.bfloat16)
STARTERS = [
    Starter(
        "relu",
        FLOATS,
        relu_inputs,
        lambda kernel, inputs, out: kernel.relu(*inputs, out),
        torch.relu,
        lambda: [repeated((1 << 19) + 1, 8193)],
    ),
    Starter(
        "rms_norm",
        FLOATS,
        rms_norm_inputs,
        lambda kernel, inputs, out: kernel.rms_norm(*inputs, out=out),
        lambda x, weight: F.rms_norm(x, x.shape[-1:], weight, 1e-6),
        lambda: [repeated((1 << 19) + 1, 8193), torch.randn(8193, device="cuda").half()],
    ),
    Starter(
        "flash_attn_func",
        FLOATS[1:],
        attention_inputs,
        lambda kernel, inputs, out: kernel.flash_attn_func(*inputs, out=out),
        attention,
        huge_attention,
    ),
]


def starter(kernel: ModuleType) -> Starter:
    """What a kernel was made from."""
    return next(starter for starter in STARTERS if hasattr(kernel, starter.function))
