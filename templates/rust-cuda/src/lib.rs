«% from "templates/starters/" ~ kernel ~ "/starter.jinja" import exports %»
//! The ops of this kernel: one module and one export line each.
//!
«% if both %»
//! Those of the CPU are in `cpu`. Those of CUDA devices are here, compiled with the feature `cuda`; `dispatch` chooses.
//!
«% endif %»
//! Python calls an exported op as `ops.<name>`; its Python side is in `tvm-ffi-ext/«module»/`, its device side in
//! `kernels/src/`.

«% set plain = ["checks", "cpu", "dispatch"] + shared_modules %»
«% for name in (["checks", "driver", "launch", "module"] + shared_modules + host_modules + (["cpu", "dispatch"] if both else [])) | sort if name != op %»
«% if both and name not in plain %»
#[cfg(feature = "cuda")]
«% endif %»
pub mod «name»;
«% endfor %»

«% if both %»
#[cfg(feature = "cuda")]
«% endif %»
mod «op»;

«% for name, function in exports.items() %»
tvm_ffi::tvm_ffi_dll_export_typed_func!(«name», «"dispatch::" ~ name if both else function»);
«% endfor %»
