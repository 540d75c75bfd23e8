//! Packs: what one instruction loads or stores, a vector of 16 bytes or a single element.

use core::mem;

use cuda_device::async_copy::cp_async_cg_16;
use cuda_device::float::fma_rn_f32;
use cuda_device::ptx_asm;

use crate::float::{Bf16, Float};

/// A [`Float`] that is converted two at a time, where there is an instruction for it.
pub trait Element: Float {
    /// The nearest elements to two values.
    fn pair_from_f32(values: [f32; 2]) -> [Self; 2] {
        values.map(Self::from_f32)
    }
}

impl Element for f32 {}

impl Element for f16 {}

impl Element for Bf16 {
    fn pair_from_f32([low, high]: [f32; 2]) -> [Self; 2] {
        let bits: u32;
        // SAFETY: from register to register; a `Bf16` is its 16 bits, of which any are one.
        unsafe {
            ptx_asm!(
                "cvt.rn.bf16x2.f32 %0, %1, %2;",
                out("=r") bits,
                in("f") high,
                in("f") low,
                options(register_only),
            );
            mem::transmute([bits as u16, (bits >> 16) as u16])
        }
    }
}

/// `N` neighbouring elements, which one instruction loads or stores where they are 16 bytes. The default is zeros.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Vector<T, const N: usize>([T; N]);

impl<T: Element, const N: usize> Default for Vector<T, N> {
    fn default() -> Self {
        Self([T::from_f32(0.0); N])
    }
}

/// A single element. The default is zero.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Single<T>(T);

impl<T: Element> Default for Single<T> {
    fn default() -> Self {
        Self(T::from_f32(0.0))
    }
}

/// Neighbouring elements. The default is zeros.
pub trait Pack: Copy + Default {
    /// Type of an element.
    type Element: Element;

    /// Number of elements.
    const LEN: usize = size_of::<Self>() / size_of::<Self::Element>();

    /// The elements, in order.
    fn elements(&self) -> &[Self::Element];

    /// The elements nearest to `f(index, value)` of each.
    fn map(self, f: impl FnMut(usize, f32) -> f32) -> Self;

    /// The pack at an address.
    ///
    /// # Safety
    /// It must be readable.
    unsafe fn load(from: *const Self) -> Self;

    /// Begins to copy a pack from global to shared memory, or does it: `cp_async_wait_all` waits for it.
    ///
    /// # Safety
    /// `from` must be readable, `to` writable.
    unsafe fn copy(from: *const Self, to: *mut Self);

    /// The same elements. What was computed of them before is not kept in registers, but computed again.
    fn forget(self) -> Self;
}

impl<T: Element, const N: usize> Pack for Vector<T, N> {
    type Element = T;

    fn elements(&self) -> &[T] {
        &self.0
    }

    fn map(mut self, mut f: impl FnMut(usize, f32) -> f32) -> Self {
        for (i, [a, b]) in self.0.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let values = [f(2 * i, a.to_f32()), f(2 * i + 1, b.to_f32())];
            [*a, *b] = T::pair_from_f32(values);
        }
        self
    }

    unsafe fn load(from: *const Self) -> Self {
        if size_of::<Self>() != size_of::<u128>() {
            // SAFETY: the caller's promise.
            return unsafe { *from };
        }
        // SAFETY: the caller's promise; the size and the alignment are the same. As one number it comes by one
        // instruction.
        unsafe { mem::transmute_copy(&*from.cast::<u128>()) }
    }

    unsafe fn copy(from: *const Self, to: *mut Self) {
        // SAFETY: a vector is 16 bytes, and aligned.
        unsafe { cp_async_cg_16(to.cast(), from.cast()) };
    }

    fn forget(self) -> Self {
        forget(self)
    }
}

impl<T: Element> Pack for Single<T> {
    type Element = T;

    fn elements(&self) -> &[T] {
        core::slice::from_ref(&self.0)
    }

    fn map(self, mut f: impl FnMut(usize, f32) -> f32) -> Self {
        Self(T::from_f32(f(0, self.0.to_f32())))
    }

    unsafe fn load(from: *const Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { *from }
    }

    unsafe fn copy(from: *const Self, to: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe { *to = *from };
    }

    fn forget(self) -> Self {
        self
    }
}

/// `LEN` packs in registers, at most 8. The compiler keeps an array there only where it knows each index. No loop
/// promises that: so the indices are spelled out.
pub struct Held<X, const LEN: usize>([X; LEN]);

impl<X: Pack, const LEN: usize> Held<X, LEN> {
    /// Pack `k` is `load(k)`.
    #[inline(always)]
    pub fn load(load: impl Fn(usize) -> X) -> Self {
        let mut held = Self([X::default(); LEN]);
        held.each(|k, pack| *pack = load(k).forget());
        held
    }

    /// Calls `f(k, pack)` for each pack `k`.
    #[inline(always)]
    pub fn each(&mut self, mut f: impl FnMut(usize, &mut X)) {
        let mut call = |k: usize| {
            if k < LEN {
                f(k, &mut self.0[k]);
            }
        };
        call(0);
        call(1);
        call(2);
        call(3);
        call(4);
        call(5);
        call(6);
        call(7);
    }

    /// Pack `k`.
    #[inline(always)]
    pub fn get(&self, k: usize) -> X {
        self.0[k]
    }

    /// The sum of the squares of all elements.
    #[inline(always)]
    pub fn sum_of_squares(&mut self) -> f32 {
        let mut total = 0.0;
        self.each(|_, pack| {
            let mut sum = 0.0;
            for element in pack.elements() {
                let element = element.to_f32();
                sum = fma_rn_f32(element, element, sum);
            }
            total += sum;
            *pack = pack.forget();
        });
        total
    }
}

/// The same 16 bytes, of which the compiler no longer knows where they are from; longer values as they are.
fn forget<V: Copy>(value: V) -> V {
    if size_of::<V>() != 16 {
        return value;
    }
    // SAFETY: the same size, and each register is given out as it was taken in.
    unsafe {
        let [mut a, mut b, mut c, mut d]: [u32; 4] = mem::transmute_copy(&value);
        ptx_asm!(
            "// %0 %1 %2 %3",
            inout("+r") a,
            inout("+r") b,
            inout("+r") c,
            inout("+r") d,
            options(register_only),
        );
        mem::transmute_copy(&[a, b, c, d])
    }
}
