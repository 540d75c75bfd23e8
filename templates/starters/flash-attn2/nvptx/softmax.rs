//! The softmax of rows whose scores come a few columns at a time (Milakov and Gimelshein 2018, arXiv:1805.02867).
//!
//! It is of base 2, since the GPU has `exp2`: exp(x) = 2^(x log2 e).

use core::f32::consts::LN_2;
use core::f32::math::mul_add;

use crate::math;
use crate::tensor_core::Sums;
use crate::warp;

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
        for (tall, tiles) in scores.iter_mut().enumerate() {
            for half in 0..2 {
                let base = self.base[tall][half];
                // -inf - -inf would be NaN.
                let finite = if base == f32::NEG_INFINITY { 0.0 } else { base };
                let offset = -finite * self.scale;
                for four in tiles.as_flattened_mut() {
                    for score in &mut four[half * 2..][..2] {
                        *score = math::exp2(mul_add(*score, self.scale, offset));
                        self.sum[tall][half] += *score;
                    }
                }
            }
        }
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
        for (tall, tiles) in scores.iter().enumerate() {
            for half in 0..2 {
                let mut greatest = f32::NEG_INFINITY;
                for four in tiles.as_flattened() {
                    greatest = greatest.max(four[half * 2]).max(four[half * 2 + 1]);
                }
                // The four threads with the same rows differ in these bits.
                greatest = greatest.max(warp::exchange(greatest, 1));
                greatest = greatest.max(warp::exchange(greatest, 2));
                if (greatest - old[tall][half]) * self.scale > SLACK {
                    self.base[tall][half] = greatest;
                    raised = true;
                }
            }
        }
        if !warp::any(raised) {
            return;
        }
        for (tall, tiles) in results.iter_mut().enumerate() {
            for half in 0..2 {
                let (old, new) = (old[tall][half], self.base[tall][half]);
                let factor = if old == new {
                    1.0
                } else {
                    math::exp2((old - new) * self.scale)
                };
                self.sum[tall][half] *= factor;
                for four in tiles.as_flattened_mut() {
                    four[half * 2] *= factor;
                    four[half * 2 + 1] *= factor;
                }
            }
        }
    }

    /// What a row's results are to be multiplied by, 1 / sum of the powers, and the natural logarithm of its sum of
    /// exponentials: 0 and infinity where no column has any weight.
    #[inline(always)]
    pub fn finish(&self, tall: usize, half: usize) -> (f32, f32) {
        let mut sum = self.sum[tall][half];
        sum += warp::exchange(sum, 1);
        sum += warp::exchange(sum, 2);
        if sum == 0.0 {
            return (0.0, f32::INFINITY);
        }
        let log2 = mul_add(self.base[tall][half], self.scale, math::log2(sum));
        (math::reciprocal(sum), log2 * LN_2)
    }
}
