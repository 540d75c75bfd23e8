//! Vectors of float32 in the width of the processor that the code runs on.
//!
//! An op is written once, for any [`Simd`], and handed to [`run`] as a [`Work`]. Everything that it calls on the way to
//! the vectors must be `#[inline(always)]`: only then is it compiled with the instructions of that `Simd`.

/// Instructions of a processor. A value of the type proves that the processor has them.
pub trait Simd: Copy {
    /// `LANES` numbers of float32.
    type Vector: Copy;
    const LANES: usize;

    /// The same number in all lanes.
    fn splat(self, x: f32) -> Self::Vector;

    /// `LANES` numbers from an address.
    ///
    /// # Safety
    /// They must be readable; the address need not be aligned.
    unsafe fn load_from(self, from: *const f32) -> Self::Vector;

    /// Writes `LANES` numbers to an address.
    ///
    /// # Safety
    /// They must be writable; the address need not be aligned.
    unsafe fn store_to(self, x: Self::Vector, to: *mut f32);

    /// The first `LANES` numbers of a slice.
    #[inline(always)]
    fn load(self, from: &[f32]) -> Self::Vector {
        // SAFETY: a slice of this length is readable.
        unsafe { self.load_from(from[..Self::LANES].as_ptr()) }
    }

    /// Writes the first `LANES` numbers of a slice.
    #[inline(always)]
    fn store(self, x: Self::Vector, to: &mut [f32]) {
        // SAFETY: a slice of this length is writable.
        unsafe { self.store_to(x, to[..Self::LANES].as_mut_ptr()) };
    }

    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn div(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `a * b + c`, rounded once where the processor can.
    fn mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// `if a > b { a } else { b }`: b where one is NaN.
    fn max(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `if a < b { x } else { y }`: y where one is NaN.
    fn where_less(
        self,
        a: Self::Vector,
        b: Self::Vector,
        x: Self::Vector,
        y: Self::Vector,
    ) -> Self::Vector;

    /// The numbers whose bits are those of `x`, moved to the left by 23 places: from the fraction to the exponent.
    fn fraction_to_exponent(self, x: Self::Vector) -> Self::Vector;
}

/// What [`run`] runs.
pub trait Work {
    type Output;

    /// Does it. Six times `VECTORS` sums fit in the registers, with what is added to them.
    fn run<S: Simd, const VECTORS: usize>(self, simd: S) -> Self::Output;
}

/// Runs `work` with the widest vectors that the processor has.
#[inline]
pub fn run<W: Work>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(simd) = x86::Avx512::new() {
            // SAFETY: `simd` proves that the processor has AVX-512.
            return unsafe { x86::with_avx512(simd, work) };
        }
        if let Some(simd) = x86::Avx2::new() {
            // SAFETY: `simd` proves that the processor has AVX2 and FMA.
            return unsafe { x86::with_avx2(simd, work) };
        }
    }
    work.run::<_, 4>(Portable)
}

/// Runs `work` with all vectors that the processor has.
#[cfg(test)]
pub fn run_each<W: Work + Copy>(work: W) -> Vec<W::Output> {
    #[allow(unused_mut, reason = "other processors have no more")]
    let mut outputs = vec![work.run::<_, 4>(Portable)];
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: each `simd` proves that the processor has its instructions.
        unsafe {
            outputs.extend(x86::Avx2::new().map(|simd| x86::with_avx2(simd, work)));
            outputs.extend(x86::Avx512::new().map(|simd| x86::with_avx512(simd, work)));
        }
    }
    outputs
}

/// Four lanes for any processor: LLVM makes vectors of them where there are such.
#[derive(Clone, Copy)]
pub struct Portable;

impl Portable {
    #[inline(always)]
    fn zip(a: [f32; 4], b: [f32; 4], f: impl Fn(f32, f32) -> f32) -> [f32; 4] {
        [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])]
    }
}

