//! Element-wise loops over all threads of a one-dimensional grid, of any size.

use cuda_device::{DisjointSlice, thread};

use crate::float::Float;

/// `out[i] = f(x[i])` for all elements. The host may give the memory of `x` as `out`, which Rust's rules for slices do not
/// foresee: so elements go through raw pointers, each read and then written by one thread.
///
/// 16 bytes at a time where both addresses allow it: between the first and the last multiple of 16, if the elements
/// there are the same in `x` and `out`. The others are taken one by one.
pub fn map<T: Float>(x: &[T], mut out: DisjointSlice<T>, f: impl Fn(f32) -> f32) {
    let len = x.len().min(out.len());
    let (x, out) = (x.as_ptr(), out.as_mut_ptr());
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
        // SAFETY: the elements from `head` on, aligned; vector `i` ends before `len`, and is this thread's alone.
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
        // SAFETY: `i < len`, and element `i` is this thread's alone.
        unsafe { *out.add(i) = apply(*x.add(i)) };
    });
}

/// Calls `f` with each number below `count`, in one thread of the grid.
fn for_each(count: usize, mut f: impl FnMut(usize)) {
    let threads = thread::blockDim_x() as usize;
    let mut i = thread::blockIdx_x() as usize * threads + thread::threadIdx_x() as usize;
    while i < count {
        f(i);
        i += thread::gridDim_x() as usize * threads;
    }
}
