//! The element types: kernels load and store these, and compute in float32.

use crate::ptx;

/// An element type.
pub trait Float: Copy {
    /// 16 bytes of elements, which one instruction loads or stores.
    type Vector: Copy + AsMut<[Self]>;

    /// The exact value.
    fn to_f32(self) -> f32;

    /// The nearest element to a value.
    fn from_f32(value: f32) -> Self;
}

/// bfloat16: the upper half of a float32.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Bf16(u16);

/// `N` elements, 16 bytes in all.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Vector<T, const N: usize>([T; N]);

impl<T, const N: usize> AsMut<[T]> for Vector<T, N> {
    fn as_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl Float for f32 {
    type Vector = Vector<Self, 4>;

    fn to_f32(self) -> f32 {
        self
    }

    fn from_f32(value: f32) -> Self {
        value
    }
}

impl Float for f16 {
    type Vector = Vector<Self, 8>;

    fn to_f32(self) -> f32 {
        self as f32
    }

    fn from_f32(value: f32) -> Self {
        value as f16
    }
}

impl Float for Bf16 {
    type Vector = Vector<Self, 8>;

    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    fn from_f32(value: f32) -> Self {
        Self(ptx::f32_to_bf16(value))
    }
}
