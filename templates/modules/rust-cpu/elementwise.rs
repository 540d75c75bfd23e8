//! Element-wise loops on all cores.

use std::ptr;
use std::slice;

use crate::parallel::{chunks, vectorised};

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
    let out = unsafe { slice::from_raw_parts_mut(out, count) };
    if ptr::eq(x, out.as_ptr()) {
        return chunks(out, CHUNK, |_, out| {
            vectorised(|| out.iter_mut().for_each(|value| *value = f(*value)));
        });
    }
    // SAFETY: `x` is valid for `count` elements, and `out` does not overlap it.
    let x = unsafe { slice::from_raw_parts(x, count) };
    chunks(out, CHUNK, |start, out| {
        let x = &x[start..];
        vectorised(|| out.iter_mut().zip(x).for_each(|(out, x)| *out = f(*x)));
    });
}
