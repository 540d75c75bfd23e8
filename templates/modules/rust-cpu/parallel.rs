//! Element-wise loops on all cores, with the vector instructions of AVX2 where the processor has them.

use std::process;
use std::sync::OnceLock;

use rayon::prelude::*;

/// Elements of one piece of work; a tensor of one piece stays on the calling thread.
const CHUNK: usize = 1 << 15;

/// `out[i] = f(x[i])` for all `count` elements. `x` and `out` may be the same address.
///
/// # Safety
/// Both must point to `count` elements of type `T` for the whole call, and must not overlap unless they are equal.
pub unsafe fn map<T>(x: *const T, out: *mut T, count: usize, f: impl Fn(T) -> T + Copy + Sync)
where
    T: Copy + Send + Sync,
{
    if count == 0 {
        return; // An empty tensor may have a null address, which no slice may have.
    }
    // SAFETY: `out` is valid for `count` elements, and nobody else has a reference to them.
    let out = unsafe { std::slice::from_raw_parts_mut(out, count) };
    if std::ptr::eq(x, out.as_ptr()) {
        if count <= CHUNK || !has_threads() {
            return vectorised(|| out.iter_mut().for_each(|value| *value = f(*value)));
        }
        return out
            .par_chunks_mut(CHUNK)
            .for_each(|out| vectorised(|| out.iter_mut().for_each(|value| *value = f(*value))));
    }
    // SAFETY: `x` is valid for `count` elements, and `out` does not overlap it.
    let x = unsafe { std::slice::from_raw_parts(x, count) };
    let chunk = |(out, x): (&mut [T], &[T])| {
        vectorised(|| out.iter_mut().zip(x).for_each(|(out, x)| *out = f(*x)))
    };
    if count <= CHUNK || !has_threads() {
        return chunk((out, x));
    }
    out.par_chunks_mut(CHUNK)
        .zip(x.par_chunks(CHUNK))
        .for_each(chunk);
}

/// Whether rayon's threads are in this process. They are not after a fork, as in Python's `multiprocessing`: waiting for
/// them would take for ever.
fn has_threads() -> bool {
    static STARTED_BY: OnceLock<u32> = OnceLock::new();
    *STARTED_BY.get_or_init(process::id) == process::id()
}

/// Runs `work` compiled for AVX2 where the processor has it.
#[inline(always)]
fn vectorised(work: impl FnOnce()) {
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
