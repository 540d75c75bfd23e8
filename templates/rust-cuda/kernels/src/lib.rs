//! The kernels that run on the GPU: one module for each op.
//!
//! A kernel is a `pub unsafe extern "ptx-kernel" fn` with `#[unsafe(no_mangle)]`: the host crate finds it by its name.
//! A tensor is two of its parameters, a pointer and a `u64` number of elements, and a scalar is one.
//!
//! Change anything here, then run `python kernels/build_ptx.py`. For other targets than the GPU the crate is empty,
//! so that `cargo test --workspace` and `cargo clippy --workspace` work with any compiler.

#![no_std]
#![cfg(target_arch = "nvptx64")]
#![feature(abi_ptx, asm_experimental_arch, stdarch_nvptx)]

pub mod ptx;
pub mod «op»;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    ptx::trap()
}
