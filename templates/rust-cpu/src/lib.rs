//! The ops of this kernel: one module and one export line each.
//!
//! Python calls an exported op as `ops.<name>`; its Python side is in `tvm-ffi-ext/«module»/`.

«% for name in ["checks", "parallel", op] | sort %»
mod «name»;
«% endfor %»

tvm_ffi::tvm_ffi_dll_export_typed_func!(«op», «op»::«op»);
