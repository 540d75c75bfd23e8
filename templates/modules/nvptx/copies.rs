//! Copies from global to shared memory that go on while the thread does something else.

use core::arch::asm;

/// Begins to copy 16 bytes from global to shared memory; [`wait`] of the same thread waits for it.
///
/// # Safety
/// Both addresses must be multiples of 16, and the bytes at `from` readable, those at `to` writable.
pub unsafe fn begin_16(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "{{ .reg .u64 a; cvta.to.shared.u64 a, {to}; cp.async.cg.shared.global [a], [{from}], 16; }}",
            to = in(reg64) to,
            from = in(reg64) from,
            options(nostack),
        );
    }
}

/// Waits until this thread's copies to shared memory are there.
pub fn wait() {
    // SAFETY: waits.
    unsafe { asm!("cp.async.wait_all;", options(nostack)) };
}
