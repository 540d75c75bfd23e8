//! The element types: kernels load and store these, and compute in float32.

/// An element type.
pub trait Float: Copy + Send + Sync {
    /// The exact value.
    fn to_f32(self) -> f32;

    /// The nearest element to a value; of two that are equally near, the even one.
    fn from_f32(value: f32) -> Self;

    /// `out[i] = x[i]`, exactly, for slices of the same length.
    #[inline(always)]
    fn widen(x: &[Self], out: &mut [f32]) {
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x.to_f32());
    }

    /// The values of `x`: `x` itself where that is float32, else converted at the beginning of the buffer.
    #[inline(always)]
    fn widened<'a>(x: &'a [Self], buffer: &'a mut [f32]) -> &'a [f32] {
        let buffer = &mut buffer[..x.len()];
        Self::widen(x, buffer);
        buffer
    }

    /// `out[i]` is the nearest element to `x[i]`, for slices of the same length.
    #[inline(always)]
    fn narrow(x: &[f32], out: &mut [Self]) {
        out.iter_mut()
            .zip(x)
            .for_each(|(out, x)| *out = Self::from_f32(*x));
    }
}

/// float16 (IEEE 754 binary16): a sign, 5 bits of exponent and 10 of fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// bfloat16: the upper half of a float32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

impl Float for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn widened<'a>(x: &'a [f32], _: &'a mut [f32]) -> &'a [f32] {
        x
    }
}

impl Float for Bf16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        let quiet = bits >> 16 | 0x40; // a NaN, whose payload could be rounded away
        Self(if value.is_nan() { quiet } else { rounded } as u16)
    }
}

/// 2^-14, the smallest normal float16.
const F16_NORMAL: f32 = 1.0 / 16384.0;
/// Exponent bias of float32 less that of float16, where float32 keeps its exponent.
const F16_BIAS: u32 = (127 - 15) << 23;

impl Float for F16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        let magnitude = u32::from(self.0 & 0x7fff);
        let value = match magnitude {
            0..0x0400 => magnitude as f32 * (F16_NORMAL / 1024.0), // subnormal
            0x0400..0x7c00 => f32::from_bits((magnitude << 13) + F16_BIAS),
            _ => f32::from_bits(magnitude << 13 | 0x7f80_0000), // infinity and NaN
        };
        f32::from_bits(value.to_bits() | u32::from(self.0 & 0x8000) << 16)
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        let sign = value.to_bits() >> 16 & 0x8000;
        let value = value.abs();
        let bits = value.to_bits();
        let magnitude = if value.is_nan() {
            0x7e00 | bits >> 13 & 0x1ff
        } else if value >= 65536.0 {
            0x7c00 // infinity; what lies between it and 65504 is rounded below
        } else if value < F16_NORMAL {
            // The last bit of 0.5 is the last of a subnormal float16: the sum is rounded there.
            (value + 0.5).to_bits() - 0.5_f32.to_bits()
        } else {
            (bits - F16_BIAS + 0xfff + (bits >> 13 & 1)) >> 13
        };
        Self((sign | magnitude) as u16)
    }

    #[inline(always)]
    fn widen(x: &[Self], out: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("f16c") {
            // SAFETY: the processor has F16C.
            return unsafe { f16c::widen(x, out) };
        }
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x.to_f32());
    }

    #[inline(always)]
    fn narrow(x: &[f32], out: &mut [Self]) {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("f16c") {
            // SAFETY: the processor has F16C.
            return unsafe { f16c::narrow(x, out) };
        }
        out.iter_mut()
            .zip(x)
            .for_each(|(out, x)| *out = Self::from_f32(*x));
    }
}

