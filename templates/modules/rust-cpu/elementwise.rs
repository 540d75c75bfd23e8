//! Element-wise loops on all cores.

use std::ops::Range;
use std::{ptr, slice};

use crate::vectors::{Work, vectorised};
use crate::{parallel, stream};

/// Elements of one piece of work. A tensor of one piece stays on the calling thread.
const PIECE: usize = 1 << 15;

/// Elements that are computed before they are written past the caches: whole lines of a cache.
const CHUNK: usize = 64;

/// `out[i] = f(x[i])` for all `count` elements. `x` and `out` may be the same address.
///
/// # Safety
/// Both must point to `count` elements of type `T`, a type of numbers, for the whole call, and must not overlap unless
/// they are equal.
pub unsafe fn map<T, F>(x: *const T, out: *mut T, count: usize, f: F)
where
    T: Copy + Send + Sync,
    F: Fn(T) -> T + Copy + Sync,
{
    let large = stream::pays(out, count);
    let elements = &Elements { x, out, large, f };
    parallel::ranges(count, PIECE, |range| {
        vectorised(Piece { elements, range });
    });
}

/// Elements before and after `f`. `out` may be `x`.
struct Elements<T, F> {
    x: *const T,
    out: *mut T,
    large: bool,
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
        let Elements { x, out, large, f } = *self.elements;
        let (start, len) = (self.range.start, self.range.len());
        let (x, out) = (x.wrapping_add(start), out.wrapping_add(start));
        // SAFETY: these elements are this thread's alone.
        let out = unsafe { slice::from_raw_parts_mut(out, len) };
        if ptr::eq(x, out.as_ptr()) {
            return out.iter_mut().for_each(|value| *value = f(*value));
        }
        // SAFETY: nobody writes to `x`, which does not overlap `out`.
        let x = unsafe { slice::from_raw_parts(x, len) };
        if !large {
            return assign(x, out, f);
        }
        let ((x, x_rest), (out, out_rest)) = (x.as_chunks(), out.as_chunks_mut());
        for (x, out) in x.iter().zip(out) {
            // SAFETY: the promise of `map`.
            unsafe { stream::write::<T, CHUNK>(x.map(f), out) };
        }
        stream::finish();
        assign(x_rest, out_rest, f);
    }
}

/// `out[i] = f(x[i])`, for slices of the same length.
#[inline(always)]
fn assign<T: Copy>(x: &[T], out: &mut [T], f: impl Fn(T) -> T) {
    out.iter_mut().zip(x).for_each(|(out, x)| *out = f(*x));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(count: usize) {
        let x: Vec<_> = (0..count as u32).collect();
        let mut out = vec![1; count];
        let (mut expected, f) = (x.clone(), |x| x ^ 5);
        expected.iter_mut().for_each(|x| *x = f(*x));
        // SAFETY: both have `count` elements, and are apart.
        unsafe { map(x.as_ptr(), out.as_mut_ptr(), count, f) };
        assert!(out == expected);
        // SAFETY: `out` has `count` elements.
        unsafe { map(out.as_ptr(), out.as_mut_ptr(), count, f) };
        assert!(out == x);
    }

    #[test]
    fn any_size_apart_or_in_place() {
        for count in [0, 1, PIECE - 1, 3 * PIECE + 5] {
            check(count);
        }
        // Past the caches, and with elements left over.
        check(stream::LARGE / 4 + CHUNK + 7);
    }
}
