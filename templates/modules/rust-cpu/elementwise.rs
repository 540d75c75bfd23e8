//! Element-wise loops on all cores.

use std::ops::Range;
use std::{ptr, slice};

use crate::parallel;
use crate::vectors::{Work, vectorised};

/// Elements of one piece of work. A tensor of one piece stays on the calling thread.
const PIECE: usize = 1 << 15;

/// `out[i] = f(x[i])` for all `count` elements. `x` and `out` may be the same address.
///
/// # Safety
/// Both must point to `count` elements of type `T` for the whole call, and must not overlap unless they are equal.
pub unsafe fn map<T, F>(x: *const T, out: *mut T, count: usize, f: F)
where
    T: Copy + Send + Sync,
    F: Fn(T) -> T + Copy + Sync,
{
    let elements = &Elements { x, out, f };
    parallel::ranges(count, PIECE, |range| {
        vectorised(Piece { elements, range });
    });
}

/// Elements before and after `f`. `out` may be `x`.
struct Elements<T, F> {
    x: *const T,
    out: *mut T,
    f: F,
}

// SAFETY: no two threads use the same element.
unsafe impl<T: Send + Sync, F: Sync> Sync for Elements<T, F> {}

/// Elements for one thread.
struct Piece<'a, T, F> {
    elements: &'a Elements<T, F>,
    range: Range<usize>,
}

impl<T: Copy, F: Fn(T) -> T + Copy> Work for Piece<'_, T, F> {
    #[inline(always)]
    fn run(self) {
        let Elements { x, out, f } = *self.elements;
        let (start, len) = (self.range.start, self.range.len());
        let (x, out) = (x.wrapping_add(start), out.wrapping_add(start));
        // SAFETY: these elements are this thread's alone.
        let out = unsafe { slice::from_raw_parts_mut(out, len) };
        if ptr::eq(x, out.as_ptr()) {
            return out.iter_mut().for_each(|value| *value = f(*value));
        }
        // SAFETY: nobody writes to `x`, which does not overlap `out`.
        let x = unsafe { slice::from_raw_parts(x, len) };
        out.iter_mut().zip(x).for_each(|(out, x)| *out = f(*x));
    }
}
