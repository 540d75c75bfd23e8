//! `rms_norm(x, weight, out, eps)`: `out = x / sqrt(mean(x^2) + eps) * weight` along the last dimension (Zhang and
//! Sennrich 2019, arXiv:1910.07467, equation 4).

use std::borrow::Cow;
use std::ops::Range;
use std::slice;

use tvm_ffi::{DLDeviceType, Result, TensorView, VALUE_ERROR, bail, ensure};

use crate::checks::{Argument, DType};
use crate::half::{Bf16, F16, Float};
use crate::parallel;
use crate::vectors::{Work, vectorised};

/// Writes `x / sqrt(mean(x^2) + eps) * weight` to `out`.
///
/// `x` and `out` are contiguous CPU tensors of the same shape (one dimension or more, empty too) and dtype (float32,
/// float16 or bfloat16); `out` may be `x` itself. `weight` has the size of their last dimension, and their dtype or
/// float32. `eps` is at least 0.
pub fn rms_norm(x: TensorView, weight: TensorView, out: TensorView, eps: f64) -> Result<()> {
    let x = Argument::new("x", &x);
    let weight = Argument::new("weight", &weight);
    let out = Argument::new("out", &out);
    let dtype = x.dtype()?;
    x.on(DLDeviceType::kDLCPU)?;
    let Some(&len) = x.tensor.shape().last() else {
        bail!(VALUE_ERROR, "x: expected one dimension or more, got none")
    };
    x.contiguous()?;
    let accepted = [dtype, DType::F32];
    let weight_dtype = weight.dtype_among(&accepted[usize::from(dtype == DType::F32)..])?;
    weight.same_device(&x)?;
    weight.shaped(&[len as usize], "the last dimension of x")?;
    weight.contiguous()?;
    out.like(&x)?;
    out.contiguous()?;
    out.same_or_apart(&x)?;
    out.apart(&weight)?;
    ensure!(
        eps >= 0.0,
        VALUE_ERROR,
        "eps: expected a number of at least 0, got {eps}"
    );

    if x.tensor.numel() == 0 {
        return Ok(());
    }
    // SAFETY: the checks above: contiguous tensors of these dtypes, alive during the call; `x` and `out` are equal or
    // apart, and `weight`, which is apart, has the size of their last dimension.
    unsafe {
        let weight = match weight_dtype {
            DType::F32 => Cow::Borrowed(elements(weight)),
            DType::F16 => Cow::Owned(values::<F16>(elements(weight))),
            DType::BF16 => Cow::Owned(values::<Bf16>(elements(weight))),
        };
        match dtype {
            DType::F32 => run::<f32>(x, &weight, out, eps as f32),
            DType::F16 => run::<F16>(x, &weight, out, eps as f32),
            DType::BF16 => run::<Bf16>(x, &weight, out, eps as f32),
        }
    }
    Ok(())
}

/// The elements of a contiguous tensor.
///
/// # Safety
/// They must be of type `T`, and nobody may write them while they are used.
unsafe fn elements<'a, T>(argument: Argument<'a>) -> &'a [T] {
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(argument.data().cast(), argument.tensor.numel()) }
}

/// The same values in float32.
fn values<T: Float>(elements: &[T]) -> Vec<f32> {
    let mut values = vec![0.0; elements.len()];
    T::widen(elements, &mut values);
    values
}

/// Elements of one piece of work, at least one row. A tensor of one piece stays on the calling thread.
const PIECE: usize = 1 << 15;

/// Elements that are in float32 at a time.
const BLOCK: usize = 512;

/// Partial sums, which vector instructions add to side by side.
const LANES: usize = 32;

unsafe fn run<T: Float>(x: Argument, weight: &[f32], out: Argument, eps: f32) {
    let rows = Rows {
        x: x.data().cast::<T>(),
        out: out.data().cast::<T>(),
        weight,
        eps,
    };
    let (rows, len) = (&rows, weight.len());
    parallel::ranges(x.tensor.numel() / len, (PIECE / len).max(1), |range| {
        vectorised(Piece { rows, range });
    });
}

/// Rows as long as `weight`, one after the other. `out` may be `x`.
struct Rows<'a, T> {
    x: *const T,
    out: *mut T,
    weight: &'a [f32],
    eps: f32,
}

// SAFETY: no two threads use the same row.
unsafe impl<T: Sync> Sync for Rows<'_, T> {}

/// Rows for one thread.
struct Piece<'a, T> {
    rows: &'a Rows<'a, T>,
    range: Range<usize>,
}

impl<T: Float> Work for Piece<'_, T> {
    #[inline(always)]
    fn run(self) {
        let mut values = [0.0; BLOCK];
        for row in self.range {
            // SAFETY: there are so many rows, and each is in one piece.
            unsafe { self.rows.write(row, &mut values) };
        }
    }
}

impl<T: Float> Rows<'_, T> {
    /// Writes one row, block by block, whose values are in the buffer.
    ///
    /// # Safety
    /// There must be such a row, and no other thread may use it.
    #[inline(always)]
    unsafe fn write(&self, row: usize, buffer: &mut [f32; BLOCK]) {
        let len = self.weight.len();
        let x = self.x.wrapping_add(row * len);
        let out = self.out.wrapping_add(row * len);

        let mut sum = 0.0;
        for start in (0..len).step_by(BLOCK) {
            // SAFETY: in the row.
            let x = unsafe { slice::from_raw_parts(x.add(start), BLOCK.min(len - start)) };
            sum += sum_of_squares(T::widened(x, buffer));
        }
        let inverse_rms = 1.0 / (sum / len as f32 + self.eps).sqrt();
        for (i, weight) in self.weight.chunks(BLOCK).enumerate() {
            let (x, out) = (x.wrapping_add(i * BLOCK), out.wrapping_add(i * BLOCK));
            let values = &mut buffer[..weight.len()];
            // SAFETY: in the row. Where `out` is `x`, this slice is gone before that of `out` is there.
            T::widen(unsafe { slice::from_raw_parts(x, weight.len()) }, values);
            for (value, weight) in values.iter_mut().zip(weight) {
                *value = normalise(*value, inverse_rms, *weight);
            }
            // SAFETY: in the row.
            T::narrow(values, unsafe {
                slice::from_raw_parts_mut(out, weight.len())
            });
        }
    }
}

#[inline(always)]
fn normalise(x: f32, inverse_rms: f32, weight: f32) -> f32 {
    x * inverse_rms * weight
}

#[inline(always)]
fn sum_of_squares(x: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            sums[i] += chunk[i] * chunk[i];
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum += x * x;
    }
    let mut lanes = LANES;
    while lanes > 1 {
        lanes /= 2;
        for i in 0..lanes {
            sums[i] += sums[i + lanes];
        }
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_any_length() {
        for len in 0..=3 * LANES {
            let x: Vec<_> = (0..len).map(|i| i as f32).collect();
            let expected: usize = (0..len).map(|i| i * i).sum();
            assert_eq!(sum_of_squares(&x), expected as f32);
        }
    }
}
