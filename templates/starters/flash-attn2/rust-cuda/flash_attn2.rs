//! `fwd(q, k, v, alibi_slopes, out, lse, window, scores)`: attention as FlashAttention-2 computes it
//! (Dao 2023, arXiv:2307.08691).

use std::ptr::null;

use tvm_ffi::{Array, DLDeviceType, Result, TensorView, VALUE_ERROR, ensure};

use crate::attention::{Attention, Backend, Heads};
use crate::checks::DType;
«% if device_compiler == "nvptx" %»
use crate::hopper;
«% endif %»
use crate::launch::{ByValue, Kernel, Shape};
«% if device_compiler == "nvptx" %»
use crate::module;
«% endif %»

/// A copy to shared memory is of 16 bytes, from a multiple of 16.
const BACKEND: Backend = Backend {
    device: DLDeviceType::kDLCUDA,
    dtypes: &[DType::F16, DType::BF16],
    alignment: 16,
};

/// Positions, and distances of up to twice all queries and keys, are 32-bit numbers.
const MAX_LEN: usize = 1 << 29;

/// Threads of a block.
const THREADS: u32 = 128;

/// The kernels of `kernels/src/flash_attn2.rs` for the dims up to a size.
struct Kernels {
    dim: usize,
    /// Queries of a block.
    queries: usize,
    /// Dynamic shared memory of a block.
    shared_bytes: u32,
    f16: Kernel<1>,
    bf16: Kernel<1>,
}

