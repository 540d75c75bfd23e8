«% from "templates/starters/" ~ kernel ~ "/starter.jinja" import exports %»
//! The ops of this kernel: one module and one export line each.
//!
«% if both %»
//! Those of CUDA devices are in `cuda`, which is compiled with the feature of that name; `dispatch` chooses.
//!
«% endif %»
//! Python calls an exported op as `ops.<name>`; its Python side is in `tvm-ffi-ext/«module»/`«", its device side in\n//! `kernels/src/`" if both».

«% for name in (["checks"] + shared_modules + host_modules + (["cuda", "dispatch"] if both else [])) | sort if name != op %»
«% if name == "cuda" %»
#[cfg(feature = "cuda")]
«% endif %»
pub mod «name»;
«% endfor %»

mod «op»;

«% for name, function in exports.items() %»
tvm_ffi::tvm_ffi_dll_export_typed_func!(«name», «"dispatch::" ~ name if both else function»);
«% endfor %»
