//! Launches the kernels of `kernels/src/hopper.rs`, which only the PTX for Hopper has.
//!
//! They read and write tensors through tensor maps, in which the driver describes a tensor and the boxes that it is
//! copied in. The maps are made anew for each launch and are parameters of it, so nothing is allocated or kept.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::from_mut;
use std::sync::OnceLock;

use tvm_ffi::Result;

use crate::attention::{Attention, Heads};
use crate::checks::DType;
use crate::driver::{driver, newer};
use crate::launch::{ByValue, Kernel, Shape};
use crate::module;

/// The target whose PTX has the kernels.
pub const TARGET: &str = "sm_90a";

/// Rows of a box of queries or results: what one warpgroup takes.
const ROWS: usize = 64;

/// Elements of a row of a box: 128 bytes, the widest that is swizzled.
const COLUMNS: usize = 64;

/// Heads of a section, at least, where tiles take differently long: enough for blocks to get equal shares, and few
/// enough for several blocks to read the same keys at the same time, from the cache.
const SECTION_HEADS: usize = 16;

/// Strides of a tensor map are below this.
const MAX_STRIDE_BYTES: usize = 1 << 40;

/// Keys that a block takes at a time.
const KEYS: usize = 128;

/// Tiles of keys, and of values, that a block has room for.
const STAGES: usize = 2;

/// Bytes for barriers behind the tiles.
const BARRIER_BYTES: usize = 128;

/// The kernels for dims up to a size.
struct Kernels {
    dim: usize,
    /// Warpgroups that take [`ROWS`] queries each; there is one more.
    consumers: usize,
    f16: Kernel<2>,
    bf16: Kernel<2>,
}

static KERNELS: [Kernels; 2] = [
    Kernels {
        dim: 64,
        consumers: 3,
        f16: Kernel::only_in(TARGET, "hopper_f16_64"),
        bf16: Kernel::only_in(TARGET, "hopper_bf16_64"),
    },
    Kernels {
        dim: 128,
        consumers: 2,
        f16: Kernel::only_in(TARGET, "hopper_f16_128"),
        bf16: Kernel::only_in(TARGET, "hopper_bf16_128"),
    },
];

impl Kernels {
    /// Queries, keys, values and results, 2 bytes each, and the barriers.
    const fn shared_bytes(&self) -> usize {
        (2 * self.consumers * ROWS + 2 * STAGES * KEYS) * self.dim * 2 + BARRIER_BYTES
    }
}

// Constants of `cuda.h`.
const CU_TENSOR_MAP_DATA_TYPE_FLOAT16: c_int = 6;
const CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: c_int = 9;
const CU_TENSOR_MAP_INTERLEAVE_NONE: c_int = 0;
const CU_TENSOR_MAP_SWIZZLE_128B: c_int = 3;
const CU_TENSOR_MAP_L2_PROMOTION_L2_256B: c_int = 3;
const CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE: c_int = 0;

/// `cuTensorMapEncodeTiled` of `cuda.h`, since CUDA 12.
#[rustfmt::skip]
type Encode = unsafe extern "C" fn(
    *mut c_void, c_int, c_uint, *mut c_void,
    *const u64, *const u64, *const u32, *const u32,
    c_int, c_int, c_int, c_int
) -> c_int;

/// A `CUtensorMap` of `cuda.h`.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct TensorMap([u64; 16]);

/// The first parameter of the kernels. The same as `Maps` in kernels/src/hopper.rs.
#[repr(C)]
struct Maps {
    q: TensorMap,
    k: TensorMap,
    v: TensorMap,
    out: TensorMap,
}

// SAFETY: as the kernels declare it.
unsafe impl ByValue for Maps {}

/// The second parameter of the kernels. The same as `Sizes` in kernels/src/hopper.rs.
#[repr(C)]
struct Sizes {
    lse: *mut f32,
    turns: u32,
    section_turns: u32,
    section_heads: u32,
    shared_turn: u32,
    by_head: bool,
    tiles: u32,
    heads: u32,
    all_heads: u32,
    group: u32,
    query_len: i32,
    key_len: i32,
    first: i32,
    last: i32,
    scale: f32,
}

// SAFETY: as the kernels declare it.
unsafe impl ByValue for Sizes {}

/// Launches a kernel on a device that has loaded the PTX for [`TARGET`]. `false` where there is none: for dims above
/// 128, ALiBi, a softcap, no keys, and strides that a tensor map cannot have.
pub fn launch(attention: &Attention) -> Result<bool> {
    let Some(kernels) = KERNELS.iter().find(|kernels| attention.dim <= kernels.dim) else {
        return Ok(false);
    };
    let plain = attention.alibi.is_none() && attention.softcap == 0.0 && attention.key_len > 0;
    let tiles = attention.query_len.div_ceil(kernels.consumers * ROWS);
    let all_tiles = tiles * attention.heads * attention.batch;
    if !plain || i32::try_from(all_tiles).is_err() {
        return Ok(false);
    }
    let Some(maps) = maps(attention)? else {
        return Ok(false);
    };
    let kernel = match attention.dtype {
        DType::F16 => &kernels.f16,
        _ => &kernels.bf16,
    };
    let most = module::multiprocessors(attention.device)? as usize;
    let blocks = most.min(all_tiles * kernels.consumers);
    let shape = Shape {
        blocks: [blocks, 1, 1],
        threads: 128 * (kernels.consumers as u32 + 1),
        shared_bytes: kernels.shared_bytes() as u32,
    };
    let sizes = Sizes::new(attention, kernels.consumers, tiles, blocks);
    // SAFETY: the contract, and what the kernels are compiled for.
    unsafe {
        kernel.launch(attention.device, shape, [(&maps).into(), (&sizes).into()])?;
    }
    Ok(true)
}

