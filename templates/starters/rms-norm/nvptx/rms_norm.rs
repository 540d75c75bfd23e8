//! rms_norm of each row: `out = x / sqrt(mean(x^2) + eps) * weight` (Zhang and Sennrich 2019, arXiv:1910.07467,
//! equation 4), in float32, rounded once.
//!
//! Each row is read from memory once: it stays in registers and, where it is long, in shared memory. Only what has no
//! room there is read again. On Hopper, `rms_norm_cluster.rs` has kernels for longer rows.

use crate::block::{self, WARP};
use crate::copies;
use crate::directive;
use crate::float::{Bf16, Float};
use crate::grid;
use crate::math;
use crate::pack::{Held, Pack, Single, Vector};
use crate::ptx;

fn normalise(x: f32, inverse_rms: f32, weight: f32) -> f32 {
    x * inverse_rms * weight
}

/// The parameters of a kernel: rows of packs, one after the other.
struct Rows<X, W> {
    x: *const X,
    /// May be `x`.
    out: *mut X,
    /// Elements of `x`.
    count: usize,
    /// One row.
    weight: *const W,
    /// Elements of a row, a multiple of those of a pack.
    len: usize,
    eps: f32,
    /// How many neighbouring threads share a row: a power of two that is at most a warp, or the whole block.
    threads_per_row: u32,
    /// How many packs of a row, from its first on, are kept in shared memory: as many as all threads that share it
    /// hold in registers, or a multiple of that, but not the whole row. 0 where they are less than a block.
    stashed: usize,
}

impl<X: Pack, W: Pack> Rows<X, W> {
    /// Writes this thread's part of a row of any length. Each thread holds `HELD` packs in registers. One for which
    /// there is no row takes part in the sum of its warp, and no more.
    ///
    /// # Safety
    /// The pointers must point to as many elements as the fields say, which nobody else writes. There must be blocks
    /// for all rows, and shared memory for [`WARP`] values and `stashed` packs where a block shares a row.
    unsafe fn run<const HELD: usize>(&self) {
        let threads_per_row = self.threads_per_row;
        if threads_per_row == 0 {
            ptx::trap(); // by which nothing can be divided
        }
        let rows_per_block = block::threads() / threads_per_row;
        let first = block::index() as usize * rows_per_block as usize;
        let row = first + (block::thread() / threads_per_row) as usize;
        let packs = self.len / X::LEN;
        let end = if row * self.len < self.count {
            packs
        } else {
            0
        };
        let x = self.x.wrapping_add(row * packs);
        let out = self.out.wrapping_add(row * packs);
        let scratch = block::shared::<f32>();
        let stash = scratch.wrapping_add(WARP as usize).cast::<X>();

        // The threads take `span` packs at a time. This one takes every `step`th of them, from `lane` on.
        let lane = (block::thread() % threads_per_row) as usize;
        let step = self.threads_per_row as usize;
        let span = HELD * step;

        let mut i = lane;
        while i < self.stashed {
            // SAFETY: `stashed` is less than the packs of the row.
            unsafe { X::copy(x.add(i), stash.add(i)) };
            i += step;
        }
        let (mut base, mut sum) = (self.stashed, 0.0);
        let mut held;
        loop {
            held = Held::<X, HELD>::load(|k| {
                let i = base + lane + k * step;
                if i >= end {
                    return X::default();
                }
                // SAFETY: in the row.
                unsafe { *x.add(i) }
            });
            sum += held.sum_of_squares();
            if base + span >= packs {
                break;
            }
            base += span;
        }
        if self.stashed > 0 {
            copies::wait();
            let mut first = lane;
            while first < self.stashed {
                // SAFETY: this thread's own copies, which are there.
                let load = |k| unsafe { *stash.add(first + k * step) };
                sum += Held::<X, HELD>::load(load).sum_of_squares();
                first += span;
            }
        }
        // SAFETY: the scratch is for this alone.
        let inverse_rms = unsafe { self.inverse_rms(sum) };

        loop {
            // All weights are on their way before the first is used.
            let weights = Held::<W, HELD>::load(|k| {
                let i = base + lane + k * step;
                if i >= end {
                    return W::default();
                }
                // SAFETY: in the row.
                unsafe { *self.weight.add(i) }
            });
            held.each(|k, pack| {
                let i = base + lane + k * step;
                if i < end {
                    // SAFETY: in the row, and this thread's alone.
                    unsafe { *out.add(i) = normalised(*pack, inverse_rms, weights.get(k)) };
                }
            });
            if base == 0 {
                break;
            }
            // What was read last is read again first: it may still be in the cache.
            base -= span;
            let again = if base < self.stashed {
                stash.cast_const()
            } else {
                x
            };
            // SAFETY: in the row, not yet written; in shared memory, if it was copied there.
            held = Held::load(|k| unsafe { *again.add(base + lane + k * step) });
        }
    }

