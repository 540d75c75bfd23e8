//! Launches the kernels of `kernels/src/rms_norm_cluster.rs`, which only the PTX for Hopper has, for rows that are long.

use tvm_ffi::{DLDevice, Result};

use crate::launch::{Kernel, Parameter, Shape};
use crate::launch_ex::{self, MOST_BLOCKS};
use crate::module;

/// The target whose PTX has them.
pub const TARGET: &str = "sm_90a";

/// Threads of a warp.
const WARP: usize = 32;
/// Bytes of a pack.
const PACK: usize = 16;
/// Packs of a row that a block takes at most, unless that needs more than 8 blocks. Small parts were fastest.
const PART: usize = 768;
/// Packs of its part that a thread takes. The same as in kernels/src/rms_norm_cluster.rs.
const HELD: usize = 4;
/// The most threads of a block.
const MOST_THREADS: usize = 1024;
/// Bytes of shared memory before the rows. The same as `ROWS` in kernels/src/rms_norm_cluster.rs.
const HEADER: usize = 256;

/// Where a call's tensors are, on which device, and their sizes.
pub struct Call {
    pub device: DLDevice,
    pub x: Parameter<'static>,
    pub out: Parameter<'static>,
    pub weight: Parameter<'static>,
    pub rows: usize,
    /// Vectors of 16 bytes in a row.
    pub packs: usize,
    pub eps: f32,
}

/// Launches the kernel if it takes rows of this length, and says whether it did.
///
/// # Safety
/// As for [`Kernel::launch`]. The device must run the PTX for [`TARGET`], and each row begin at a multiple of a pack, as
/// the weights.
pub unsafe fn launch(kernel: &Kernel<8>, call: &Call) -> Result<bool> {
    let Some(plan) = Plan::new(call.packs, module::shared_bytes(call.device)? as usize) else {
        return Ok(false);
    };
    // Asked at each call, in 2 microseconds: it depends on the device and on the shape.
    let at_a_time =
        launch_ex::clusters_at_a_time(kernel, call.device, plan.shape(1), plan.cluster)?;
    if at_a_time == 0 {
        return Ok(false);
    }
    let shape = plan.shape(call.rows.min(at_a_time));
    let parameters = [
        call.x,
        call.out,
        call.weight,
        call.rows.into(),
        call.packs.into(),
        plan.part.into(),
        plan.stages.into(),
        call.eps.into(),
    ];
    // SAFETY: the caller's promise, and enough blocks and shared memory.
    unsafe { launch_ex::launch(kernel, call.device, shape, plan.cluster, parameters)? };
    Ok(true)
}

/// How a cluster shares a row.
#[derive(Debug, PartialEq)]
struct Plan {
    /// Blocks of a cluster, a power of two.
    cluster: u32,
    /// Threads of a block.
    threads: u32,
    /// Packs of a row that a block takes.
    part: u32,
    /// Rows of which a block has its part in shared memory.
    stages: u32,
    shared_bytes: u32,
}

impl Plan {
    /// For rows of so many packs, where a block may have so many bytes of shared memory; `None` for rows that are too
    /// long.
    fn new(packs: usize, most_shared_bytes: usize) -> Option<Self> {
        let cluster = packs.div_ceil(PART).next_power_of_two();
        let cluster = cluster.clamp(2, MOST_BLOCKS);
        let part = packs.div_ceil(cluster).next_multiple_of(8); // 128 bytes, which are fetched at a time.
        let threads = part.div_ceil(HELD).next_multiple_of(WARP);
        // Two blocks that have room beside each other also hide each other's waiting.
        let stages = if 2 * threads <= MOST_THREADS { 2 } else { 3 };
        let shared_bytes = HEADER + stages * part * PACK;
        let fits = threads <= MOST_THREADS && shared_bytes <= most_shared_bytes;
        fits.then_some(Self {
            cluster: cluster as u32,
            threads: threads as u32,
            part: part as u32,
            stages: stages as u32,
            shared_bytes: shared_bytes as u32,
        })
    }

    fn shape(&self, clusters: usize) -> Shape {
        Shape {
            blocks: [clusters * self.cluster as usize, 1, 1],
            threads: self.threads,
            shared_bytes: self.shared_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_share_a_row() {
        for (packs, expected) in [
            (1025, Some((2, 160, 520, 2, 16_896))),
            (2560, Some((4, 160, 640, 2, 20_736))),
            (4096, Some((8, 128, 512, 2, 16_640))),
            (16_384, Some((8, 512, 2048, 2, 65_792))),
            (16_385, Some((8, 544, 2056, 3, 98_944))),
            (32_768, Some((8, 1024, 4096, 3, 196_864))),
            (32_769, None),
            (1 << 40, None),
        ] {
            let expected = expected.map(|(cluster, threads, part, stages, shared_bytes)| Plan {
                cluster,
                threads,
                part,
                stages,
                shared_bytes,
            });
            assert_eq!(Plan::new(packs, 227 << 10), expected, "{packs} vectors");
        }
    }
}
