//! What Rust has no word for: thread indices, 16-byte memory accesses, and instructions of PTX under a Rust name.
//!
//! The manual of every instruction is NVIDIA's "Parallel Thread Execution ISA".

use core::arch::{asm, nvptx};

/// Four 32-bit words that a thread reads or writes at once: the widest access, for the most memory bandwidth.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Vector(pub [u32; 4]);

/// Stops the kernel with an error, which the host sees at its next synchronisation.
pub fn trap() -> ! {
    // SAFETY: ends the thread, and touches no memory.
    unsafe { nvptx::trap() }
}

/// Calls `f` with this thread's share of `0..count`: every index is visited once by the whole one-dimensional grid,
/// whatever its size, and neighbouring threads visit neighbouring indices.
#[inline(always)]
pub fn for_each_index(count: u64, mut f: impl FnMut(u64)) {
    // SAFETY: these read special registers.
    let (block, blocks, thread, threads) = unsafe {
        (
            nvptx::_block_idx_x() as u64,
            nvptx::_grid_dim_x() as u64,
            nvptx::_thread_idx_x() as u64,
            nvptx::_block_dim_x() as u64,
        )
    };
    let mut index = block * threads + thread;
    while index < count {
        f(index);
        index += blocks * threads;
    }
}

/// `max(a, b)` of two float32, as bits. NaN if either is NaN; -0.0 is less than +0.0.
#[inline(always)]
pub fn max_f32(a: u32, b: u32) -> u32 {
    let max;
    // SAFETY: works on registers alone.
    unsafe {
        asm!("max.NaN.f32 {}, {}, {};", out(reg32) max, in(reg32) a, in(reg32) b,
            options(pure, nomem, nostack));
    }
    max
}

/// `max_f32` for each of two float16 in one word.
#[inline(always)]
pub fn max_f16x2(a: u32, b: u32) -> u32 {
    let max;
    // SAFETY: works on registers alone.
    unsafe {
        asm!("max.NaN.f16x2 {}, {}, {};", out(reg32) max, in(reg32) a, in(reg32) b,
            options(pure, nomem, nostack));
    }
    max
}

/// `max_f32` for each of two bfloat16 in one word.
#[inline(always)]
pub fn max_bf16x2(a: u32, b: u32) -> u32 {
    let max;
    // SAFETY: works on registers alone.
    unsafe {
        asm!("max.NaN.bf16x2 {}, {}, {};", out(reg32) max, in(reg32) a, in(reg32) b,
            options(pure, nomem, nostack));
    }
    max
}
