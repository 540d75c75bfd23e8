//! The ops of this kernel: one module and one export line each.
//!
//! Python calls an exported op as `ops.<name>`; its Python side is in `tvm-ffi-ext/«module»/`, its device side in
//! `kernels/src/`.

«% for name in ["checks", "driver", "launch", "module", op] | sort %»
mod «name»;
«% endfor %»

tvm_ffi::tvm_ffi_dll_export_typed_func!(«op», «op»::«op»);
