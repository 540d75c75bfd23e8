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

use cuda_device::convert::cvt_f16x2_f32;
use cuda_device::ptx_asm;
use cuda_device::wmma::{mma_m16n8k16_f32_bf16, mma_m16n8k16_f32_f16};

use crate::float::Bf16;

/// A thread's part of a 16 x 16 tile of float16 or bfloat16: two elements in each register.
pub type Fragment = [u32; 4];

/// A thread's part of a 16 x 16 tile of float32.
pub type Sums = [[f32; 4]; 2];

/// An element type that the tensor cores multiply.
pub trait Half: Copy {
    /// The sums of 16 x 8 elements and the product of 16 x 16 by 16 x 8 elements.
    ///
    /// # Safety
    /// All lanes of the warp must call this.
    unsafe fn multiply_half(sums: [f32; 4], left: Fragment, right: [u32; 2]) -> [f32; 4];

    /// The nearest elements to two values, the first in the lower bits.
    fn pack(low: f32, high: f32) -> u32;

    /// Adds the product of two 16 x 16 tiles.
    ///
    /// # Safety
    /// All lanes of the warp must call this.
    #[inline(always)]
    unsafe fn multiply(sums: &mut Sums, left: Fragment, [a, b, c, d]: Fragment) {
        // SAFETY: the caller's promise.
        unsafe {
            sums[0] = Self::multiply_half(sums[0], left, [a, b]);
            sums[1] = Self::multiply_half(sums[1], left, [c, d]);
        }
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

impl Half for f16 {
    #[inline(always)]
    unsafe fn multiply_half(sums: [f32; 4], left: Fragment, right: [u32; 2]) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe { mma_m16n8k16_f32_f16(sums, left, right) }
    }

    #[inline(always)]
    fn pack(low: f32, high: f32) -> u32 {
        cvt_f16x2_f32(low, high)
    }
}

impl Half for Bf16 {
    #[inline(always)]
    unsafe fn multiply_half(sums: [f32; 4], left: Fragment, right: [u32; 2]) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe { mma_m16n8k16_f32_bf16(sums, left, right) }
    }

    // PTX ISA, cvt.rn.bf16x2.f32: the first source goes to the upper half.
    #[inline(always)]
    fn pack(low: f32, high: f32) -> u32 {
        let packed: u32;
        // SAFETY: from registers to a register.
        unsafe {
            ptx_asm!(
                "cvt.rn.bf16x2.f32 %0, %1, %2;",
                out("=r") packed,
                in("f") high,
                in("f") low,
                options(register_only),
            );
        }
        packed
    }
}
