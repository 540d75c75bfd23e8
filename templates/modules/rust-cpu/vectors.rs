//! Code that the compiler turns into vector instructions, those of AVX2 where the processor has them.

/// What [`vectorised`] runs. `run` and what it calls must be `#[inline(always)]`: only then are they compiled for
/// AVX2, too.
pub trait Work {
    fn run(self);
}

/// Runs `work`, compiled for AVX2 where the processor has it.
#[inline(always)]
pub fn vectorised(work: impl Work) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn avx2(work: impl Work) {
            work.run();
        }
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            return unsafe { avx2(work) };
        }
    }
    work.run();
}
