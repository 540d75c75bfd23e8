//! Says when the committed PTX is out of date, and lets `cargo test` find `libtvm_ffi.so`.

use std::path::PathBuf;
use std::process::Command;
use std::{fs, io};

/// Lines that say who the crate is and which cuda-oxide compiles it, not what it does.
const NOT_DIGESTED: [&str; 3] = ["name = ", "cuda-device = ", "channel = \"nightly"];

fn main() {
    for path in ["build.rs", "build.toml", "kernels", "kernels-ptx"] {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rerun-if-env-changed=PATH");

    let path = format!(
        "kernels-ptx/{}_device.ptx",
        env!("CARGO_PKG_NAME").replace('-', "_")
    );
    // What cannot be read, or is of kernel-builder's own making and has no record, is not compared.
    if let (Ok(ptx), Ok(digest), Some(target)) = (fs::read_to_string(&path), digest(), target()) {
        let record = format!("// target: {target}\n// sources: {digest}\n");
        if ptx.contains("// sources: ") && !ptx.replace("\r\n", "\n").contains(&record) {
            println!(
                "cargo::warning={path} is out of date: run `python kernels/build_ptx.py`, then build again"
            );
        }
    }
    // A failure is reported by tvm-ffi-sys, whose build script runs the same command.
    if let Ok(output) = Command::new("tvm-ffi-config").arg("--libdir").output() {
        let directory = String::from_utf8_lossy(&output.stdout);
        println!("cargo::rustc-env=LD_LIBRARY_PATH={}", directory.trim());
    }
}

/// Digest of the device crate, the same as that of `kernels/build_ptx.py`: 64-bit FNV-1a over paths and lines.
fn digest() -> io::Result<String> {
    let mut paths = vec![
        PathBuf::from("kernels/Cargo.toml"),
        PathBuf::from("kernels/rust-toolchain.toml"),
    ];
    let mut directories = vec![PathBuf::from("kernels/src")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                paths.push(path);
            }
        }
    }
    let mut files = Vec::new();
    for path in paths {
        let name = path.to_string_lossy().replace('\\', "/");
        files.push((name, fs::read_to_string(path)?.replace("\r\n", "\n")));
    }
    files.sort();

    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for (name, text) in &files {
        let lines = text
            .split('\n')
            .filter(|line| !NOT_DIGESTED.iter().any(|start| line.starts_with(start)));
        for byte in [name.as_str()]
            .into_iter()
            .chain(lines)
            .flat_map(|line| line.bytes().chain([b'\n']))
        {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(format!("{hash:016x}"))
}

/// The lowest of `cuda-capabilities` in build.toml, as the compiler names it: `sm_80` for `["8.0", "9.0"]`.
fn target() -> Option<String> {
    let text = fs::read_to_string("build.toml").ok()?;
    let (_, list) = text.split_once("\ncuda-capabilities")?;
    let (list, _) = list.split_once(']')?;
    let capabilities = list.split('"').skip(1).step_by(2);
    let order = |capability: &str| {
        let (major, minor) = capability.split_once('.')?;
        let number = minor.trim_end_matches(char::is_alphabetic);
        let numbers: (u32, u32) = (major.parse().ok()?, number.parse().ok()?);
        Some((numbers, minor.len()))
    };
    let lowest = capabilities.min_by_key(|capability| order(capability))?;
    Some(format!("sm_{}", lowest.replace('.', "")))
}
