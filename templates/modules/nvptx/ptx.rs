//! Safe names for the instructions that Rust has no word for.

use core::arch::{asm, nvptx};

/// Index of this thread among all threads of a one-dimensional grid.
pub fn thread() -> usize {
    // SAFETY: reads special registers.
    unsafe {
        nvptx::_block_idx_x() as usize * nvptx::_block_dim_x() as usize
            + nvptx::_thread_idx_x() as usize
    }
}

/// Number of threads of a one-dimensional grid.
pub fn threads() -> usize {
    // SAFETY: reads special registers.
    unsafe { nvptx::_grid_dim_x() as usize * nvptx::_block_dim_x() as usize }
}

/// Ends the kernel with an error, which the host sees when it next waits for the device.
pub fn trap() -> ! {
    // SAFETY: touches no memory.
    unsafe { nvptx::trap() }
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
