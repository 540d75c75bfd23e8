//! Gathers the committed PTX, says when it is out of date, and lets `cargo test` find `libtvm_ffi.so`.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs, io};

/// Lines that say who the crate is and which cuda-oxide compiles it, not what it does.
const NOT_DIGESTED: [&str; 3] = ["name = ", "cuda-device = ", "channel = \"nightly"];

fn main() {
    for path in ["build.rs", "build.toml", "kernels", "kernels-ptx"] {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rerun-if-env-changed=PATH");

«% if both %»
    if env::var_os("CARGO_FEATURE_CUDA").is_some() {
        embed_ptx();
    }
«% else %»
    embed_ptx();
«% endif %»
    // A failure is reported by tvm-ffi-sys, whose build script runs the same command.
    let libdir = Command::new("tvm-ffi-config").arg("--libdir").output();
    if let Some(output) = libdir.ok().filter(|output| output.status.success()) {
        let directory = String::from_utf8_lossy(&output.stdout);
        println!("cargo::rustc-env=LD_LIBRARY_PATH={}", directory.trim());
    }
}

/// Writes what `src/module.rs` embeds: for each target the PTX and a NUL, the most general first.
fn embed_ptx() {
    let Some(targets) = targets() else {
        println!(
            "cargo::error=build.toml has no cuda-capabilities such as [\"8.0\", \"9.0a\"], the lowest without a letter"
        );
        return;
    };
    let name = env!("CARGO_PKG_NAME").replace('-', "_");
    let digest = digest();
    let mut embedded = String::new();
    for (i, target) in targets.iter().enumerate() {
        let suffix = if i == 0 { "" } else { &format!(".{target}") };
        let path = format!("kernels-ptx/{name}_device{suffix}.ptx");
        let ptx = match fs::read_to_string(&path) {
            Ok(ptx) => ptx,
            Err(error) => {
                println!(
                    "cargo::error=cannot read {path} ({error}), which cuda-capabilities in build.toml ask for: run `python \
                     kernels/build_ptx.py`, and list the file under src in build.toml"
                );
                continue;
            }
        };
        // What is of kernel-builder's own making has no record, and is not compared.
        if let (true, Ok(digest)) = (ptx.contains("// sources: "), &digest) {
            let record = format!("// target: {target}\n// sources: {digest}\n");
            if !ptx.replace("\r\n", "\n").contains(&record) {
                println!(
                    "cargo::warning={path} is out of date: run `python kernels/build_ptx.py`, then build again"
                );
            }
        }
        embedded += &ptx;
        embedded.push('\0');
    }
    let directory = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(PathBuf::from(directory).join("kernels.ptx"), embedded)
        .expect("OUT_DIR can be written to");
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

/// What `cuda-capabilities` in build.toml ask for, the same as in `kernels/build_ptx.py`: the lowest, then others with a
/// suffix. They are `sm_80` and `sm_90a` for `["8.0", "9.0", "9.0a"]`.
fn targets() -> Option<Vec<String>> {
    let text = fs::read_to_string("build.toml").ok()?;
    let lines = text.lines().filter_map(|line| line.split('#').next());
    let text = lines.collect::<Vec<_>>().join("\n");
    let (_, list) = text.split_once("\ncuda-capabilities")?;
    let (list, _) = list.split_once(']')?;
    let mut capabilities = Vec::new();
    for capability in list.split('"').skip(1).step_by(2) {
        let capability = capability.trim_end_matches("+PTX");
        let (major, minor) = capability.split_once('.')?;
        let number = minor.trim_end_matches(['a', 'f']);
        let suffix = &minor[number.len()..];
        let rank = ["", "f", "a"].iter().position(|known| *known == suffix)?;
        let numbers: (u32, u32) = (major.parse().ok()?, number.parse().ok()?);
        capabilities.push((numbers, rank, capability));
    }
    capabilities.sort();
    capabilities.dedup();
    let lowest = *capabilities.first().filter(|lowest| lowest.1 == 0)?;
    capabilities.retain(|capability| *capability == lowest || capability.1 > 0);
    let name = |(_, _, capability): &(_, _, &str)| format!("sm_{}", capability.replace('.', ""));
    Some(capabilities.iter().map(name).collect())
}
