//! What the compiler cannot be told in Rust.

use core::arch::asm;

/// The same value, of which the compiler knows nothing: what depends on it is computed here and no earlier.
///
/// A rare branch in a loop says so, that what it needs takes no registers from the rest of the loop.
#[inline(always)]
pub fn opaque(value: i32) -> i32 {
    let same;
    // SAFETY: from register to register. It is not `pure`, so it stays where it is.
    unsafe {
        asm!(
            "mov.b32 {same}, {value};",
            same = out(reg32) same,
            value = in(reg32) value,
            options(nomem, nostack),
        );
    }
    same
}

/// Gives the kernel that it stands in a directive such as `.maxntid 384`, which Rust has no attribute for. PTX ISA
/// 11.4, "Performance-Tuning Directives".
///
/// It is a comment, which `build_ptx.py` moves to its place.
#[macro_export]
macro_rules! directive {
    ($text:expr) => {
        // SAFETY: a comment.
        unsafe { core::arch::asm!(concat!("// directive: ", $text), options(nomem, nostack)) }
    };
}
