//! Work on all cores, with the vector instructions of AVX2 where the processor has them.

use std::ops::Range;
use std::process;
use std::sync::OnceLock;

use rayon::prelude::*;

/// Calls `work` with ranges that together are `0..count`, each of `piece` numbers (the last may be shorter), on all
/// cores. One piece stays on the calling thread.
pub fn ranges(count: usize, piece: usize, work: impl Fn(Range<usize>) + Sync) {
    let range = |i: usize| i * piece..count.min((i + 1) * piece);
    let pieces = count.div_ceil(piece);
    if pieces <= 1 || !has_threads() {
        (0..pieces).for_each(|i| work(range(i)));
    } else {
        (0..pieces).into_par_iter().for_each(|i| work(range(i)));
    }
}

/// Calls `work` with pieces of `out` and the index at which each begins, on all cores. One piece stays on the calling
/// thread.
pub fn chunks<T: Send>(out: &mut [T], piece: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    let numbered = |(i, chunk): (usize, &mut [T])| work(i * piece, chunk);
    if out.len() <= piece || !has_threads() {
        out.chunks_mut(piece).enumerate().for_each(numbered);
    } else {
        out.par_chunks_mut(piece).enumerate().for_each(numbered);
    }
}

/// Whether rayon's threads are in this process. They are not after a fork, as in Python's `multiprocessing`: waiting for
/// them would take for ever.
fn has_threads() -> bool {
    static STARTED_BY: OnceLock<u32> = OnceLock::new();
    *STARTED_BY.get_or_init(process::id) == process::id()
}

/// Runs `work` compiled for AVX2 where the processor has it.
#[inline(always)]
pub fn vectorised(work: impl FnOnce()) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn avx2(work: impl FnOnce()) {
            work();
        }
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            return unsafe { avx2(work) };
        }
    }
    work();
}
