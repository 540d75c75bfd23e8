//! Tensor cores: products of tiles of float16 or bfloat16, summed in float32.
//!
//! A warp multiplies tiles of 16 x 16. Each of its 32 threads holds a part of a tile, a *fragment*: with `g = lane / 4`
//! and `t = lane % 4`, a thread has in the
//!
//! | | elements of the tile |
//! | --- | --- |
//! | left factor, [`Fragment`] | rows g, g + 8, g, g + 8; columns 2t and 2t + 1, the last two registers 8 further |
//! | right factor, [`Fragment`] | columns g, g, g + 8, g + 8; rows 2t and 2t + 1, the 2nd and 4th register 8 further |
//! | sum, [`Sums`] | rows g, g, g + 8, g + 8; columns 2t, 2t + 1, 2t, 2t + 1, the second array 8 further |
//!
//! PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": a tile of sums is two of 16 x 8.

use core::arch::asm;

use crate::float::Bf16;

/// A thread's part of a 16 x 16 tile of float16 or bfloat16: two elements in each register.
pub type Fragment = [u32; 4];

/// A thread's part of a 16 x 16 tile of float32.
pub type Sums = [[f32; 4]; 2];

/// An element type that the tensor cores multiply.
pub trait Half: Copy {
    /// Adds the product of 16 x 16 by 16 x 8 elements to 16 x 8 sums.
    fn multiply_half(sums: &mut [f32; 4], left: Fragment, right: [u32; 2]);

    /// The nearest elements to two values, the first in the lower bits.
    fn pack(low: f32, high: f32) -> u32;

    /// Adds the product of two 16 x 16 tiles. Every thread of the warp must take part.
    #[inline(always)]
    fn multiply(sums: &mut Sums, left: Fragment, right: Fragment) {
        Self::multiply_half(&mut sums[0], left, [right[0], right[1]]);
        Self::multiply_half(&mut sums[1], left, [right[2], right[3]]);
    }

    /// Rounds a tile of sums to the left factor of another product.
    ///
    /// Both are spread over the threads in the same way, so nothing moves between them.
    #[inline(always)]
    fn round(sums: &Sums) -> Fragment {
        let [a, b] = sums;
        [
            Self::pack(a[0], a[1]),
            Self::pack(a[2], a[3]),
            Self::pack(b[0], b[1]),
            Self::pack(b[2], b[3]),
        ]
    }
}

macro_rules! half {
    ($element:ty, $name:literal) => {
        impl Half for $element {
            // PTX ISA, mma.sync.aligned.m16n8k16.
            #[inline(always)]
            fn multiply_half(sums: &mut [f32; 4], left: Fragment, right: [u32; 2]) {
                let [a, b, c, d] = sums;
                // SAFETY: from registers to registers.
                unsafe {
                    asm!(
                        concat!(
                            "mma.sync.aligned.m16n8k16.row.col.f32.", $name, ".", $name, ".f32 {{{a}, {b}, {c}, {d}}}, \
                             {{{l0}, {l1}, {l2}, {l3}}}, {{{r0}, {r1}}}, {{{a}, {b}, {c}, {d}}};"
                        ),
                        a = inout(reg32) *a,
                        b = inout(reg32) *b,
                        c = inout(reg32) *c,
                        d = inout(reg32) *d,
                        l0 = in(reg32) left[0],
                        l1 = in(reg32) left[1],
                        l2 = in(reg32) left[2],
                        l3 = in(reg32) left[3],
                        r0 = in(reg32) right[0],
                        r1 = in(reg32) right[1],
                        options(pure, nomem, nostack),
                    );
                }
            }

            // PTX ISA, cvt.rn.f16x2.f32 and cvt.rn.bf16x2.f32: the first source goes to the upper half.
            #[inline(always)]
            fn pack(low: f32, high: f32) -> u32 {
                let packed;
                // SAFETY: from registers to a register.
                unsafe {
                    asm!(
                        concat!("cvt.rn.", $name, "x2.f32 {packed}, {high}, {low};"),
                        packed = out(reg32) packed,
                        high = in(reg32) high,
                        low = in(reg32) low,
                        options(pure, nomem, nostack),
                    );
                }
                packed
            }
        }
    };
}

half!(f16, "f16");
half!(Bf16, "bf16");
