//! rms_norm of rows that are long for one block, on Hopper: a cluster of blocks shares a row, and takes one after the
//! other. The copy engine brings the next rows to shared memory while the threads add one up and write it.

use crate::block::{self, WARP};
use crate::bulk::{self, Address, Barrier};
use crate::cluster;
use crate::compiler::opaque;
use crate::directive;
use crate::float::Bf16;
use crate::grid;
use crate::math;
use crate::pack::{Held, Pack, Vector};
use crate::rms_norm::normalised;

/// The most blocks of a cluster.
const MOST_BLOCKS: u32 = 8;
/// Bytes of a pack.
const PACK: u32 = 16;
/// Packs of a part that a thread takes, at most.
const HELD: usize = 4;

/// The most rows of which a block has its part in shared memory.
const MOST_STAGES: u32 = 4;

// Shared memory: barriers of the stages, barriers and values of the sums that blocks send each other for one row and the
// next, what `block::sum` needs, the stages.
const SUM_BARRIERS: u32 = MOST_STAGES * Barrier::BYTES;
const SUMS: u32 = 64;
const SCRATCH: u32 = SUMS + 2 * MOST_BLOCKS * 4;
/// The same as `HEADER` in src/rms_norm_cluster.rs.
const ROWS: u32 = SCRATCH + WARP * 4;

/// The parameters of a kernel: rows of packs, one after the other.
struct Rows<X, W> {
    x: *const X,
    /// May be `x`.
    out: *mut X,
    /// One row.
    weight: *const W,
    /// How many there are.
    rows: usize,
    /// Packs of a row.
    packs: usize,
    /// Packs of a row that a block takes, but for the last.
    part: u32,
    /// Rows of which a block has its part in shared memory, at hand or on their way; at most [`MOST_STAGES`].
    stages: u32,
    eps: f32,
}

impl<X: Pack, W: Pack> Rows<X, W> {
    /// Writes this block's part of its cluster's rows.
    ///
    /// # Safety
    /// The pointers must point to as many elements as the fields say, which nobody else writes. There must be at most
    /// [`MOST_BLOCKS`] blocks in a cluster, a power of two, that together take a row, [`HELD`] packs for each thread; a grid
    /// of whole clusters, blocks of whole warps, and shared memory for [`ROWS`] bytes and a part for each stage, of which
    /// there is at least one.
    #[inline(always)]
    unsafe fn run(&self) {
        let (rank, blocks) = (cluster::rank(), cluster::blocks());
        let begin = self.packs.min((rank * self.part) as usize);
        let end = (self.packs - begin).min(self.part as usize) as u32;
        let x = self.x.wrapping_add(begin);
        let out = self.out.wrapping_add(begin);
        let weight = self.weight.wrapping_add(begin);
        let shift = blocks.trailing_zeros();
        let clusters = (block::count() >> shift) as usize;
        let (thread, step) = (block::thread(), block::threads());

        let shared = Address::dynamic();
        let arrived = |stage: u32| Barrier(shared.add(stage * Barrier::BYTES));
        let summed = |odd: u32| Barrier(shared.add(SUM_BARRIERS + odd * Barrier::BYTES));
        let stage_bytes = self.part * PACK;
        // SAFETY: only for a stage that nobody reads.
        let fetch = |stage: u32, row: usize| unsafe {
            if row < self.rows {
                let bytes = end * PACK;
                arrived(stage).expect(bytes);
                let from = x.wrapping_add(row * self.packs).cast();
                shared
                    .add(ROWS + stage * stage_bytes)
                    .copy(from, bytes, arrived(stage));
            }
        };
        let mut row = (block::index() >> shift) as usize;
        if thread == 0 {
            // SAFETY: the shared memory is there.
            unsafe {
                for stage in 0..MOST_STAGES {
                    arrived(stage).init();
                }
                summed(0).init();
                summed(1).init();
            }
            bulk::publish();
        }
        // All blocks run, and have made their barriers.
        cluster::arrive();
        cluster::wait();
        grid::begin();
        // Of this branch and the one above the compiler would make one, with the cluster's barrier in both of its arms.
        if opaque(thread as i32) == 0 {
            for stage in 0..self.stages {
                fetch(stage, row + stage as usize * clusters);
            }
        }
        let weights = Held::<W, HELD>::load(|k| {
            let i = thread + k as u32 * step;
            if i >= end {
                return W::default();
            }
            // SAFETY: in the row.
            unsafe { *weight.add(i as usize) }
        });

        let (mut turn, mut stage, mut parity) = (0, 0, 0);
        while row < self.rows {
            // SAFETY: this block's part of the row has arrived when the barrier says so, and stays until all threads
            // have passed the barrier below.
            unsafe {
                arrived(stage).wait(parity);
                let at_hand = shared.add(ROWS + stage * stage_bytes + thread * PACK);
                let load = || {
                    Held::<X, HELD>::load(|k| {
                        let i = k as u32 * step;
                        if thread + i >= end {
                            return X::default();
                        }
                        at_hand.add(i * PACK).load_16()
                    })
                };
                let sum = load().sum_of_squares();
                let sum = block::sum(sum, block::shared::<f32>().add(SCRATCH as usize / 4));
                let sum = exchange(sum, turn, summed(turn % 2));
                let len = self.packs * X::LEN;
                // The same as `Rows::inverse_rms` in rms_norm.rs.
                let inverse_rms = math::rsqrt(sum / len as f32 + self.eps);

                let out = out.wrapping_add(row * self.packs);
                load().each(|k, pack| {
                    let i = thread + k as u32 * step;
                    if i < end {
                        *out.add(i as usize) = normalised(*pack, inverse_rms, weights.get(k));
                    }
                });
            }
            block::barrier();
            if thread == 0 {
                fetch(stage, row + self.stages as usize * clusters);
            }
            row += clusters;
            turn += 1;
            stage += 1;
            if stage == self.stages {
                (stage, parity) = (0, parity ^ 1);
            }
        }
        // All that was sent to a block has come. Were it otherwise, it could not end before the others.
        cluster::arrive();
        cluster::wait();
    }
}