impl Simd for Portable {
    type Vector = [f32; 4];
    const LANES: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 4] {
        [x; 4]
    }

    #[inline(always)]
    unsafe fn load_from(self, from: *const f32) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<[f32; 4]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store_to(self, x: [f32; 4], to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(x) }
    }

    #[inline(always)]
    fn add(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        Self::zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        Self::zip(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        Self::zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        Self::zip(a, b, |a, b| a / b)
    }

    #[inline(always)]
    fn mul_add(self, a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        // Elsewhere, `f32::mul_add` would call a function.
        if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
            std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
        } else {
            self.add(self.mul(a, b), c)
        }
    }

    #[inline(always)]
    fn max(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        Self::zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn where_less(self, a: [f32; 4], b: [f32; 4], x: [f32; 4], y: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| if a[i] < b[i] { x[i] } else { y[i] })
    }

    #[inline(always)]
    fn fraction_to_exponent(self, x: [f32; 4]) -> [f32; 4] {
        x.map(|x| f32::from_bits(x.to_bits() << 23))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Simd, Work};

    /// 16 lanes; 32 registers.
    #[derive(Clone, Copy)]
    pub struct Avx512(());

    /// 8 lanes, with fused multiply-add; 16 registers.
    #[derive(Clone, Copy)]
    pub struct Avx2(());

    impl Avx512 {
        pub fn new() -> Option<Self> {
            is_x86_feature_detected!("avx512f").then_some(Self(()))
        }
    }

    impl Avx2 {
        pub fn new() -> Option<Self> {
            let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            has.then_some(Self(()))
        }
    }

    #[target_feature(enable = "avx512f")]
    pub fn with_avx512<W: Work>(simd: Avx512, work: W) -> W::Output {
        work.run::<_, 4>(simd)
    }

    #[target_feature(enable = "avx2,fma")]
    pub fn with_avx2<W: Work>(simd: Avx2, work: W) -> W::Output {
        work.run::<_, 2>(simd)
    }

    /// Methods that are one instruction each.
    macro_rules! instructions {
        ($($name:ident($($argument:ident),*) = $intrinsic:ident;)*) => {
            $(
                #[inline(always)]
                fn $name(self, $($argument: Self::Vector),*) -> Self::Vector {
                    // SAFETY: `self` proves that the processor has the instruction.
                    unsafe { $intrinsic($($argument),*) }
                }
            )*
        };
    }

    impl Simd for Avx512 {
        type Vector = __m512;
        const LANES: usize = 16;

        instructions! {
            add(a, b) = _mm512_add_ps;
            sub(a, b) = _mm512_sub_ps;
            mul(a, b) = _mm512_mul_ps;
            div(a, b) = _mm512_div_ps;
            mul_add(a, b, c) = _mm512_fmadd_ps;
            max(a, b) = _mm512_max_ps;
        }

        #[inline(always)]
        fn splat(self, x: f32) -> __m512 {
            // SAFETY: `self` proves that the processor has AVX-512.
            unsafe { _mm512_set1_ps(x) }
        }

        #[inline(always)]
        unsafe fn load_from(self, from: *const f32) -> __m512 {
            // SAFETY: as above, and the caller's promise.
            unsafe { _mm512_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn store_to(self, x: __m512, to: *mut f32) {
            // SAFETY: as above, and the caller's promise.
            unsafe { _mm512_storeu_ps(to, x) }
        }

        #[inline(always)]
        fn where_less(self, a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
            // SAFETY: `self` proves that the processor has AVX-512.
            unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), y, x) }
        }

        #[inline(always)]
        fn fraction_to_exponent(self, x: __m512) -> __m512 {
            // SAFETY: `self` proves that the processor has AVX-512.
            unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_castps_si512(x))) }
        }
    }

    impl Simd for Avx2 {
        type Vector = __m256;
        const LANES: usize = 8;

        instructions! {
            add(a, b) = _mm256_add_ps;
            sub(a, b) = _mm256_sub_ps;
            mul(a, b) = _mm256_mul_ps;
            div(a, b) = _mm256_div_ps;
            mul_add(a, b, c) = _mm256_fmadd_ps;
            max(a, b) = _mm256_max_ps;
        }

        #[inline(always)]
        fn splat(self, x: f32) -> __m256 {
            // SAFETY: `self` proves that the processor has AVX2.
            unsafe { _mm256_set1_ps(x) }
        }

        #[inline(always)]
        unsafe fn load_from(self, from: *const f32) -> __m256 {
            // SAFETY: as above, and the caller's promise.
            unsafe { _mm256_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn store_to(self, x: __m256, to: *mut f32) {
            // SAFETY: as above, and the caller's promise.
            unsafe { _mm256_storeu_ps(to, x) }
        }

        #[inline(always)]
        fn where_less(self, a: __m256, b: __m256, x: __m256, y: __m256) -> __m256 {
            // SAFETY: `self` proves that the processor has AVX2.
            unsafe { _mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)) }
        }

        #[inline(always)]
        fn fraction_to_exponent(self, x: __m256) -> __m256 {
            // SAFETY: `self` proves that the processor has AVX2.
            unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_castps_si256(x))) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the methods say of NaN, and the order of `where_less`.
    #[test]
    fn comparisons() {
        #[derive(Clone, Copy)]
        struct Comparisons;
        impl Work for Comparisons {
            type Output = Vec<f32>;

            fn run<S: Simd, const VECTORS: usize>(self, simd: S) -> Vec<f32> {
                let [one, two, nan] = [1.0, 2.0, f32::NAN].map(|x| simd.splat(x));
                let vectors = [
                    simd.max(one, two),
                    simd.max(two, one),
                    simd.max(nan, one),
                    simd.where_less(one, two, one, two),
                    simd.where_less(two, one, one, two),
                    simd.where_less(one, one, one, two),
                    simd.where_less(nan, one, one, two),
                    simd.fraction_to_exponent(simd.splat(f32::from_bits(127))),
                ];
                let mut lanes = vec![0.0; S::LANES];
                let mut last = |vector| {
                    simd.store(vector, &mut lanes);
                    lanes[S::LANES - 1]
                };
                vectors.map(&mut last).into()
            }
        }
        for output in run_each(Comparisons) {
            assert_eq!(output, [2.0, 2.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.0]);
        }
    }
}
