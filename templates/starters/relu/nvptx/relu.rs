//! relu: `out[i] = max(x[i], 0)`. NaN stays NaN and -0.0 becomes +0.0.
//!
//! The kernels run on a one-dimensional grid of any size. `x` and `out` are slices of the same length, apart or equal.

use crate::elementwise::map;
use crate::float::Bf16;

fn relu(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

/// relu of float32.
///
/// # Safety
/// `x` and `out` must point to as many elements as their lengths say, and must not overlap unless they are equal.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn relu_f32(
    x: *const f32,
    x_len: usize,
    out: *mut f32,
    out_len: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { map(x, out, x_len.min(out_len), relu) }
}

/// relu of float16.
///
/// # Safety
/// As for [`relu_f32`].
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn relu_f16(
    x: *const f16,
    x_len: usize,
    out: *mut f16,
    out_len: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { map(x, out, x_len.min(out_len), relu) }
}

/// relu of bfloat16.
///
/// # Safety
/// As for [`relu_f32`].
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn relu_bf16(
    x: *const Bf16,
    x_len: usize,
    out: *mut Bf16,
    out_len: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { map(x, out, x_len.min(out_len), relu) }
}
