//! Shared memory by address, which bulk copies and other blocks fill while the threads do something else, and barriers
//! that count the bytes. PTX ISA 9.7.9.25.4, "Bulk copy", and 9.7.13.15, "mbarrier".

use core::arch::asm;
use core::mem;

/// An address in the block's shared memory, in bytes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Address(pub u32);

impl Address {
    /// The beginning of the dynamic shared memory, which `block.rs` declares, a multiple of 1024.
    #[inline(always)]
    pub fn dynamic() -> Self {
        let address;
        // SAFETY: names an address.
        unsafe {
            asm!(
                "mov.u32 {address}, dynamic_shared;",
                address = out(reg32) address,
                options(pure, nomem, nostack),
            );
        }
        Self(address)
    }

    /// The address so many bytes further.
    #[inline(always)]
    pub fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Loads a value of 4 bytes. PTX ISA, ld.
    ///
    /// # Safety
    /// It must be readable.
    #[inline(always)]
    pub unsafe fn load(self) -> f32 {
        let value;
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "ld.shared.f32 {value}, [{address}];",
                value = out(reg32) value,
                address = in(reg32) self.0,
                options(readonly, nostack),
            );
        }
        value
    }

    /// Loads 16 bytes as what they are. PTX ISA, ld.
    ///
    /// # Safety
    /// A `T` must be 16 bytes, and readable at this multiple of 16.
    #[inline(always)]
    pub unsafe fn load_16<T: Copy>(self) -> T {
        let (a, b, c, d): (u32, u32, u32, u32);
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "ld.shared.v4.b32 {{{a}, {b}, {c}, {d}}}, [{address}];",
                a = out(reg32) a,
                b = out(reg32) b,
                c = out(reg32) c,
                d = out(reg32) d,
                address = in(reg32) self.0,
                options(readonly, nostack),
            );
            mem::transmute_copy(&[a, b, c, d])
        }
    }

    /// Begins to copy bytes from global memory, which `barrier` counts. PTX ISA, cp.async.bulk.
    ///
    /// # Safety
    /// Both addresses and the number must be multiples of 16, and the memory here belongs to the copy until `barrier`
    /// says that it has come.
    #[inline(always)]
    pub unsafe fn copy(self, from: *const u8, bytes: u32, barrier: Barrier) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "{{ .reg .u64 from;",
                "cvta.to.global.u64 from, {from};",
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
                "[{to}], [from], {bytes}, [{barrier}]; }}",
                to = in(reg32) self.0,
                from = in(reg64) from,
                bytes = in(reg32) bytes,
                barrier = in(reg32) barrier.0.0,
                options(nostack),
            );
        }
    }
}

/// A barrier in 8 bytes of shared memory, for bytes only. Its phases are numbered from 0; a phase is over when all the bytes have come
/// that [`Barrier::expect`] announced in it.
#[derive(Clone, Copy)]
pub struct Barrier(pub Address);

impl Barrier {
    /// Bytes of a barrier.
    pub const BYTES: u32 = 8;

    /// Makes the barrier, for one [`Barrier::expect`] in each phase. One thread does so, and calls [`publish`]. PTX ISA,
    /// mbarrier.init.
    ///
    /// # Safety
    /// The 8 bytes, from a multiple of 8 on, must be this barrier's alone.
    #[inline(always)]
    pub unsafe fn init(self) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "mbarrier.init.shared::cta.b64 [{barrier}], 1;",
                barrier = in(reg32) self.0.0,
                options(nostack),
            );
        }
    }

    /// Lets the phase wait for so many bytes. PTX ISA, mbarrier.arrive.expect_tx.
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

    /// Waits until a phase is over whose number is even (`parity` 0) or odd (1): the one at hand or the one before. PTX
    /// ISA, mbarrier.try_wait.parity.
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

/// Shows new barriers to bulk copies and to the other blocks of the cluster, whose threads see them after the next
/// `cluster::wait`. PTX ISA, fence.mbarrier_init and fence.proxy.async.
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
