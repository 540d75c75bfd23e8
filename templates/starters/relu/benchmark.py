"""relu against torch: ``kernels benchmark .`` after ``pytest``, which builds it."""

import torch
from kernels.benchmark import Benchmark


class Relu(Benchmark):
    seed = 0

    def make(self, count: int, dtype: torch.dtype) -> None:
        self.x = torch.randn(count, device=self.device).to(dtype)
        self.out = torch.empty_like(self.x)

    def run(self) -> None:
        self.kernel.relu(self.x, self.out)

    def reference(self) -> torch.Tensor:
        return torch.relu(self.x)

    def setup_small_float32(self) -> None:
        self.make(1 << 12, torch.float32)

    def setup_large_float32(self) -> None:
        self.make(1 << 26, torch.float32)

    def setup_large_bfloat16(self) -> None:
        self.make(1 << 26, torch.bfloat16)

    benchmark_small_float32 = benchmark_large_float32 = benchmark_large_bfloat16 = run
    verify_small_float32 = verify_large_float32 = verify_large_bfloat16 = reference