impl Kernels {
    /// `queries` of a block, and how many times 64 keys or values are in shared memory beside them.
    const fn new([f16, bf16]: [&'static str; 2], dim: usize, queries: usize, slots: usize) -> Self {
        Self {
            dim,
            queries,
            shared_bytes: ((queries + slots * 64) * dim * 2) as u32,
            f16: Kernel::new(f16),
            bf16: Kernel::new(bf16),
        }
    }
}

#[rustfmt::skip]
static KERNELS: [Kernels; 6] = [
    Kernels::new(["flash_attn2_f16_32", "flash_attn2_bf16_32"], 32, 128, 4),
    Kernels::new(["flash_attn2_f16_64", "flash_attn2_bf16_64"], 64, 128, 4),
    Kernels::new(["flash_attn2_f16_96", "flash_attn2_bf16_96"], 96, 128, 3),
    Kernels::new(["flash_attn2_f16_128", "flash_attn2_bf16_128"], 128, 128, 3),
    Kernels::new(["flash_attn2_f16_192", "flash_attn2_bf16_192"], 192, 64, 2),
    Kernels::new(["flash_attn2_f16_256", "flash_attn2_bf16_256"], 256, 64, 2),
];

/// The kernels' parameter. The same as `Parameters` in kernels/src/attention.rs.
#[repr(C)]
struct Parameters {
    q: Strided,
    k: Strided,
    v: Strided,
    out: *mut u8,
    lse: *mut f32,
    slopes: *const f32,
    slopes_stride: u64,
    query_len: i32,
    key_len: i32,
    heads: u32,
    group: u32,
    blocks: u32,
    dim: u32,
    left: i32,
    right: i32,
    scale: f32,
    softcap: f32,
}

// SAFETY: as the kernels declare it.
unsafe impl ByValue for Parameters {}

#[repr(C)]
struct Strided {
    data: *const u8,
    strides: [i64; 3],
}

impl From<Heads> for Strided {
    fn from(heads: Heads) -> Self {
        Self {
            data: heads.data,
            strides: heads.strides.map(|stride| stride as i64),
        }
    }
}

/// Writes the attention of `q` over `k` and `v` to `out`, and the logarithms of the softmax's sums to `lse`, on the
/// current stream of their device.
///
/// float16 and bfloat16; `src/attention.rs` has the contract.
#[expect(clippy::too_many_arguments, reason = "they are those of the op")]
pub fn fwd(
    q: TensorView,
    k: TensorView,
    v: TensorView,
    alibi_slopes: Option<TensorView>,
    out: TensorView,
    lse: Option<TensorView>,
    window: Array<i64>,
    scores: Array<Option<f64>>,
) -> Result<()> {
    let attention = Attention::new(
        &BACKEND,
        &q,
        &k,
        &v,
        alibi_slopes.as_ref(),
        &out,
        lse.as_ref(),
        window,
        scores,
    )?;
    let len = attention.query_len + attention.key_len;
    ensure!(
        len <= MAX_LEN,
        VALUE_ERROR,
        "q: expected a seqlen of at most {MAX_LEN} together with that of k, got {len}"
    );
    launch(&attention)
}

fn launch(attention: &Attention) -> Result<()> {
    if attention.batch * attention.heads * attention.query_len == 0 {
        return Ok(()); // Nothing to do, and no driver needed.
    }
«% if device_compiler == "nvptx" %»
    if module::target(attention.device)? == hopper::TARGET && hopper::launch(attention)? {
        return Ok(());
    }
«% endif %»
    let kernels = KERNELS.iter().find(|kernels| attention.dim <= kernels.dim);
    let kernels = kernels.expect("no dim is above MAX_DIM");
    let kernel = match attention.dtype {
        DType::F16 => &kernels.f16,
        _ => &kernels.bf16,
    };
    let blocks = attention.query_len.div_ceil(kernels.queries);
    let shape = Shape {
        blocks: [blocks * attention.heads * attention.batch, 1, 1],
        threads: THREADS,
        shared_bytes: kernels.shared_bytes,
    };
    let parameters = Parameters::new(attention, blocks);
    // SAFETY: the contract, and what the kernels are compiled for.
    unsafe { kernel.launch(attention.device, shape, [(&parameters).into()]) }
}

impl Parameters {
    /// Of a grid with so many blocks for the queries of a head.
    fn new(attention: &Attention, blocks: usize) -> Self {
        let slopes = attention.alibi;
        let [left, right] = attention.window;
        Self {
            q: attention.q.into(),
            k: attention.k.into(),
            v: attention.v.into(),
            out: attention.out,
            lse: attention.lse,
            slopes: slopes.map_or(null(), |slopes| slopes.data),
            slopes_stride: slopes.map_or(0, |slopes| slopes.batch_stride as u64),
            query_len: attention.query_len as i32,
            key_len: attention.key_len as i32,
            heads: attention.heads as u32,
            group: (attention.heads / attention.kv_heads) as u32,
            blocks: blocks as u32,
            dim: attention.dim as u32,
            left: left as i32,
            right: right as i32,
            scale: attention.scale,
            softcap: attention.softcap,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::MAX_DIM;

    /// What a block may have where that is least: on compute capability 8.6, 8.9 and 12.0.
    const LEAST_SHARED_BYTES: u32 = 99 << 10;

    #[test]
    fn the_ptx_has_the_kernels() {
        for kernels in &KERNELS {
            kernels.f16.check_parameters().unwrap();
            kernels.bf16.check_parameters().unwrap();
        }
    }

    #[test]
    fn the_kernels_have_the_same_parameter() {
        let ptx = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));
        let size = size_of::<Parameters>();
        for dim in KERNELS.each_ref().map(|kernels| kernels.dim) {
            for dtype in ["f16", "bf16"] {
                let declared = format!("flash_attn2_{dtype}_{dim}_param_0[{size}]");
                assert!(ptx.contains(&declared), "no {declared}");
            }
        }
    }

    #[test]
    fn every_dim_has_kernels_that_fit() {
        assert!(KERNELS.is_sorted_by_key(|kernels| kernels.dim));
        assert_eq!(KERNELS.last().unwrap().dim, MAX_DIM);
        for kernels in &KERNELS {
            assert!(kernels.shared_bytes <= LEAST_SHARED_BYTES);
        }
    }
}
