//! Element-wise loops over all threads of a one-dimensional grid, of any size.

use crate::float::Float;
use crate::ptx;

/// `out[i] = f(x[i])` for the `len` elements of `x` and `out`, which may be the same address.
///
/// 16 bytes at a time where both addresses allow it: between the first and the last multiple of 16, if the elements
/// there are the same in `x` and `out`. The others are taken one by one.
///
/// # Safety
/// `x` and `out` must point to `len` elements, and must not overlap unless they are equal.
pub unsafe fn map<T: Float>(x: *const T, out: *mut T, len: usize, f: impl Fn(f32) -> f32) {
    let apply = |element: T| T::from_f32(f(element.to_f32()));
    let width = size_of::<T::Vector>() / size_of::<T>();
    let alignment = align_of::<T::Vector>();
    let head = x.align_offset(alignment);
    let vectors = if head < len && head == out.align_offset(alignment) {
        (len - head) / width
    } else {
        0
    };

    for_each(vectors, |i| {
        // SAFETY: the addresses of elements from `head` on, aligned; vector `i` ends before `len`.
        unsafe {
            let mut vector = *x.add(head).cast::<T::Vector>().add(i);
            for element in vector.as_mut() {
                *element = apply(*element);
            }
            *out.add(head).cast::<T::Vector>().add(i) = vector;
        }
    });

    for_each(len - vectors * width, |i| {
        let i = if i < head { i } else { i + vectors * width };
        // SAFETY: `i < len`.
        unsafe { *out.add(i) = apply(*x.add(i)) };
    });
}

/// Calls `f` with each number below `count`, in one thread of the grid.
fn for_each(count: usize, mut f: impl FnMut(usize)) {
    let mut i = ptx::thread();
    while i < count {
        f(i);
        i += ptx::threads();
    }
}
