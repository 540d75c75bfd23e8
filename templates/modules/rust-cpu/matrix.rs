//! Products of small matrices, in which attention spends its time, and their transposition.

use crate::simd::Simd;

/// Rows of sums that are computed together: with `VECTORS` vectors each, they and what they are made of fit in the
/// registers.
const ROWS: usize = 6;

/// The left matrix: element (row, column) is `numbers[row * row_stride + column * column_stride]`.
#[derive(Clone, Copy)]
pub struct Left<'a> {
    pub numbers: &'a [f32],
    pub rows: usize,
    pub columns: usize,
    pub row_stride: usize,
    pub column_stride: usize,
}

/// `out = left * right + out * factors`, where `right` and `out` have rows of `VECTORS` vectors without gaps. `factors`
/// has a factor for each column of `out`.
#[inline(always)]
pub fn product<S: Simd, const VECTORS: usize>(
    simd: S,
    left: Left,
    right: &[f32],
    factors: Option<[S::Vector; VECTORS]>,
    out: &mut [f32],
) {
    let Left {
        numbers,
        rows,
        columns,
        row_stride,
        column_stride,
    } = left;
    if rows == 0 {
        return;
    }
    if columns > 0 {
        let last = (rows - 1) * row_stride + (columns - 1) * column_stride;
        assert!(last < numbers.len());
    }
    assert!(columns * VECTORS * S::LANES <= right.len());
    assert!(rows * VECTORS * S::LANES <= out.len());
    let whole = rows - rows % ROWS;
    // SAFETY: the sizes were checked, and each call is for rows that are there.
    unsafe {
        for row in (0..whole).step_by(ROWS) {
            some_rows::<S, VECTORS, ROWS>(simd, left, row, right, factors, out);
        }
        match rows - whole {
            1 => some_rows::<S, VECTORS, 1>(simd, left, whole, right, factors, out),
            2 => some_rows::<S, VECTORS, 2>(simd, left, whole, right, factors, out),
            3 => some_rows::<S, VECTORS, 3>(simd, left, whole, right, factors, out),
            4 => some_rows::<S, VECTORS, 4>(simd, left, whole, right, factors, out),
            5 => some_rows::<S, VECTORS, 5>(simd, left, whole, right, factors, out),
            _ => {}
        }
    }
}

