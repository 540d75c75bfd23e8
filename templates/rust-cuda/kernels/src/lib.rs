«% from "templates/starters/" ~ kernel ~ "/starter.jinja" import features, only_in %»
«% if device_compiler == "cuda-oxide" %»
//! The kernels: one module for each op, compiled to PTX by `python kernels/build_ptx.py`.
//!
//! A `#[kernel] pub fn` is a kernel. The host launches it under its name, with its parameters in order
//! (`src/<op>.rs`); a slice is passed as two, its pointer and its length.

#![no_std]
#![feature(f16)]

«% for name in device_modules | sort %»
pub mod «name»;
«% endfor %»
«% else %»
//! The kernels: one module for each op, compiled to PTX by `python kernels/build_ptx.py`.
//!
//! A `pub unsafe extern "ptx-kernel" fn` with `#[unsafe(no_mangle)]` is a kernel. The host launches it under its name,
//! with its parameters in order (`src/<op>.rs`); a slice is passed as two, its pointer and its length.

#![cfg(target_arch = "nvptx64")]
#![no_std]
#![feature(«(["abi_ptx", "asm_experimental_arch", "f16", "stdarch_nvptx"] + features) | sort | join(", ")»)]

«% for name in device_modules | sort if "/" not in name %»
«% if name in only_in %»
#[cfg(ptx_target = "«only_in[name]»")]
«% endif %»
pub mod «name»;
«% endfor %»

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    ptx::trap()
}
«% endif %»
