//! Code that the compiler turns into vector instructions, those of AVX-512 or AVX2 where the processor has them.

/// What [`vectorised`] runs. `run` and what it calls must be `#[inline(always)]`: only then are they compiled for these,
/// too.
pub trait Work {
    fn run(self);
}

/// Runs `work`, compiled for the widest vectors that the processor has.
#[inline(always)]
pub fn vectorised(work: impl Work) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::is_x86_feature_detected as has;

        #[target_feature(enable = "avx512f,avx512bw")]
        fn avx512(work: impl Work) {
            work.run();
        }
        #[target_feature(enable = "avx2")]
        fn avx2(work: impl Work) {
            work.run();
        }
        if has!("avx512f") && has!("avx512bw") {
            // SAFETY: the processor has AVX-512, for elements of 16 bits, too.
            return unsafe { avx512(work) };
        }
        if has!("avx2") {
            // SAFETY: the processor has AVX2.
            return unsafe { avx2(work) };
        }
    }
    work.run();
}
