//! Arithmetic that is one instruction each.

use core::arch::asm;

/// `a * b + c`, rounded once.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    let result;
    // SAFETY: from register to register.
    unsafe {
        asm!(
            "fma.rn.f32 {result}, {a}, {b}, {c};",
            result = out(reg32) result,
            a = in(reg32) a,
            b = in(reg32) b,
            c = in(reg32) c,
            options(pure, nomem, nostack),
        );
    }
    result
}

macro_rules! approximate {
    ($(#[$doc:meta])* $name:ident, $instruction:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(x: f32) -> f32 {
            let y;
            // SAFETY: from register to register.
            unsafe {
                asm!(
                    concat!($instruction, " {y}, {x};"),
                    y = out(reg32) y,
                    x = in(reg32) x,
                    options(pure, nomem, nostack),
                );
            }
            y
        }
    };
}

approximate!(
    /// 2 to the power of x, within 2 units in the last place; 0 where that is subnormal. PTX ISA, ex2.approx.ftz.f32.
    exp2, "ex2.approx.ftz.f32"
);
approximate!(
    /// Logarithm to base 2, within 2^-22, relative to the result where x is not between 0.5 and 2. PTX ISA,
    /// lg2.approx.ftz.f32.
    log2, "lg2.approx.ftz.f32"
);
approximate!(
    /// 1 / x, within 1 unit in the last place. PTX ISA, rcp.approx.ftz.f32.
    reciprocal, "rcp.approx.ftz.f32"
);
approximate!(
    /// The inverse of a square root, within 2^-22.9 of itself. PTX ISA, rsqrt.approx.f32.
    rsqrt, "rsqrt.approx.f32"
);