/// The sum of a value of each block over the blocks of the cluster, the same in all threads. What was sent for a row is
/// read before anything is sent for the next but one: no block is further ahead.
///
/// # Safety
/// All threads of the cluster must call it with the number of the row among the cluster's, from 0 on, and a barrier for
/// one arrival that is for all even or all odd rows.
#[inline(always)]
unsafe fn exchange(sum: f32, turn: u32, arrived: Barrier) -> f32 {
    let (thread, blocks) = (block::thread(), cluster::blocks());
    let first = SUMS + turn % 2 * MOST_BLOCKS * 4;
    // SAFETY: the caller's promise.
    unsafe {
        if thread == 0 {
            arrived.expect(blocks * 4);
        }
        if thread < blocks {
            let slot = Address::dynamic().add(first + cluster::rank() * 4);
            cluster::send(sum, thread, slot, arrived);
        }
        arrived.wait(turn / 2 % 2);
        // Each of 8 neighbouring threads adds that of one block.
        let (block, mut sum) = (thread % MOST_BLOCKS, 0.0);
        if block < blocks {
            sum = Address::dynamic().add(first + block * 4).load();
        }
        block::warp_sum(sum, MOST_BLOCKS)
    }
}

macro_rules! kernels {
    ($($name:ident: $x:ty, $w:ty;)*) => {$(
        /// See [`Rows`] for the parameters.
        ///
        /// # Safety
        /// The pointers must point to as many elements as [`Rows`] says.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name(
            x: *const $x,
            out: *mut $x,
            weight: *const $w,
            rows: usize,
            packs: usize,
            part: u32,
            stages: u32,
            eps: f32,
        ) {
            directive!(".maxntid 1024");
            directive!(".minnctapersm 1");
            let rows = Rows { x, out, weight, rows, packs, part, stages, eps };
            // SAFETY: the caller's promise.
            unsafe { rows.run() }
        }
    )*};
}

kernels! {
    rms_norm_f32_cluster: Vector<f32, 4>, Vector<f32, 4>;
    rms_norm_f16_cluster: Vector<f16, 8>, Vector<f16, 8>;
    rms_norm_f16_weight_f32_cluster: Vector<f16, 8>, Vector<f32, 8>;
    rms_norm_bf16_cluster: Vector<Bf16, 8>, Vector<Bf16, 8>;
    rms_norm_bf16_weight_f32_cluster: Vector<Bf16, 8>, Vector<f32, 8>;
}
