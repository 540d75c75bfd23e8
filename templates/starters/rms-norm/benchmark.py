"""rms_norm against torch: ``kernels benchmark .`` after ``pytest``, which builds it."""

import torch
from kernels.benchmark import Benchmark


class RmsNorm(Benchmark):
    seed = 0

    def make(self, rows: int, n: int, dtype: torch.dtype) -> None:
        self.x = torch.randn(rows, n, device=self.device).to(dtype)
        # Small results, so that a rounding is less than what `kernels` tolerates.
        self.weight = torch.rand(n, device=self.device).to(dtype) / 10
        self.out = torch.empty_like(self.x)

    def run(self) -> None:
        self.kernel.rms_norm(self.x, self.weight, 1e-6, self.out)

    def reference(self) -> torch.Tensor:
        n = self.x.shape[-1]
        return torch.nn.functional.rms_norm(self.x, (n,), self.weight, 1e-6)

    def setup_small_float32(self) -> None:
        self.make(1, 1 << 12, torch.float32)

    def setup_large_float32(self) -> None:
        self.make(1 << 14, 1 << 12, torch.float32)

    def setup_large_bfloat16(self) -> None:
        self.make(1 << 14, 1 << 12, torch.bfloat16)

    benchmark_small_float32 = benchmark_large_float32 = benchmark_large_bfloat16 = run
    verify_small_float32 = verify_large_float32 = verify_large_bfloat16 = reference
