//! The softmax of a consumer's rows whose scores come a few columns at a time (Milakov and Gimelshein 2018,
//! arXiv:1805.02867), in base 2.

use core::f32::consts::LN_2;
use core::f32::math::mul_add;

use crate::math;
use crate::warp;

/// What a thread of a consumer has of its two rows.
pub struct Rows<const O: usize> {
    /// Sums of weighted values.
    pub sums: [f32; O],
    /// Greatest score up to now.
    pub greatest: [f32; 2],
    /// Sum of the weights in this thread's columns.
    pub total: [f32; 2],
}

impl<const O: usize> Rows<O> {
    /// Replaces scores by weights, 2^(scale * (score - greatest)). Returns what sums of earlier weights are to be
    /// multiplied by, since the greatest score may be another one now.
    ///
    /// It goes row by row: the greatest of the second are found while the exponentials of the first are computed.
    #[inline(always)]
    pub fn weigh<const S: usize>(&mut self, scores: &mut [f32; S], scale: f32) -> [f32; 2] {
        let mut factors = [0.0; 2];
        for row in 0..2 {
            let mut greatest = [self.greatest[row], f32::NEG_INFINITY];
            for four in scores.as_chunks::<4>().0 {
                greatest[0] = greatest[0].max(four[2 * row]);
                greatest[1] = greatest[1].max(four[2 * row + 1]);
            }
            let greatest = across(greatest[0].max(greatest[1]), f32::max);
            // -inf - -inf would be NaN.
            let offset = if greatest == f32::NEG_INFINITY {
                0.0
            } else {
                -greatest * scale
            };
            factors[row] = math::exp2(mul_add(self.greatest[row], scale, offset));
            self.greatest[row] = greatest;
            let mut total = [self.total[row] * factors[row], 0.0];
            for four in scores.as_chunks_mut::<4>().0 {
                for column in 0..2 {
                    let weight = &mut four[2 * row + column];
                    *weight = math::exp2(mul_add(*weight, scale, offset));
                    total[column] += *weight;
                }
            }
            self.total[row] = total[0] + total[1];
        }
        factors
    }

    /// Multiplies the sums of each row.
    #[inline(always)]
    pub fn scale(&mut self, factors: [f32; 2]) {
        for four in self.sums.as_chunks_mut::<4>().0 {
            for i in 0..4 {
                four[i] *= factors[i / 2];
            }
        }
    }

    /// Turns sums into means. Returns the natural logarithms of the sums of exponentials.
    #[inline(always)]
    pub fn finish(&mut self, scale: f32) -> [f32; 2] {
        let (mut factors, mut lse) = ([0.0; 2], [f32::INFINITY; 2]);
        for row in 0..2 {
            let total = across(self.total[row], |a, b| a + b);
            if total != 0.0 {
                factors[row] = math::reciprocal(total);
                lse[row] = mul_add(self.greatest[row], scale, math::log2(total)) * LN_2;
            }
        }
        self.scale(factors);
        lse
    }
}

/// Combines the values of the four threads that share rows.
#[inline(always)]
fn across(value: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
    let value = f(value, warp::exchange(value, 1));
    f(value, warp::exchange(value, 2))
}
