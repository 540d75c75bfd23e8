//! What the compiler cannot be told in Rust.

use cuda_device::ptx_asm;

/// The same value, of which the compiler knows nothing: what depends on it is computed here and no earlier.
///
/// A rare branch in a loop says so, that what it needs takes no registers from the rest of the loop.
#[inline(always)]
pub fn opaque(value: i32) -> i32 {
    let same: i32;
    // SAFETY: from register to register. It is not `register_only`, so it stays where it is.
    unsafe { ptx_asm!("mov.b32 %0, %1;", out("=r") same, in("r") value) };
    same
}

/// A `for` loop over the numbers from 0, which the compiler writes out: `unroll!(for i in 0..N { ... })`.
///
/// An array can be in registers only where all its indices are constants, and the compiler leaves longer loops as they
/// are. This does for any function what cuda-oxide's `#[unroll]` does in those with `#[kernel]` or `#[device]`.
#[macro_export]
macro_rules! unroll {
    (for $i:ident in 0..$end:tt $body:block) => {
        let mut next: usize = 0;
        while next < $end {
            cuda_device::thread::__unroll_config::<0>();
            let $i = next;
            $body
            next += 1;
        }
    };
}