    /// Writes this thread's part of a row of which all threads together hold the whole in registers. The weights come
    /// while the row does, and nothing is divided: a short row is over before long.
    ///
    /// # Safety
    /// As for [`Rows::run`], and a row must have at most `HELD` packs for each thread that shares it.
    unsafe fn run_short<const HELD: usize>(&self) {
        // A power of two of the threads shares a row, or the whole block does, as if by a power that no thread reaches:
        // for a branch the compiler would make the kernel twice.
        let step = self.threads_per_row;
        let whole = u32::from(step > WARP);
        let shift = (31 - (step | 1).leading_zeros()) | (whole * 31);
        let lane = block::thread() & (step.wrapping_sub(1) | whole.wrapping_neg());
        let rows_per_block = (block::threads() >> shift) + whole;
        let first = block::index() as usize * rows_per_block as usize;
        let row = first + (block::thread() >> shift) as usize;
        let packs = self.len / X::LEN;
        let end = if row * self.len < self.count {
            packs as u32
        } else {
            0
        };
        let x = self.x.wrapping_add(row * packs);
        let out = self.out.wrapping_add(row * packs);
        let weight = self.weight;

        let mut held = Held::<X, HELD>::load(|k| {
            let i = lane + k as u32 * step;
            if i >= end {
                return X::default();
            }
            // SAFETY: in the row.
            unsafe { *x.add(i as usize) }
        });
        let weights = Held::<W, HELD>::load(|k| {
            let i = lane + k as u32 * step;
            if i >= end {
                return W::default();
            }
            // SAFETY: in the row.
            unsafe { *weight.add(i as usize) }
        });
        let sum = held.sum_of_squares();
        // SAFETY: the scratch is for this alone.
        let inverse_rms = unsafe { self.inverse_rms(sum) };
        held.each(|k, pack| {
            let i = lane + k as u32 * step;
            if i < end {
                // SAFETY: in the row, and this thread's alone.
                unsafe { *out.add(i as usize) = normalised(*pack, inverse_rms, weights.get(k)) };
            }
        });
    }

    /// By this thread's sum of squares and those of all that share the row with it. The same formula is in
    /// rms_norm_cluster.rs.
    ///
    /// # Safety
    /// Where a block shares a row, nothing else may use the first [`WARP`] values of its shared memory now.
    unsafe fn inverse_rms(&self, sum: f32) -> f32 {
        let sum = if self.threads_per_row > WARP {
            // SAFETY: the caller's promise.
            unsafe { block::sum(sum, block::shared()) }
        } else {
            block::warp_sum(sum, self.threads_per_row)
        };
        math::rsqrt(sum / self.len as f32 + self.eps)
    }
}

/// A pack of the result.
pub fn normalised<X: Pack, W: Pack>(pack: X, inverse_rms: f32, weights: W) -> X {
    pack.map(|k, x| normalise(x, inverse_rms, weights.elements()[k].to_f32()))
}

macro_rules! kernels {
    ($($name:ident: $x:ty, $w:ty, $run:ident, $held:literal, $threads:literal, $blocks:literal;)*) => {$(
        /// See [`Rows`] for the parameters.
        ///
        /// # Safety
        /// The pointers must point to as many elements as [`Rows`] says.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name(
            x: *const $x,
            out: *mut $x,
            count: usize,
            weight: *const $w,
            len: usize,
            eps: f32,
            threads_per_row: u32,
            stashed: usize,
        ) {
            directive!(concat!(".maxntid ", $threads));
            directive!(concat!(".minnctapersm ", $blocks));
            grid::begin();
            let rows = Rows { x, out, count, weight, len, eps, threads_per_row, stashed };
            // SAFETY: the caller's promise.
            unsafe { rows.$run::<$held>() }
        }
    )*};
}

kernels! {
    rms_norm_f32_short: Vector<f32, 4>, Vector<f32, 4>, run_short, 4, 512, 2;
    rms_norm_f32: Vector<f32, 4>, Vector<f32, 4>, run, 4, 1024, 1;
    rms_norm_f16_short: Vector<f16, 8>, Vector<f16, 8>, run_short, 4, 512, 2;
    rms_norm_f16: Vector<f16, 8>, Vector<f16, 8>, run, 4, 1024, 1;
    rms_norm_f16_weight_f32_short: Vector<f16, 8>, Vector<f32, 8>, run_short, 4, 256, 3;
    rms_norm_f16_weight_f32: Vector<f16, 8>, Vector<f32, 8>, run, 4, 768, 1;
    rms_norm_bf16_short: Vector<Bf16, 8>, Vector<Bf16, 8>, run_short, 4, 512, 2;
    rms_norm_bf16: Vector<Bf16, 8>, Vector<Bf16, 8>, run, 4, 1024, 1;
    rms_norm_bf16_weight_f32_short: Vector<Bf16, 8>, Vector<f32, 8>, run_short, 4, 256, 3;
    rms_norm_bf16_weight_f32: Vector<Bf16, 8>, Vector<f32, 8>, run, 4, 768, 1;
    rms_norm_f32_by_element: Single<f32>, Single<f32>, run, 8, 1024, 1;
    rms_norm_f16_by_element: Single<f16>, Single<f16>, run, 8, 1024, 1;
    rms_norm_f16_weight_f32_by_element: Single<f16>, Single<f32>, run, 8, 1024, 1;
    rms_norm_bf16_by_element: Single<Bf16>, Single<Bf16>, run, 8, 1024, 1;
    rms_norm_bf16_weight_f32_by_element: Single<Bf16>, Single<f32>, run, 8, 1024, 1;
}
