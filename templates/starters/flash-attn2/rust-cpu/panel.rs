//! Some rows of an attention that see a block of keys: algorithm 1 of FlashAttention-2, lines 8 to 10.
//!
//! Matrices are transposed: vectors have a lane for each row. So a softmax, which is over the keys of a row, needs no
//! sums across lanes, and K and V are multiplied as they are. Exponentials are to base 2: scores have a factor log2(e).

use std::f32::consts::LOG2_E;
use std::ops::Range;

use crate::attention::Attention;
use crate::block::ROWS;
use crate::math::{exp2, tanh};
use crate::matrix::{Left, product};
use crate::simd::Simd;

/// Rows that are the lanes of a few vectors, and what is known of them so far. The rows' positions ascend.
pub struct Panel<'a> {
    pub lanes: usize,
    /// (dim, lanes): the queries, times a factor.
    pub queries: &'a mut [f32],
    /// (dim, lanes): the sums of values, each times its weight, 2^(score - top).
    pub sums: &'a mut [f32],
    /// (lanes): the largest score, and the sum of weights.
    pub tops: &'a mut [f32],
    pub totals: &'a mut [f32],
    /// (lanes): the slope of ALiBi, times log2(e), and the place among the keys.
    pub slopes: &'a mut [f32],
    pub positions: &'a mut [isize],
}

/// A block of keys and their values, both (keys, dim), and memory for the scores of a panel, (keys, lanes).
pub struct Keys<'a> {
    pub range: Range<usize>,
    pub keys: &'a mut [f32],
    pub values: &'a mut [f32],
    pub scores: &'a mut [f32],
}

