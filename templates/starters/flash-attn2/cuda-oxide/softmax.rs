//! The softmax of rows whose scores come a few columns at a time (Milakov and Gimelshein 2018, arXiv:1805.02867).
//!
//! It is of base 2, since the GPU has `exp2`: exp(x) = 2^(x log2 e).

use core::f32::consts::LN_2;

use cuda_device::float::{ex2_approx_ftz_f32, fma_rn_f32, lg2_approx_ftz_f32, rcp_approx_ftz_f32};
use cuda_device::warp;

use crate::math;
use crate::tensor_core::Sums;
use crate::unroll;

/// How many powers of 2 a score may exceed its row's base before the base is raised, for which all results so far have
/// to be scaled. 2^8 is far from what float16 can't hold, and results are divided by the sum of the powers in the end.
const SLACK: f32 = 8.0;

/// The softmax of a thread's rows as far as it has come: rows g and g + 8 of `TALL` tiles (see `tensor_core`).
pub struct Softmax<const TALL: usize> {
    /// Factor of a score, to be an exponent of 2.
    scale: f32,
    /// Score that the others of the row are taken relative to: their greatest, or one that is little less.
    base: [[f32; 2]; TALL],
    /// Sum of the row's powers in this thread's columns.
    sum: [[f32; 2]; TALL],
}

impl<const TALL: usize> Softmax<TALL> {
    /// Of no columns.
    #[inline(always)]
    pub fn new(scale: f32) -> Self {
        Self {
            scale,
            base: [[f32::NEG_INFINITY; 2]; TALL],
            sum: [[0.0; 2]; TALL],
        }
    }

    /// Takes more columns: replaces their scores by powers of 2. `results` are sums of such powers times something, and
    /// are scaled to fit.
    ///
    /// Minus infinity is a score of weight 0, also where a row has no others.
    #[inline(always)]
    pub fn add<const COLUMNS: usize, const RESULTS: usize>(
        &mut self,
        scores: &mut [[Sums; COLUMNS]; TALL],
        results: &mut [[Sums; RESULTS]; TALL],
    ) {
        self.raise(scores, results);
        unroll!(for tall in 0..TALL {
            unroll!(for half in 0..2 {
                let base = self.base[tall][half];
                // -inf - -inf would be NaN.
                let finite = if base == f32::NEG_INFINITY { 0.0 } else { base };
                let offset = -finite * self.scale;
                unroll!(for column in 0..COLUMNS {
                    unroll!(for side in 0..2 {
                        unroll!(for i in 0..2 {
                            let score = &mut scores[tall][column][side][half * 2 + i];
                            *score = ex2_approx_ftz_f32(fma_rn_f32(*score, self.scale, offset));
                            self.sum[tall][half] += *score;
                        });
                    });
                });
            });
        });
    }

    /// Raises the bases where the scores want it, and scales sums and results to fit.
    #[inline(always)]
    fn raise<const COLUMNS: usize, const RESULTS: usize>(
        &mut self,
        scores: &[[Sums; COLUMNS]; TALL],
        results: &mut [[Sums; RESULTS]; TALL],
    ) {
        let old = self.base;
        let mut raised = false;
        unroll!(for tall in 0..TALL {
            unroll!(for half in 0..2 {
                let mut greatest = f32::NEG_INFINITY;
                unroll!(for column in 0..COLUMNS {
                    unroll!(for side in 0..2 {
                        let four = scores[tall][column][side];
                        let two = math::max(four[half * 2], four[half * 2 + 1]);
                        greatest = math::max(greatest, two);
                    });
                });
                // The four threads with the same rows differ in these bits.
                greatest = math::max(greatest, warp::shuffle_xor_f32(greatest, 1));
                greatest = math::max(greatest, warp::shuffle_xor_f32(greatest, 2));
                if (greatest - old[tall][half]) * self.scale > SLACK {
                    self.base[tall][half] = greatest;
                    raised = true;
                }
            });
        });
        if !warp::any(raised) {
            return;
        }
        unroll!(for tall in 0..TALL {
            unroll!(for half in 0..2 {
                let (old, new) = (old[tall][half], self.base[tall][half]);
                let factor = if old == new {
                    1.0
                } else {
                    ex2_approx_ftz_f32((old - new) * self.scale)
                };
                self.sum[tall][half] *= factor;
                unroll!(for result in 0..RESULTS {
                    unroll!(for side in 0..2 {
                        let four = &mut results[tall][result][side];
                        four[half * 2] *= factor;
                        four[half * 2 + 1] *= factor;
                    });
                });
            });
        });
    }

    /// What a row's results are to be multiplied by, 1 / sum of the powers, and the natural logarithm of its sum of
    /// exponentials: 0 and infinity where no column has any weight.
    #[inline(always)]
    pub fn finish(&self, tall: usize, half: usize) -> (f32, f32) {
        let mut sum = self.sum[tall][half];
        sum += warp::shuffle_xor_f32(sum, 1);
        sum += warp::shuffle_xor_f32(sum, 2);
        if sum == 0.0 {
            return (0.0, f32::INFINITY);
        }
        let log2 = fma_rn_f32(self.base[tall][half], self.scale, lg2_approx_ftz_f32(sum));
        (rcp_approx_ftz_f32(sum), log2 * LN_2)
    }
}
