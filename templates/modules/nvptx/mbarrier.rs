//! Barriers in shared memory that count arrivals and the bytes of copies: PTX ISA 9.7.13.15, "mbarrier".

use core::arch::asm;

use crate::shared::Shared;

/// A barrier in 8 bytes of shared memory.
///
/// Its phases are numbered from 0. A phase is over after as many arrivals as [`Barrier::init`] says, and when all the
/// bytes that [`Barrier::expect`] announced in it have come.
#[derive(Clone, Copy)]
pub struct Barrier(pub Shared);

impl Barrier {
    /// Bytes of a barrier.
    pub const BYTES: u32 = 8;

    /// Makes the barrier, for so many arrivals in each phase. One thread does so, and calls [`publish`]. PTX ISA,
    /// mbarrier.init.
    ///
    /// # Safety
    /// The 8 bytes, from a multiple of 8 on, must be this barrier's alone.
    #[inline(always)]
    pub unsafe fn init(self, arrivals: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "mbarrier.init.shared::cta.b64 [{barrier}], {arrivals};",
                barrier = in(reg32) self.0.0,
                arrivals = in(reg32) arrivals,
                options(nostack),
            );
        }
    }

    /// Arrives. PTX ISA, mbarrier.arrive.
    ///
    /// # Safety
    /// The barrier must have been made.
    #[inline(always)]
    pub unsafe fn arrive(self) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "mbarrier.arrive.shared::cta.b64 _, [{barrier}];",
                barrier = in(reg32) self.0.0,
                options(nostack),
            );
        }
    }

    /// Arrives, and lets the phase wait for so many bytes of copies too. PTX ISA, mbarrier.arrive.expect_tx.
    ///
    /// # Safety
    /// The barrier must have been made.
    #[inline(always)]
    pub unsafe fn expect(self, bytes: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{barrier}], {bytes};",
                barrier = in(reg32) self.0.0,
                bytes = in(reg32) bytes,
                options(nostack),
            );
        }
    }

    /// Waits until a phase is over whose number is even (`parity` 0) or odd (1): the one at hand or the one before. A
    /// new barrier is as if an odd phase had just ended. PTX ISA, mbarrier.try_wait.parity.
    ///
    /// # Safety
    /// The barrier must have been made.
    #[inline(always)]
    pub unsafe fn wait(self, parity: u32) {
        let mut over = 0;
        while over == 0 {
            // SAFETY: the caller's promise.
            unsafe {
                asm!(
                    "{{ .reg .pred over;",
                    "mbarrier.try_wait.parity.shared::cta.b64 over, [{barrier}], {parity};",
                    "selp.b32 {over}, 1, 0, over; }}",
                    over = out(reg32) over,
                    barrier = in(reg32) self.0.0,
                    parity = in(reg32) parity,
                    options(nostack),
                );
            }
        }
    }
}

/// Shows new barriers to the copies of `tma`; threads see them after the block's next `block::barrier`. PTX ISA,
/// fence.mbarrier_init and fence.proxy.async.
#[inline(always)]
pub fn publish() {
    // SAFETY: it only orders.
    unsafe {
        asm!(
            "fence.mbarrier_init.release.cluster;",
            "fence.proxy.async.shared::cta;",
            options(nostack)
        );
    }
}