impl Sizes {
    /// For so many tiles of queries of each head.
    fn new(attention: &Attention, consumers: usize, tiles: usize, blocks: usize) -> Self {
        let [left, right] = attention.window.map(|reach| reach as i32);
        let position = attention.key_len as i32 - attention.query_len as i32;
        let all_heads = attention.heads * attention.batch;
        let all_tiles = all_heads * tiles;
        // Without a mask, all tiles take equally long. Where each block gets one at most, it does not matter.
        let unbounded = [attention.query_len + attention.key_len; 2];
        let by_head = attention.window == unbounded || all_tiles <= blocks;
        let section_heads = if by_head {
            all_heads
        } else {
            (2 * blocks)
                .div_ceil(tiles)
                .max(SECTION_HEADS)
                .min(all_heads)
        };
        let shared = by_head && all_tiles % blocks * consumers <= blocks;
        let shared_turn = if shared {
            all_tiles / blocks
        } else {
            usize::MAX
        };
        let section_turns = (section_heads * tiles).div_ceil(blocks);
        Self {
            lse: attention.lse,
            turns: (section_turns * all_heads.div_ceil(section_heads)) as u32,
            section_turns: section_turns as u32,
            section_heads: section_heads as u32,
            shared_turn: shared_turn as u32,
            by_head,
            tiles: tiles as u32,
            heads: attention.heads as u32,
            all_heads: all_heads as u32,
            group: (attention.heads / attention.kv_heads) as u32,
            query_len: attention.query_len as i32,
            key_len: attention.key_len as i32,
            first: position - left,
            last: position + right,
            scale: attention.scale * std::f32::consts::LOG2_E,
        }
    }
}

/// The driver's function that makes tensor maps; `None` where the driver is older than CUDA 12.
fn encode() -> Option<Encode> {
    static ENCODE: OnceLock<Option<Encode>> = OnceLock::new();
    // SAFETY: its type in `cuda.h`.
    *ENCODE.get_or_init(|| unsafe { newer("cuTensorMapEncodeTiled\0") })
}

/// `None` where a tensor's strides are not those of a tensor map, or the driver makes none.
fn maps(attention: &Attention) -> Result<Option<Maps>> {
    let Attention {
        batch,
        heads,
        kv_heads,
        query_len,
        key_len,
        dim,
        ..
    } = *attention;
    let out = Heads {
        data: attention.out,
        strides: [query_len * heads * dim, heads * dim, dim].map(|stride| stride as isize),
    };
    let Some(encode) = encode() else {
        return Ok(None);
    };
    let map = |tensor, len, heads, rows| {
        TensorMap::new(
            encode,
            attention.dtype,
            tensor,
            [batch, len, heads, dim],
            rows,
        )
    };
    let (q, k) = (
        map(attention.q, query_len, heads, ROWS)?,
        map(attention.k, key_len, kv_heads, KEYS)?,
    );
    let (v, out) = (
        map(attention.v, key_len, kv_heads, KEYS)?,
        map(out, query_len, heads, ROWS)?,
    );
    Ok((|| {
        Some(Maps {
            q: q?,
            k: k?,
            v: v?,
            out: out?,
        })
    })())
}

impl TensorMap {
    /// For boxes of [`COLUMNS`] elements of `rows` positions, in the 128-byte swizzle; what is outside reads as 0.
    fn new(
        encode: Encode,
        dtype: DType,
        tensor: Heads,
        shape: [usize; 4],
        rows: usize,
    ) -> Result<Option<Self>> {
        let [batch, len, heads, dim] = shape;
        let [batch_stride, len_stride, head_stride] = tensor.strides;
        // The kernels' order: elements, positions, heads, batch. The first stride is that of an element and not given.
        let sizes = [dim, len, heads, batch].map(|size| size as u64);
        let mut strides = [0; 3];
        for (i, stride) in [len_stride, head_stride, batch_stride]
            .into_iter()
            .enumerate()
        {
            // The stride of a single one is never used, and can be anything.
            let elements = if sizes[i + 1] == 1 {
                dim as isize
            } else {
                stride
            };
            match usize::try_from(elements) {
                Ok(elements @ 1..) if elements < MAX_STRIDE_BYTES / 2 => {
                    strides[i] = 2 * elements as u64
                }
                _ => return Ok(None),
            }
        }
        let data_type = match dtype {
            DType::F16 => CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            _ => CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        };
        let mut map = Self([0; 16]);
        // SAFETY: writes one map; the arrays have as many numbers as dimensions, the strides one less.
        let code = unsafe {
            encode(
                from_mut(&mut map).cast(),
                data_type,
                4,
                tensor.data.cast(),
                sizes.as_ptr(),
                strides.as_ptr(),
                [COLUMNS as u32, rows as u32, 1, 1].as_ptr(),
                [1; 4].as_ptr(),
                CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        driver()?.check(code, || {
            format!("cannot describe a tensor of shape {shape:?} to the GPU")
        })?;
        Ok(Some(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_have_the_same_parameters() {
        let ptx = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));
        if !ptx.contains(&format!(".target {TARGET}")) {
            return; // cuda-capabilities has no 9.0a
        }
        for name in ["f16_64", "bf16_64", "f16_128", "bf16_128"] {
            for (index, size) in [size_of::<Maps>(), size_of::<Sizes>()].iter().enumerate() {
                let declared = format!("hopper_{name}_param_{index}[{size}]");
                assert!(ptx.contains(&declared), "no {declared}");
            }
        }
    }

    #[test]
    fn the_ptx_has_the_kernels() {
        for kernels in &KERNELS {
            kernels.f16.check_parameters().unwrap();
            kernels.bf16.check_parameters().unwrap();
        }
    }
}
