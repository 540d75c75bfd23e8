//! Hopper's tensor memory accelerator: it copies boxes of a tensor between global and shared memory, while the threads
//! do something else. PTX ISA 9.7.9.25.5, "Tensor copy".

use core::arch::asm;

use crate::mbarrier::Barrier;
use crate::shared::Shared;

/// What boxes are cut from: the 128 bytes that the driver's `cuTensorMapEncodeTiled` makes, in a kernel's parameter.
#[derive(Clone, Copy)]
#[repr(C, align(16))] // The most that rustc knows for a parameter; `build_ptx.py` makes it the 64 that are wanted.
pub struct TensorMap([u128; 8]);

/// Address of a parameter of a kernel, `parameter!("kernel", 0)` of the first: instructions take tensor maps by
/// address, where they came with the launch, and a Rust reference would be one to a copy. PTX ISA, cvta.param.
#[macro_export]
macro_rules! parameter {
    ($kernel:expr, $index:literal) => {{
        let address: u64;
        // SAFETY: the name that LLVM gives to the parameter, from symbol to register.
        unsafe {
            core::arch::asm!(
                concat!("mov.b64 {address}, ", $kernel, "_param_", $index, ";"),
                "cvta.param.u64 {address}, {address};",
                address = out(reg64) address,
                options(pure, nomem, nostack),
            );
        }
        address
    }};
}

impl TensorMap {
    /// Fetches the map before its first use. PTX ISA, prefetch.tensormap.
    ///
    /// # Safety
    /// `map` must be in a parameter of the kernel.
    #[inline(always)]
    pub unsafe fn prefetch(map: *const Self) {
        // SAFETY: the caller's promise.
        unsafe { asm!("prefetch.tensormap [{map}];", map = in(reg64) map, options(nostack)) }
    }

    /// Begins to copy the box at `[column, row, head, batch]` to shared memory, which `barrier` counts the bytes of.
    /// What is outside the tensor comes as zeros. PTX ISA, cp.async.bulk.tensor.
    ///
    /// # Safety
    /// `map` must be one of four dimensions in a parameter of the kernel. The memory behind `to`, a multiple of 1024,
    /// must have room for a box, and belongs to the copy until `barrier` says that it has come.
    #[inline(always)]
    pub unsafe fn load(map: *const Self, at: [i32; 4], to: Shared, barrier: Barrier) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
                "[{to}], [{map}, {{{column}, {row}, {head}, {batch}}}], [{barrier}];",
                to = in(reg32) to.0,
                map = in(reg64) map,
                column = in(reg32) at[0],
                row = in(reg32) at[1],
                head = in(reg32) at[2],
                batch = in(reg32) at[3],
                barrier = in(reg32) barrier.0.0,
                options(nostack),
            );
        }
    }

    /// Begins to copy a box from shared memory to `[column, row, head, batch]`, without what is outside the tensor. PTX
    /// ISA, cp.async.bulk.tensor.
    ///
    /// # Safety
    /// `map` must be one of four dimensions in a parameter of the kernel. The memory behind `from`, a multiple of 1024,
    /// belongs to the copy until [`wait_stores`].
    #[inline(always)]
    pub unsafe fn store(map: *const Self, at: [i32; 4], from: Shared) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group",
                "[{map}, {{{column}, {row}, {head}, {batch}}}], [{from}];",
                map = in(reg64) map,
                column = in(reg32) at[0],
                row = in(reg32) at[1],
                head = in(reg32) at[2],
                batch = in(reg32) at[3],
                from = in(reg32) from.0,
                options(nostack),
            );
        }
    }
}

/// Shows what this thread wrote to shared memory to copies that begin after the next barrier. PTX ISA,
/// fence.proxy.async.
#[inline(always)]
pub fn publish() {
    // SAFETY: it only orders.
    unsafe { asm!("fence.proxy.async.shared::cta;", options(nostack)) }
}

/// Makes one group of the stores that this thread began since the last group. PTX ISA, cp.async.bulk.commit_group.
#[inline(always)]
pub fn end_stores() {
    // SAFETY: waits for nothing, moves nothing.
    unsafe { asm!("cp.async.bulk.commit_group;", options(nostack)) }
}

/// Waits until all groups of stores of this thread have read shared memory. PTX ISA, cp.async.bulk.wait_group.
#[inline(always)]
pub fn wait_stores() {
    // SAFETY: waits.
    unsafe { asm!("cp.async.bulk.wait_group.read 0;", options(nostack)) }
}
