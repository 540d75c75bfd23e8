//! `rms_norm(x, weight, out, eps)`: `out = x / sqrt(mean(x^2) + eps) * weight` along the last dimension (Zhang and
//! Sennrich 2019, arXiv:1910.07467, equation 4).

use tvm_ffi::{DLDeviceType, Result, TensorView, VALUE_ERROR, bail, ensure};

use crate::checks::{Argument, DType};
use crate::launch::{Kernel, Shape};
«% if device_compiler == "nvptx" %»
use crate::launch_ex;
«% endif %»
use crate::module;
«% if device_compiler == "nvptx" %»
use crate::rms_norm_cluster;
«% endif %»

/// The kernels in `kernels/src/rms_norm.rs` for elements and weights of one dtype each.
struct Kernels {
    /// Takes 16 bytes at a time, where every row begins at a multiple of that and fits into the threads' registers.
    short: Kernel<8>,
    /// The same of longer rows.
    by_vector: Kernel<8>,
«% if device_compiler == "nvptx" %»
    /// The same of longer rows on Hopper, which blocks of a cluster share.
    by_cluster: Kernel<8>,
«% endif %»
    /// Takes rows that begin anywhere.
    by_element: Kernel<8>,
    /// The most threads of a block by vector where another block has room beside it, and where none has: so many that
    /// all find registers, of which a multiprocessor has 65,536.
    threads: [usize; 2],
}

macro_rules! kernels {
    ($name:literal, $threads:expr) => {
        Kernels {
            short: Kernel::new(concat!($name, "_short")),
            by_vector: Kernel::new($name),
«% if device_compiler == "nvptx" %»
            by_cluster: Kernel::only_in(rms_norm_cluster::TARGET, concat!($name, "_cluster")),
«% endif %»
            by_element: Kernel::new(concat!($name, "_by_element")),
            threads: $threads,
        }
    };
}

static F32: Kernels = kernels!("rms_norm_f32", [512, 1024]);
static F16: Kernels = kernels!("rms_norm_f16", [512, 1024]);
static F16_WEIGHT_F32: Kernels = kernels!("rms_norm_f16_weight_f32", [256, 768]);
static BF16: Kernels = kernels!("rms_norm_bf16", [512, 1024]);
static BF16_WEIGHT_F32: Kernels = kernels!("rms_norm_bf16_weight_f32", [256, 768]);

/// Writes `x / sqrt(mean(x^2) + eps) * weight` to `out`, on the current stream of their device.
///
/// `x` and `out` are contiguous CUDA tensors of the same shape (one dimension or more, empty too) and dtype (float32,
/// float16 or bfloat16); `out` may be `x` itself. `weight` has the size of their last dimension, and their dtype or
/// float32. `eps` is at least 0.
pub fn rms_norm(x: TensorView, weight: TensorView, out: TensorView, eps: f64) -> Result<()> {
    let x = Argument::new("x", &x);
    let weight = Argument::new("weight", &weight);
    let out = Argument::new("out", &out);
    let dtype = x.dtype()?;
    x.on(DLDeviceType::kDLCUDA)?;
    let Some(&len) = x.tensor.shape().last() else {
        bail!(VALUE_ERROR, "x: expected one dimension or more, got none")
    };
    x.contiguous()?;
    let accepted = [dtype, DType::F32];
    let accepted = &accepted[usize::from(dtype == DType::F32)..];
    let kernels = match (dtype, weight.dtype_among(accepted)?) {
        (DType::F32, _) => &F32,
        (DType::F16, DType::F32) => &F16_WEIGHT_F32,
        (DType::F16, _) => &F16,
        (DType::BF16, DType::F32) => &BF16_WEIGHT_F32,
        (DType::BF16, _) => &BF16,
    };
    weight.same_device(&x)?;
    weight.shaped(&[len as usize], "the last dimension of x")?;
    weight.contiguous()?;
    out.like(&x)?;
    out.contiguous()?;
    out.same_or_apart(&x)?;
    out.apart(&weight)?;
    ensure!(
        eps >= 0.0,
        VALUE_ERROR,
        "eps: expected a number of at least 0, got {eps}"
    );

    if x.tensor.numel() == 0 {
        return Ok(());
    }
    // SAFETY: the checks above: contiguous tensors of the kernels' dtypes on one device; `x` and `out` are equal or
    // apart, and `weight` has the size of their last dimension, which is not 0.
    unsafe { launch(kernels, dtype, x, weight, out, eps as f32) }
}

unsafe fn launch(
    kernels: &Kernels,
    dtype: DType,
    x: Argument,
    weight: Argument,
    out: Argument,
    eps: f32,
) -> Result<()> {
    let (count, len) = (x.tensor.numel(), weight.tensor.numel());
    let device = x.tensor.device();
    let vector = Pack::vector(dtype, kernels.threads);
    let by_vector = [x, weight, out]
        .iter()
        .all(|tensor| vector.fits(tensor, len));
    let pack = if by_vector {
        vector
    } else {
        Pack::element(dtype)
    };
    let packs = len / pack.elements;
    let short = by_vector && packs <= pack.held * pack.threads[0];
«% if device_compiler == "nvptx" %»
    let on_hopper = module::target(device)? == rms_norm_cluster::TARGET;
    if by_vector && !short && on_hopper {
        let call = rms_norm_cluster::Call {
            device,
            x: x.data().into(),
            out: out.data().into(),
            weight: weight.data().into(),
            rows: count / len,
            packs,
            eps,
        };
        // SAFETY: the caller's promise, and each row begins at a multiple of a pack.
        if unsafe { rms_norm_cluster::launch(&kernels.by_cluster, &call) }? {
            return Ok(());
        }
    }
«% endif %»
    let plan = Plan::new(packs, pack, || module::shared_bytes(device))?;
    let kernel = if short {
        &kernels.short
    } else if by_vector {
        &kernels.by_vector
    } else {
        &kernels.by_element
    };
    let shape = Shape {
        blocks: [(count / len).div_ceil(plan.rows_per_block()), 1, 1],
        threads: plan.threads,
        shared_bytes: plan.shared_bytes,
    };
    let parameters = [
        x.data().into(),
        out.data().into(),
        count.into(),
        weight.data().into(),
        len.into(),
        eps.into(),
        plan.threads_per_row.into(),
        plan.stashed.into(),
    ];
«% if device_compiler == "nvptx" %»
    if on_hopper {
        // SAFETY: the caller's promise, and enough blocks and shared memory.
        return unsafe { launch_ex::launch(kernel, device, shape, 1, parameters) };
    }
«% endif %»
    // SAFETY: the caller's promise, and enough blocks and shared memory.
    unsafe { kernel.launch(device, shape, parameters) }
}

