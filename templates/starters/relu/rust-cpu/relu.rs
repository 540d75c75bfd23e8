//! `relu(x, out)`: `out[i] = max(x[i], 0)`. NaN stays NaN and -0.0 becomes +0.0.

use tvm_ffi::{DLDeviceType, Result, TensorView};

use crate::checks::{Argument, DType};
use crate::elementwise::map;

/// Writes `max(x, 0)` to `out`.
///
/// Both are contiguous CPU tensors of the same shape (any rank, empty too) and dtype (float32, float16 or
/// bfloat16); `out` may be `x` itself.
pub fn relu(x: TensorView, out: TensorView) -> Result<()> {
    let (x, out) = (Argument::new("x", &x), Argument::new("out", &out));
    let dtype = x.dtype()?;
    x.on(DLDeviceType::kDLCPU)?;
    x.contiguous()?;
    out.like(&x)?;
    out.contiguous()?;
    out.same_or_apart(&x)?;

    let (count, x, out) = (x.tensor.numel(), x.data(), out.data());
    // SAFETY: the checks above: `count` elements of this dtype each, equal or apart, alive during the call.
    unsafe {
        match dtype {
            DType::F32 => map(x.cast(), out.cast(), count, relu_f32),
            DType::F16 => map(x.cast(), out.cast(), count, relu_bits::<0x7c00>),
            DType::BF16 => map(x.cast(), out.cast(), count, relu_bits::<0x7f80>),
        }
    }
    Ok(())
}

fn relu_f32(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

/// relu of a 16-bit float from its bits: whatever has its sign bit set is 0, except NaN, whose magnitude is above
/// that of infinity.
fn relu_bits<const INFINITY: u16>(x: u16) -> u16 {
    let negative = x >> 15 == 1;
    let nan = x & 0x7fff > INFINITY;
    if negative && !nan { 0 } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float32() {
        for (x, expected) in [(-1.5, 0.0), (-0.0, 0.0), (0.0, 0.0), (2.5, 2.5)] {
            assert_eq!(relu_f32(x).to_bits(), f32::to_bits(expected));
        }
        assert_eq!(relu_f32(f32::NEG_INFINITY), 0.0);
        assert_eq!(relu_f32(f32::INFINITY), f32::INFINITY);
        assert!(relu_f32(f32::NAN).is_nan());
    }

    /// A bfloat16 is the upper half of a float32, which gives the expected value of all 2^16 of them.
    #[test]
    fn every_bfloat16() {
        for bits in 0..=u16::MAX {
            let x = f32::from_bits(u32::from(bits) << 16);
            let expected = (relu_f32(x).to_bits() >> 16) as u16;
            assert_eq!(relu_bits::<0x7f80>(bits), expected, "{bits:#06x}");
        }
    }

    #[test]
    fn float16() {
        const INFINITY: u16 = 0x7c00;
        let negative = 0x8000;
        for x in [0x0000, 0x0001, 0x3c00, INFINITY] {
            assert_eq!(relu_bits::<INFINITY>(x), x);
            assert_eq!(relu_bits::<INFINITY>(x | negative), 0);
        }
        for nan in [0x7e00, 0xfe00, 0x7c01] {
            assert_eq!(relu_bits::<INFINITY>(nan), nan);
        }
    }
}
