"""Attention against torch: ``kernels benchmark .`` after ``pytest``, which builds it."""

import torch
from kernels.benchmark import Benchmark


class Attention(Benchmark):
    seed = 0

    def make(self, batch, heads, seqlen, dim, dtype=None, causal=False) -> None:
        if dtype is None:
            dtype = torch.float32 if self.device == "cpu" else torch.float16
        shape = (batch, seqlen, heads, dim)
        self.q, self.k, self.v = (
            torch.randn(shape, device=self.device).to(dtype) for _ in range(3)
        )
        self.out = torch.empty_like(self.q)
        self.causal = causal

    def run(self) -> None:
        self.kernel.flash_attn_func(
            self.q, self.k, self.v, causal=self.causal, out=self.out
        )

    def reference(self) -> torch.Tensor:
        # torch has the heads before the sequence.
        q, k, v = (x.transpose(1, 2) for x in (self.q, self.k, self.v))
        attention = torch.nn.functional.scaled_dot_product_attention
        return attention(q, k, v, is_causal=self.causal).transpose(1, 2)

    def setup_short(self) -> None:
        self.make(2, 8, 128, 64)

    def setup_long(self) -> None:
        self.make(2, 8, 1024, 64)

    def setup_long_causal(self) -> None:
        self.make(2, 8, 1024, 64, causal=True)

    def setup_long_bfloat16(self) -> None:
        self.make(2, 8, 1024, 64, torch.bfloat16)

    def setup_wide(self) -> None:
        self.make(1, 8, 1024, 128)

    benchmark_short = benchmark_long = benchmark_long_causal = run
    benchmark_long_bfloat16 = benchmark_wide = run
    verify_short = verify_long = verify_long_causal = reference
    verify_long_bfloat16 = verify_wide = reference
