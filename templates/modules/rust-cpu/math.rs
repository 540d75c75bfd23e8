//! Functions of vectors.

use std::f32::consts::{LN_2, LOG2_E};

use crate::simd::Simd;

/// 2^x for x <= 127, with a relative error below 2^-22; 0 for x < -126; NaN for NaN.
#[inline(always)]
pub fn exp2<S: Simd>(simd: S, x: S::Vector) -> S::Vector {
    // Adding 1.5 * 2^23 rounds x to a whole number n, which then are the last bits of the sum; with 127 more they are
    // the exponent of 2^n.
    const ROUND: f32 = 12_582_912.0 + 127.0;
    // (2^r - 1) / r for |r| <= 1/2: of those polynomials that end in ln(2), the one that gives 2^r with the least
    // relative error, 2^-23.2, by Remez' algorithm.
    const COEFFICIENTS: [f32; 5] = [
        1.330_060_5e-3,
        9.669_691e-3,
        5.550_558_5e-2,
        2.402_228_3e-1,
        LN_2,
    ];
    let round = simd.splat(ROUND);
    let rounded = simd.add(x, round);
    let rest = simd.sub(x, simd.sub(rounded, round));
    let mut power = simd.splat(COEFFICIENTS[0]);
    for coefficient in &COEFFICIENTS[1..] {
        power = simd.mul_add(power, rest, simd.splat(*coefficient));
    }
    power = simd.mul_add(power, rest, simd.splat(1.0));
    power = simd.mul(power, simd.fraction_to_exponent(rounded));
    simd.where_less(x, simd.splat(-126.0), simd.splat(0.0), power)
}

/// The hyperbolic tangent, with a relative error below 2^-21.
#[inline(always)]
pub fn tanh<S: Simd>(simd: S, x: S::Vector) -> S::Vector {
    // tanh(x) / x - 1 over x^2, for |x| < 0.625: the polynomial of Cephes' tanhf (S. Moshier, netlib.org/cephes).
    const COEFFICIENTS: [f32; 5] = [
        -5.704_988_7e-3,
        2.063_909e-2,
        -5.373_971_6e-2,
        1.333_144_2e-1,
        -3.333_328e-1,
    ];
    const LIMIT: f32 = 0.625;
    let zero = simd.splat(0.0);
    let size = simd.max(simd.sub(zero, x), x);
    // tanh(|x|) = (1 - e) / (1 + e) with e = exp(-2 |x|).
    let e = exp2(simd, simd.mul(size, simd.splat(-2.0 * LOG2_E)));
    let one = simd.splat(1.0);
    let large = simd.div(simd.sub(one, e), simd.add(one, e));
    let large = simd.where_less(x, zero, simd.sub(zero, large), large);

    let square = simd.mul(x, x);
    let mut factor = simd.splat(COEFFICIENTS[0]);
    for coefficient in &COEFFICIENTS[1..] {
        factor = simd.mul_add(factor, square, simd.splat(*coefficient));
    }
    let small = simd.mul_add(simd.mul(factor, square), x, x);
    simd.where_less(size, simd.splat(LIMIT), small, large)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Work, run_each};

    /// A function of vectors for each number of a list.
    #[derive(Clone, Copy)]
    struct Map<'a> {
        function: Function,
        x: &'a [f32],
    }

    #[derive(Clone, Copy)]
    enum Function {
        Exp2,
        Tanh,
    }

    impl Work for Map<'_> {
        type Output = Vec<f32>;

        fn run<S: Simd, const VECTORS: usize>(self, simd: S) -> Vec<f32> {
            let mut lanes = vec![0.0; S::LANES];
            let of = |x: &f32| {
                let x = simd.splat(*x);
                let y = match self.function {
                    Function::Exp2 => exp2(simd, x),
                    Function::Tanh => tanh(simd, x),
                };
                simd.store(y, &mut lanes);
                lanes[0]
            };
            self.x.iter().map(of).collect()
        }
    }

    /// Compares with float64, on all vectors of this processor.
    fn check(function: Function, x: &[f32], exact: fn(f64) -> f64, error: f64) {
        for output in run_each(Map { function, x }) {
            for (x, y) in x.iter().zip(output) {
                let exact = exact(f64::from(*x));
                let off = (f64::from(y) - exact).abs();
                assert!(off <= error * exact.abs(), "{x}: {y}, not {exact}");
            }
        }
    }

    #[test]
    fn exp2_is_accurate() {
        let x: Vec<f32> = (-125_999..=1000).map(|i| i as f32 * 1e-3).collect();
        check(Function::Exp2, &x, f64::exp2, 2_f64.powi(-22));
        let x: Vec<f32> = (-1000..=1000).map(|i| i as f32 * 1e-6).collect();
        check(Function::Exp2, &x, f64::exp2, 2_f64.powi(-22));
        let whole = [0.0, -0.0, 1.0, -1.0, 126.0, -126.0];
        check(Function::Exp2, &whole, f64::exp2, 0.0);
        let tiny = [-126.001, -150.0, -1e30, f32::NEG_INFINITY];
        check(Function::Exp2, &tiny, |_| 0.0, 0.0);
    }

    #[test]
    fn tanh_is_accurate() {
        let x: Vec<f32> = (-100_000..=100_000).map(|i| i as f32 * 1e-4).collect();
        check(Function::Tanh, &x, f64::tanh, 2_f64.powi(-21));
        check(
            Function::Tanh,
            &[1e-30, -1e-10, 0.0],
            |x| x,
            2_f64.powi(-21),
        );
        let large = [f32::INFINITY, f32::NEG_INFINITY, 1e30, -50.0];
        check(Function::Tanh, &large, f64::signum, 0.0);
    }

    #[test]
    fn nan_stays_nan() {
        let x = &[f32::NAN, -f32::NAN, f32::from_bits(0x7fc0_0001)];
        for function in [Function::Exp2, Function::Tanh] {
            for output in run_each(Map { function, x }) {
                assert!(output.iter().all(|y| y.is_nan()));
            }
        }
    }
}
