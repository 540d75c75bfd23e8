//! relu: `out[i] = max(x[i], 0)`. NaN stays NaN and -0.0 becomes +0.0.
//!
//! The kernels run on a one-dimensional grid of any size, in blocks of at most 256 threads.

use cuda_device::{DisjointSlice, kernel, launch_bounds};

use crate::elementwise::map;
use crate::float::Bf16;

fn relu(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

/// relu of float32.
#[kernel]
#[launch_bounds(256)]
pub fn relu_f32(x: &[f32], out: DisjointSlice<f32>) {
    map(x, out, relu);
}

/// relu of float16.
#[kernel]
#[launch_bounds(256)]
pub fn relu_f16(x: &[f16], out: DisjointSlice<f16>) {
    map(x, out, relu);
}

/// relu of bfloat16.
#[kernel]
#[launch_bounds(256)]
pub fn relu_bf16(x: &[Bf16], out: DisjointSlice<Bf16>) {
    map(x, out, relu);
}
