//! What the threads of a block do together: shared memory, barriers, sums.

use core::arch::{asm, global_asm, nvptx};

use crate::warp;

/// Threads of a warp.
pub const WARP: u32 = 32;

// Dynamic shared memory, of the size that the launch gives it (PTX ISA, "Shared State Space"). The copy engine puts
// swizzled boxes at multiples of 1024 bytes.
global_asm!(".extern .shared .align 1024 .b8 dynamic_shared[];");

/// Index of this thread in the first dimension of its block.
#[inline(always)]
pub fn thread() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_thread_idx_x() as u32 }
}

/// Number of threads of a block.
#[inline(always)]
pub fn threads() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_block_dim_x() as u32 }
}

/// Index of this block in the first dimension of the grid.
#[inline(always)]
pub fn index() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_block_idx_x() as u32 }
}

/// Number of blocks in the first dimension of the grid.
#[inline(always)]
pub fn count() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_grid_dim_x() as u32 }
}

/// Waits for all threads of the block, which must all call it. What they wrote before can be read after it.
#[inline(always)]
pub fn barrier() {
    // SAFETY: touches no memory itself.
    unsafe { nvptx::_syncthreads() }
}

/// The block's dynamic shared memory, aligned to 1024 bytes, the same for all its threads.
pub fn shared<T>() -> *mut T {
    let address: *mut T;
    // SAFETY: from a constant to a register.
    unsafe {
        asm!(
            "mov.u64 {address}, dynamic_shared;",
            "cvta.shared.u64 {address}, {address};",
            address = out(reg64) address,
            options(pure, nomem, nostack),
        );
    }
    address
}

/// The sum over each group of `width` neighbouring lanes of a warp, in all of them. `width` is a power of two; all
/// lanes of the warp must call it.
pub fn warp_sum(mut value: f32, width: u32) -> f32 {
    let mut distance = width / 2;
    while distance > 0 {
        value += warp::exchange(value, distance);
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
    if thread() % WARP == 0 {
        // SAFETY: a block has at most 32 warps.
        unsafe { *scratch.add((thread() / WARP) as usize) = of_warp };
    }
    barrier();
    let warps = threads() / WARP;
    let width = warps.next_power_of_two();
    let warp = thread() % width;
    let mut of_warp = 0.0;
    if warp < warps {
        // SAFETY: written above by the first lane of this warp.
        of_warp = unsafe { *scratch.add(warp as usize) };
    }
    warp_sum(of_warp, width)
}
