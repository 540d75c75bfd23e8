//! Clusters: blocks that run at the same time and reach each other's shared memory. PTX ISA, "Cooperative Thread Arrays".

use core::arch::asm;

use crate::bulk::{Address, Barrier};
use crate::directive;

/// Index of this block in its cluster.
#[inline(always)]
pub fn rank() -> u32 {
    let rank;
    // SAFETY: reads a special register.
    unsafe {
        asm!("mov.u32 {rank}, %cluster_ctarank;", rank = out(reg32) rank, options(pure, nomem, nostack));
    }
    rank
}

/// Blocks of a cluster.
#[inline(always)]
pub fn blocks() -> u32 {
    let blocks;
    // SAFETY: reads a special register.
    unsafe {
        asm!("mov.u32 {blocks}, %cluster_nctarank;", blocks = out(reg32) blocks, options(pure, nomem, nostack));
    }
    blocks
}

/// Says that this thread has come here, and nothing of what it wrote. Between two of these must be one [`wait`]. PTX ISA,
/// barrier.cluster.
#[inline(always)]
pub fn arrive() {
    // SAFETY: waits for nothing, touches no memory.
    unsafe { asm!("barrier.cluster.arrive.relaxed;", options(nostack)) }
}

/// Waits until all threads of the cluster have said so, which must all call it: only a block that runs has shared memory,
/// and none may end while another may still send it something.
#[inline(always)]
pub fn wait() {
    // SAFETY: waits.
    unsafe { asm!("barrier.cluster.wait.acquire;", options(nostack)) }
}

/// Stores a value in the shared memory of a block of this cluster, and tells a barrier there of its 4 bytes: who waits
/// for the barrier sees the value. PTX ISA, mapa and st.async, which is newer than what LLVM takes for Hopper.
///
/// # Safety
/// All blocks must run, `to` be writable at the same place in that block, and `barrier` have been made there.
#[inline(always)]
pub unsafe fn send(value: f32, block: u32, to: Address, barrier: Barrier) {
    directive!(".version 8.1");
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "{{ .reg .u32 to, barrier;",
            "mapa.shared::cluster.u32 to, {to}, {block};",
            "mapa.shared::cluster.u32 barrier, {barrier}, {block};",
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [to], {value}, [barrier]; }}",
            to = in(reg32) to.0,
            barrier = in(reg32) barrier.0.0,
            block = in(reg32) block,
            value = in(reg32) value,
            options(nostack),
        );
    }
}
