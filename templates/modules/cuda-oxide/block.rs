//! What the threads of a block do together: shared memory and sums.

use cuda_device::shared::DynamicSharedArray;
use cuda_device::{thread, warp};

/// Threads of a warp.
pub const WARP: u32 = 32;

/// The block's dynamic shared memory, aligned to 16 bytes, the same for all its threads.
pub fn shared<T>() -> *mut T {
    DynamicSharedArray::<u128, 16>::get().cast()
}

/// The sum over each group of `width` neighbouring lanes of a warp, in all of them. `width` is a power of two; all
/// lanes of the warp must call it.
pub fn warp_sum(mut value: f32, width: u32) -> f32 {
    let mut distance = width / 2;
    while distance > 0 {
        value += warp::shuffle_xor_f32(value, distance);
        distance /= 2;
    }
    value
}

/// The sum over all threads of the block, in each of them. All must call it, and there must be whole warps of them.
///
/// # Safety
/// `scratch` must be [`WARP`] values of shared memory, which no thread uses between the barriers before and after this.
pub unsafe fn sum(value: f32, scratch: *mut f32) -> f32 {
    let of_warp = warp_sum(value, WARP);
    if thread::threadIdx_x() & (WARP - 1) == 0 {
        // SAFETY: a block has at most 32 warps.
        unsafe { *scratch.add((thread::threadIdx_x() / WARP) as usize) = of_warp };
    }
    thread::sync_threads();
    let warps = thread::blockDim_x() / WARP;
    let width = warps.next_power_of_two();
    let warp = thread::threadIdx_x() % width;
    let mut of_warp = 0.0;
    if warp < warps {
        // SAFETY: written above by the first lane of this warp.
        of_warp = unsafe { *scratch.add(warp as usize) };
    }
    warp_sum(of_warp, width)
}
