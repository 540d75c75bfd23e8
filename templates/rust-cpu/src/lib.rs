«% from "templates/starters/" ~ kernel ~ "/starter.jinja" import exports %»
//! The ops of this kernel: one module and one export line each.
//!
//! Python calls an exported op as `ops.<name>`; its Python side is in `tvm-ffi-ext/«module»/`.

«% for name in (["checks"] + host_modules) | sort if name != op %»
pub mod «name»;
«% endfor %»

mod «op»;

«% for name, function in exports.items() %»
tvm_ffi::tvm_ffi_dll_export_typed_func!(«name», «function»);
«% endfor %»
