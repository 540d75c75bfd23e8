//! `relu(x, out)`: `out[i] = max(x[i], 0)`. NaN stays NaN and -0.0 becomes +0.0.

use tvm_ffi::{DLDeviceType, Result, TensorView};

use crate::checks::{Argument, DType};
use crate::launch::{Kernel, MAX_BLOCKS, Shape};

/// The kernels in `kernels/src/relu.rs`; their parameters are the slices `x` and `out`.
static F32: Kernel<4> = Kernel::new("relu_f32");
static F16: Kernel<4> = Kernel::new("relu_f16");
static BF16: Kernel<4> = Kernel::new("relu_bf16");

/// Threads of a block. Each thread takes 16 bytes at a time.
const THREADS: u32 = 256;

/// Writes `max(x, 0)` to `out`, on the current stream of their device.
///
/// Both are contiguous CUDA tensors of the same shape (any rank, empty too) and dtype (float32, float16 or
/// bfloat16); `out` may be `x` itself.
pub fn relu(x: TensorView, out: TensorView) -> Result<()> {
    let (x, out) = (Argument::new("x", &x), Argument::new("out", &out));
    let (kernel, at_a_time) = match x.dtype()? {
        DType::F32 => (&F32, 4),
        DType::F16 => (&F16, 8),
        DType::BF16 => (&BF16, 8),
    };
    x.on(DLDeviceType::kDLCUDA)?;
    x.contiguous()?;
    out.like(&x)?;
    out.contiguous()?;
    out.same_or_apart(&x)?;

    let count = x.tensor.numel();
    let blocks = count.div_ceil(at_a_time).div_ceil(THREADS as usize);
    let shape = Shape {
        blocks: [blocks.min(MAX_BLOCKS[0]), 1, 1],
        threads: THREADS,
        shared_bytes: 0,
    };
    let parameters = [
        x.data().into(),
        count.into(),
        out.data().into(),
        count.into(),
    ];
    // SAFETY: the checks above: two slices of `count` elements of the kernel's dtype on this device, equal or apart.
    unsafe { kernel.launch(x.tensor.device(), shape, parameters) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ptx_has_the_kernels() {
        for kernel in [&F32, &F16, &BF16] {
            kernel.check_parameters().unwrap();
        }
    }
}
