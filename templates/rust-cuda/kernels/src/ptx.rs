//! Safe names for the instructions that Rust has no word for.

use core::arch::{asm, nvptx};

/// Stops the kernel; the host sees `CUDA_ERROR_ASSERT` or `CUDA_ERROR_LAUNCH_FAILED`.
pub fn trap() -> ! {
    // SAFETY: touches no memory.
    unsafe { nvptx::trap() }
}

/// Index of this thread among all threads of a one-dimensional grid.
pub fn thread() -> usize {
    // SAFETY: reads special registers.
    let (block, threads, thread) = unsafe {
        (
            nvptx::_block_idx_x(),
            nvptx::_block_dim_x(),
            nvptx::_thread_idx_x(),
        )
    };
    block as usize * threads as usize + thread as usize
}

/// Number of threads of a one-dimensional grid.
pub fn threads() -> usize {
    // SAFETY: reads special registers.
    unsafe { nvptx::_grid_dim_x() as usize * nvptx::_block_dim_x() as usize }
}

/// The value of a float16, given by its bits.
pub fn f16_to_f32(bits: u16) -> f32 {
    let value;
    // SAFETY: from register to register.
    unsafe {
        asm!(
            "cvt.f32.f16 {value}, {bits};",
            value = out(reg32) value,
            bits = in(reg16) bits,
            options(pure, nomem, nostack),
        );
    }
    value
}

/// Bits of the float16 nearest to a value; of two that are equally near, the even one.
pub fn f32_to_f16(value: f32) -> u16 {
    let bits;
    // SAFETY: from register to register.
    unsafe {
        asm!(
            "cvt.rn.f16.f32 {bits}, {value};",
            bits = out(reg16) bits,
            value = in(reg32) value,
            options(pure, nomem, nostack),
        );
    }
    bits
}

/// Bits of the bfloat16 nearest to a value; of two that are equally near, the even one.
pub fn f32_to_bf16(value: f32) -> u16 {
    let bits;
    // SAFETY: from register to register.
    unsafe {
        asm!(
            "cvt.rn.bf16.f32 {bits}, {value};",
            bits = out(reg16) bits,
            value = in(reg32) value,
            options(pure, nomem, nostack),
        );
    }
    bits
}