/// `COUNT` rows of [`product`], from `first` on.
///
/// # Safety
/// `left` must have these rows, `right` a row for each of its columns, `out` one for each of its rows.
#[inline(always)]
unsafe fn some_rows<S: Simd, const VECTORS: usize, const COUNT: usize>(
    simd: S,
    left: Left,
    first: usize,
    right: &[f32],
    factors: Option<[S::Vector; VECTORS]>,
    out: &mut [f32],
) {
    let width = VECTORS * S::LANES;
    let mut sums = [[simd.splat(0.0); VECTORS]; COUNT];
    // SAFETY: the caller's promises.
    unsafe {
        let out = out.as_mut_ptr().add(first * width);
        if let Some(factors) = factors {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (n, sum) in sums.iter_mut().enumerate() {
                    let before = simd.load_from(out.add(row * width + n * S::LANES));
                    *sum = simd.mul(before, factors[n]);
                }
            }
        }
        let (rows, right) = (
            left.numbers.as_ptr().add(first * left.row_stride),
            right.as_ptr(),
        );
        for column in 0..left.columns {
            let mut vectors = [simd.splat(0.0); VECTORS];
            for (n, vector) in vectors.iter_mut().enumerate() {
                *vector = simd.load_from(right.add(column * width + n * S::LANES));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let element = rows.add(row * left.row_stride + column * left.column_stride);
                let factor = simd.splat(*element);
                for (sum, vector) in sums.iter_mut().zip(vectors) {
                    *sum = simd.mul_add(factor, vector, *sum);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (n, sum) in sums.iter().enumerate() {
                simd.store_to(*sum, out.add(row * width + n * S::LANES));
            }
        }
    }
}

/// `to[column][row] = from[row][column]` for `rows` and `columns` that are multiples of 4, in blocks of 4 x 4.
#[inline(always)]
pub fn transpose(from: &[f32], columns: usize, to: &mut [f32], rows: usize) {
    let mut lines = from.chunks_exact(columns);
    for row in (0..rows).step_by(4) {
        let [a, b, c, d] = std::array::from_fn(|_| lines.next().unwrap_or_default().as_chunks().0);
        for (i, (((a, b), c), d)) in a.iter().zip(b).zip(c).zip(d).enumerate() {
            let to = &mut to[4 * i * rows + row..];
            for (j, line) in transpose_4x4([*a, *b, *c, *d]).iter().enumerate() {
                to[j * rows..][..4].copy_from_slice(line);
            }
        }
    }
}

/// `[row][column]` from `[column][row]`.
#[inline(always)]
fn transpose_4x4(rows: [[f32; 4]; 4]) -> [[f32; 4]; 4] {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_TRANSPOSE4_PS, _mm_loadu_ps, _mm_storeu_ps};
        // SAFETY: every x86_64 processor has SSE; each array is four numbers.
        unsafe {
            let [mut a, mut b, mut c, mut d] = rows.map(|row| _mm_loadu_ps(row.as_ptr()));
            _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
            [a, b, c, d].map(|column| {
                let mut four = [0.0; 4];
                _mm_storeu_ps(four.as_mut_ptr(), column);
                four
            })
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::array::from_fn(|column| rows.map(|row| row[column]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Work, run_each};

    /// Compares a product with the sum that defines it; small whole numbers are exact.
    #[derive(Clone, Copy)]
    struct Check {
        rows: usize,
        columns: usize,
        transposed: bool,
        factor: Option<f32>,
    }

    impl Work for Check {
        type Output = ();

        fn run<S: Simd, const VECTORS: usize>(self, simd: S) {
            let Self { rows, columns, .. } = self;
            let width = VECTORS * S::LANES;
            let numbers = |count: usize| -> Vec<f32> {
                (0..count).map(|i| (i * 7 % 11) as f32 - 5.0).collect()
            };
            let (left, right, before) = (
                numbers(rows * columns),
                numbers(columns * width),
                numbers(rows * width),
            );
            let (row_stride, column_stride) = if self.transposed {
                (1, rows)
            } else {
                (columns, 1)
            };
            let mut out = before.clone();
            let numbers = left.as_slice();
            let matrix = Left {
                numbers,
                rows,
                columns,
                row_stride,
                column_stride,
            };
            let factors = self.factor.map(|factor| [simd.splat(factor); VECTORS]);
            product::<S, VECTORS>(simd, matrix, &right, factors, &mut out);
            for row in 0..rows {
                for lane in 0..width {
                    let sum: f32 = (0..columns)
                        .map(|column| {
                            left[row * row_stride + column * column_stride]
                                * right[column * width + lane]
                        })
                        .sum();
                    let expected = sum + self.factor.unwrap_or(0.0) * before[row * width + lane];
                    assert_eq!(out[row * width + lane], expected);
                }
            }
        }
    }

    #[test]
    fn products() {
        for rows in 0..14 {
            for columns in [0, 1, 5, 64] {
                for factor in [None, Some(0.0), Some(2.0)] {
                    run_each(Check {
                        rows,
                        columns,
                        transposed: false,
                        factor,
                    });
                    run_each(Check {
                        rows,
                        columns,
                        transposed: true,
                        factor,
                    });
                }
            }
        }
    }

    #[test]
    fn transposes() {
        let (rows, columns) = (8, 12);
        let from: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
        let mut to = vec![0.0; rows * columns];
        transpose(&from, columns, &mut to, rows);
        for row in 0..rows {
            for column in 0..columns {
                assert_eq!(to[column * rows + row], from[row * columns + column]);
            }
        }
    }
}
