//! Sends each call to the backend of its first tensor's device.

use tvm_ffi::{Result, TensorView};

#[cfg(feature = "cuda")]
fn is_on_cuda(tensor: &TensorView) -> bool {
    tensor.device().device_type == tvm_ffi::DLDeviceType::kDLCUDA
}

«% set cpu = "crate" if backend == "rust-cpu" else "crate::cpu" %»
«% set cuda = "crate" if backend == "rust-cuda" else "crate::cuda" %»
«% include "templates/starters/" ~ kernel ~ "/dispatch.rs" %»
