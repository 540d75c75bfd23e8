//! What the 32 threads of a warp do together. Each function must be called by all of them.

use core::arch::asm;

/// The value of the thread whose lane differs from this one's in the bits of `mask`. PTX ISA, shfl.sync.bfly.
#[inline(always)]
pub fn exchange(value: f32, mask: u32) -> f32 {
    let other;
    // SAFETY: from register to register.
    unsafe {
        asm!(
            "shfl.sync.bfly.b32 {other}, {value}, {mask}, 31, -1;",
            other = out(reg32) other,
            value = in(reg32) value,
            mask = in(reg32) mask,
            options(nomem, nostack),
        );
    }
    other
}

/// Whether it is so for any thread of the warp. PTX ISA, vote.sync.any.
#[inline(always)]
pub fn any(condition: bool) -> bool {
    let found: u32;
    // SAFETY: from register to register.
    unsafe {
        asm!(
            "{{ .reg .pred p;",
            "setp.ne.u32 p, {condition}, 0;",
            "vote.sync.any.pred p, p, -1;",
            "selp.u32 {found}, 1, 0, p; }}",
            condition = in(reg32) u32::from(condition),
            found = out(reg32) found,
            options(nomem, nostack),
        );
    }
    found != 0
}

/// Waits for the other threads of the warp, and lets each see what the others stored before. PTX ISA, bar.warp.sync.
#[inline(always)]
pub fn synchronise() {
    // SAFETY: waits.
    unsafe { asm!("bar.warp.sync -1;", options(nostack)) }
}