/// Threads of a warp.
const WARP: usize = 32;
/// Threads of a block which several rows share.
const THREADS_FOR_ROWS: u32 = 64;
/// Bytes of shared memory in which a block adds up a row.
const SCRATCH: usize = WARP * size_of::<f32>();

/// What a thread loads at a time.
#[derive(Clone, Copy)]
struct Pack {
    elements: usize,
    bytes: usize,
    /// How many a thread holds in registers, as `kernels/src/rms_norm.rs` says for each kernel.
    held: usize,
    /// The most threads of a block where another has room beside it, and where none has.
    threads: [usize; 2],
}

impl Pack {
    /// 16 bytes of elements.
    fn vector(dtype: DType, threads: [usize; 2]) -> Self {
        Self {
            elements: 16 / dtype.bytes(),
            bytes: 16,
            held: 4,
            threads,
        }
    }

    fn element(dtype: DType) -> Self {
        Self {
            elements: 1,
            bytes: dtype.bytes(),
            held: 8,
            threads: [1024, 1024],
        }
    }

    /// Whether each row of a tensor begins at a multiple of the bytes.
    fn fits(self, tensor: &Argument, len: usize) -> bool {
        len.is_multiple_of(self.elements) && (tensor.data() as usize).is_multiple_of(self.bytes)
    }
}

/// Which threads share a row, and what they keep of it.
#[derive(Debug, PartialEq)]
struct Plan {
    /// A power of two that is at most a warp, or the whole block.
    threads_per_row: u32,
    /// Threads of a block.
    threads: u32,
    /// Packs of a row that are kept in shared memory.
    stashed: usize,
    shared_bytes: u32,
}

impl Plan {
    /// For rows of so many packs; `most_shared_bytes` are those that a block may have on the device.
    fn new(
        packs: usize,
        pack: Pack,
        most_shared_bytes: impl FnOnce() -> Result<u32>,
    ) -> Result<Self> {
        let threads = packs.div_ceil(pack.held);
        if threads <= WARP {
            return Ok(Self {
                threads_per_row: threads.next_power_of_two() as u32,
                threads: THREADS_FOR_ROWS,
                stashed: 0,
                shared_bytes: 0,
            });
        }
        let mut threads = threads.next_multiple_of(WARP).min(pack.threads[0]);
        let mut stashed = 0;
        if packs > threads * pack.held {
            let room = most_shared_bytes()? as usize - SCRATCH;
            if (packs - threads * pack.held) * pack.bytes > room / 2 {
                threads = pack.threads[1];
            }
            // The last that the threads load stay in their registers, those before in shared memory.
            let at_once = threads * pack.held;
            stashed = ((packs - 1) / at_once).min(room / (at_once * pack.bytes)) * at_once;
        }
        Ok(Self {
            threads_per_row: threads as u32,
            threads: threads as u32,
            stashed,
            shared_bytes: (SCRATCH + stashed * pack.bytes) as u32,
        })
    }

    fn rows_per_block(&self) -> usize {
        (self.threads / self.threads_per_row) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ptx_has_the_kernels() {
        for kernels in [&F32, &F16, &F16_WEIGHT_F32, &BF16, &BF16_WEIGHT_F32] {
            kernels.short.check_parameters().unwrap();
            kernels.by_vector.check_parameters().unwrap();
«% if device_compiler == "nvptx" %»
            kernels.by_cluster.check_parameters().unwrap();
«% endif %»
            kernels.by_element.check_parameters().unwrap();
        }
    }

    #[test]
    fn rows_are_spread_over_threads() {
        let vector = Pack::vector(DType::F32, [512, 1024]);
        for (packs, threads_per_row, threads, stashed, shared_bytes) in [
            (1, 1, 64, 0, 0),
            (32, 8, 64, 0, 0),
            (128, 32, 64, 0, 0),
            (129, 64, 64, 0, 128),
            (1024, 256, 256, 0, 128),
            (2048, 512, 512, 0, 128),
            (2049, 512, 512, 2048, 128 + 32_768),
            (9308, 512, 512, 4 * 2048, 128 + 4 * 32_768),
            (9309, 1024, 1024, 2 * 4096, 128 + 2 * 65_536),
            (1 << 20, 1024, 1024, 3 * 4096, 128 + 3 * 65_536),
        ] {
            let expected = Plan {
                threads_per_row,
                threads,
                stashed,
                shared_bytes,
            };
            let plan = Plan::new(packs, vector, || Ok(227 << 10)).unwrap();
            assert_eq!(plan, expected, "{packs} vectors");
        }
    }
}
