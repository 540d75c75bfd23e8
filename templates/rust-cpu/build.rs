«% if both %»
«% include "templates/rust-cuda/build.rs" %»
«% else %»
//! Lets `cargo test` find `libtvm_ffi.so`, which lives in the Python environment.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PATH");
    // A failure is reported by tvm-ffi-sys, whose build script runs the same command.
    let libdir = Command::new("tvm-ffi-config").arg("--libdir").output();
    if let Some(output) = libdir.ok().filter(|output| output.status.success()) {
        let directory = String::from_utf8_lossy(&output.stdout);
        println!("cargo::rustc-env=LD_LIBRARY_PATH={}", directory.trim());
    }
}
«% endif %»