/// The conversions of float16 by the processor, eight at a time.
#[cfg(target_arch = "x86_64")]
mod f16c {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps,
        _mm256_cvtps_ph, _mm256_loadu_ps, _mm256_storeu_ps,
    };

    use super::{F16, Float};

    #[target_feature(enable = "avx,f16c")]
    pub fn widen(x: &[F16], out: &mut [f32]) {
        let (mut x, mut out) = (x.chunks_exact(8), out.chunks_exact_mut(8));
        for (x, out) in (&mut x).zip(&mut out) {
            // SAFETY: both are eight elements; no alignment is asked for.
            unsafe {
                let values = _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast()));
                _mm256_storeu_ps(out.as_mut_ptr(), values);
            }
        }
        let rest = out.into_remainder().iter_mut().zip(x.remainder());
        rest.for_each(|(out, x)| *out = x.to_f32());
    }

    #[target_feature(enable = "avx,f16c")]
    pub fn narrow(x: &[f32], out: &mut [F16]) {
        let (mut x, mut out) = (x.chunks_exact(8), out.chunks_exact_mut(8));
        for (x, out) in (&mut x).zip(&mut out) {
            // SAFETY: both are eight elements; no alignment is asked for.
            unsafe {
                let values =
                    _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x.as_ptr()));
                _mm_storeu_si128(out.as_mut_ptr().cast(), values);
            }
        }
        let rest = out.into_remainder().iter_mut().zip(x.remainder());
        rest.for_each(|(out, x)| *out = F16::from_f32(*x));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f16(bits: u16) -> f32 {
        F16(bits).to_f32()
    }

    #[test]
    fn known_values() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x0001, 2_f32.powi(-24)),
            (0x0400, 2_f32.powi(-14)),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x7c00, f32::INFINITY),
        ] {
            assert_eq!(f16(bits), value);
            assert_eq!(F16::from_f32(value), F16(bits));
        }
        assert_eq!(Bf16(0xc049).to_f32(), -3.140_625);
    }

    #[test]
    fn every_element_survives() {
        for bits in 0..=u16::MAX {
            let values = (F16(bits).to_f32(), Bf16(bits).to_f32());
            let again = (F16::from_f32(values.0), Bf16::from_f32(values.1));
            assert!(again.0.0 == bits || values.0.is_nan() && again.0.to_f32().is_nan());
            assert!(again.1.0 == bits || values.1.is_nan() && again.1.to_f32().is_nan());
        }
    }

    /// Half way between neighbours lies a float32, from which rounding goes to the even one, and from its own
    /// neighbours to theirs.
    #[test]
    fn rounds_to_nearest_even() {
        fn check<T: Float + PartialEq + std::fmt::Debug>(new: fn(u16) -> T, infinity: u16) {
            for bits in 0..infinity - 1 {
                let (below, above) = (new(bits), new(bits + 1));
                let middle = below.to_f32() + (above.to_f32() - below.to_f32()) / 2.0;
                let even = if bits % 2 == 0 { below } else { above };
                assert_eq!(T::from_f32(middle), even);
                assert_eq!(T::from_f32(middle.next_down()), below);
                assert_eq!(T::from_f32(middle.next_up()), above);
            }
        }
        check(F16, 0x7c00);
        check(Bf16, 0x7f80);
        assert_eq!(F16::from_f32(65519.996), F16(0x7bff));
        assert_eq!(F16::from_f32(65520.0), F16(0x7c00));
        assert_eq!(F16::from_f32(-1e30), F16(0xfc00));
        assert_eq!(Bf16::from_f32(f32::MAX), Bf16(0x7f80));
    }

    /// Whatever converts slices agrees with what converts one element, at every length around eight.
    #[test]
    fn slices() {
        let x: Vec<F16> = (0..=u16::MAX).map(F16).collect();
        for x in [&x[..], &x[1..9], &x[2..9], &x[3..3], &x[0x7b00..0x7c03]] {
            let (mut wide, mut narrow) = (vec![0.0; x.len()], vec![F16(7); x.len()]);
            F16::widen(x, &mut wide);
            F16::narrow(&wide, &mut narrow);
            for ((x, wide), narrow) in x.iter().zip(wide).zip(narrow) {
                if x.to_f32().is_nan() {
                    assert!(wide.is_nan() && narrow.to_f32().is_nan());
                } else {
                    assert_eq!((wide, narrow), (x.to_f32(), *x));
                }
            }
        }
    }
}