impl Panel<'_> {
    /// Adds the values of those keys that are seen. `VECTORS` vectors have as many lanes as the panel.
    #[inline(always)]
    pub fn add<S: Simd, const VECTORS: usize>(
        &mut self,
        simd: S,
        attention: &Attention,
        keys: &mut Keys,
    ) {
        let Keys {
            range,
            keys,
            values,
            scores,
        } = keys;
        let first = attention.seen(self.positions[0]);
        let last = attention.seen(self.positions[self.lanes - 1]);
        if range.start >= last.end || range.end <= first.start {
            return;
        }
        let all_seen = last.start <= range.start && range.end <= first.end;
        let (count, dim) = (range.len(), attention.dim);
        let values = &values[..count * dim];
        let scores = &mut scores[..count * self.lanes];
        let left = Left {
            numbers: keys,
            rows: count,
            columns: dim,
            row_stride: dim,
            column_stride: 1,
        };
        product::<S, VECTORS>(simd, left, self.queries, None, scores);
        if attention.softcap > 0.0 {
            cap(simd, attention.softcap, scores);
        }
        if attention.alibi.is_some() {
            self.lower_by_distance(simd, range.start, scores);
        }
        if !all_seen {
            self.hide(simd, attention, range, scores);
        }
        let factors = self.weigh::<S, VECTORS>(simd, scores);
        if !all_seen && !all_finite(values) {
            return self.add_without_hidden(simd, factors, scores, values, dim);
        }
        let left = Left {
            numbers: values,
            rows: dim,
            columns: count,
            row_stride: 1,
            column_stride: dim,
        };
        product::<S, VECTORS>(simd, left, scores, Some(factors), self.sums);
    }

    /// Turns scores into weights. Returns by what the sums of other keys are to be multiplied, whose weights are
    /// relative to the largest score before.
    #[inline(always)]
    fn weigh<S: Simd, const VECTORS: usize>(
        &mut self,
        simd: S,
        scores: &mut [f32],
    ) -> [S::Vector; VECTORS] {
        let mut factors = [simd.splat(0.0); VECTORS];
        for (n, factor) in factors.iter_mut().enumerate() {
            let lanes = n * S::LANES..(n + 1) * S::LANES;
            let old_top = simd.load(&self.tops[lanes.clone()]);
            let mut top = old_top;
            for scores in scores.chunks_exact(self.lanes) {
                top = simd.max(top, simd.load(&scores[lanes.clone()]));
            }
            // Of a row that has seen no key yet, the largest score is -inf, from which nothing can be taken.
            let none = simd.splat(f32::NEG_INFINITY);
            let base = simd.where_less(none, top, top, simd.splat(0.0));
            *factor = exp2(simd, simd.sub(old_top, base));
            let mut total = simd.mul(simd.load(&self.totals[lanes.clone()]), *factor);
            for scores in scores.chunks_exact_mut(self.lanes) {
                let score = &mut scores[lanes.clone()];
                let weight = exp2(simd, simd.sub(simd.load(score), base));
                simd.store(weight, score);
                total = simd.add(total, weight);
            }
            simd.store(top, &mut self.tops[lanes.clone()]);
            simd.store(total, &mut self.totals[lanes]);
        }
        factors
    }

    /// Makes the scores of those keys of a range -inf that are outside a row's window.
    #[inline(always)]
    fn hide<S: Simd>(
        &self,
        simd: S,
        attention: &Attention,
        range: &Range<usize>,
        scores: &mut [f32],
    ) {
        let (mut firsts, mut ends) = ([0.0; ROWS], [0.0; ROWS]);
        for (lane, position) in self.positions.iter().enumerate() {
            let seen = attention.seen(*position);
            // A block has few enough keys to count them in float32.
            let place = |key: usize| key.clamp(range.start, range.end) - range.start;
            firsts[lane] = place(seen.start) as f32;
            ends[lane] = place(seen.end) as f32;
        }
        let hidden = simd.splat(f32::NEG_INFINITY);
        for (key, scores) in scores.chunks_exact_mut(self.lanes).enumerate() {
            let key = simd.splat(key as f32);
            for lane in (0..self.lanes).step_by(S::LANES) {
                let score = simd.load(&scores[lane..]);
                let score = simd.where_less(key, simd.load(&firsts[lane..]), hidden, score);
                let score = simd.where_less(key, simd.load(&ends[lane..]), score, hidden);
                simd.store(score, &mut scores[lane..]);
            }
        }
    }

    /// Attention with linear biases: subtracts from each score the row's slope times the distance of row and key, of
    /// which the first is key `first` (Press et al., 2021, arXiv:2108.12409).
    #[inline(always)]
    fn lower_by_distance<S: Simd>(&self, simd: S, first: usize, scores: &mut [f32]) {
        let mut places = [0.0; ROWS];
        for (place, position) in places.iter_mut().zip(&*self.positions) {
            *place = (position - first as isize) as f32;
        }
        let zero = simd.splat(0.0);
        for (key, scores) in scores.chunks_exact_mut(self.lanes).enumerate() {
            let key = simd.splat(key as f32);
            for lane in (0..self.lanes).step_by(S::LANES) {
                let past = simd.sub(simd.load(&places[lane..]), key);
                let distance = simd.max(past, simd.sub(zero, past));
                let slope = simd.sub(zero, simd.load(&self.slopes[lane..]));
                let score = simd.mul_add(slope, distance, simd.load(&scores[lane..]));
                simd.store(score, &mut scores[lane..]);
            }
        }
    }

    /// Adds values of which some are infinite or NaN: a weight of 0 leaves such a value out, where the product of
    /// matrices would make NaN of both.
    #[inline(always)]
    fn add_without_hidden<S: Simd, const VECTORS: usize>(
        &mut self,
        simd: S,
        factors: [S::Vector; VECTORS],
        weights: &[f32],
        values: &[f32],
        dim: usize,
    ) {
        for (column, sums) in self.sums.chunks_exact_mut(self.lanes).enumerate() {
            for (n, factor) in factors.into_iter().enumerate() {
                let lane = n * S::LANES;
                let mut sum = simd.mul(simd.load(&sums[lane..]), factor);
                for (weights, values) in weights
                    .chunks_exact(self.lanes)
                    .zip(values.chunks_exact(dim))
                {
                    let weight = simd.load(&weights[lane..]);
                    let more = simd.mul_add(weight, simd.splat(values[column]), sum);
                    sum = simd.where_less(simd.splat(0.0), weight, more, sum);
                }
                simd.store(sum, &mut sums[lane..]);
            }
        }
    }
}

/// Softcap: scores become softcap * tanh(score), as they were divided by softcap, times log2(e).
#[inline(always)]
fn cap<S: Simd>(simd: S, softcap: f32, scores: &mut [f32]) {
    let factor = simd.splat(softcap * LOG2_E);
    for score in scores.chunks_exact_mut(S::LANES) {
        simd.store(simd.mul(factor, tanh(simd, simd.load(score))), score);
    }
}

#[inline(always)]
fn all_finite(numbers: &[f32]) -> bool {
    const INFINITY: u32 = f32::INFINITY.to_bits();
    let magnitude = |x: &f32| x.to_bits() & !(1 << 31);
    numbers.iter().map(magnitude).fold(0, u32::max) < INFINITY
}
