//! Warpgroups: four warps, 128 threads, that Hopper's tensor cores serve together, and that can take roles in a block.

use core::arch::asm;

use crate::block;

/// Threads of a warpgroup.
pub const THREADS: u32 = 128;

/// Index of this thread's warpgroup in its block. The same in all threads of a warp, and the compiler can tell.
#[inline(always)]
pub fn index() -> u32 {
    let index;
    // SAFETY: from register to register. PTX ISA, shfl.sync.idx: what the warp's first thread has.
    unsafe {
        asm!(
            "shfl.sync.idx.b32 {index}, {own}, 0, 31, -1;",
            index = out(reg32) index,
            own = in(reg32) block::thread() / THREADS,
            options(nomem, nostack),
        );
    }
    index
}

/// Lets the threads of this warpgroup have `COUNT` registers each, less than they have. PTX ISA 9.7.19.5, setmaxnreg.
///
/// A kernel that says so needs `directive!(".maxntid ...")`.
#[inline(always)]
pub fn release_registers<const COUNT: u32>() {
    // SAFETY: the assembler keeps what follows within these registers.
    unsafe { asm!("setmaxnreg.dec.sync.aligned.u32 {};", const COUNT, options(nostack)) }
}

/// Lets the threads of this warpgroup have `COUNT` registers each, more than they have, once others of the block have
/// released them. PTX ISA 9.7.19.5, setmaxnreg.
#[inline(always)]
pub fn take_registers<const COUNT: u32>() {
    // SAFETY: the assembler keeps what follows within these registers.
    unsafe { asm!("setmaxnreg.inc.sync.aligned.u32 {};", const COUNT, options(nostack)) }
}

/// Waits at barrier `id` (1 to 15) of the block until `threads` threads are there or have arrived. PTX ISA,
/// barrier.cta.sync.
#[inline(always)]
pub fn synchronise(id: u32, threads: u32) {
    // SAFETY: waits.
    unsafe {
        asm!(
            "barrier.cta.sync.aligned {id}, {threads};",
            id = in(reg32) id,
            threads = in(reg32) threads,
            options(nostack),
        );
    }
}

/// Arrives at barrier `id` (1 to 15) of the block, at which others wait, and goes on. PTX ISA, barrier.cta.arrive.
#[inline(always)]
pub fn arrive(id: u32, threads: u32) {
    // SAFETY: waits for nothing.
    unsafe {
        asm!(
            "barrier.cta.arrive.aligned {id}, {threads};",
            id = in(reg32) id,
            threads = in(reg32) threads,
            options(nostack),
        );
    }
}
