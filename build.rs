//! Tells the linker to place the functions that a call runs through next to each other. A call runs through more code than the
//! processor's cache holds, nearly without loops, so it matters how many pages and cache lines that code is spread over.
//! `bench/functions.txt` has their names; `cargo xtask budget --functions` writes it.

// Both are how a build script talks with cargo.
#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LIST: &str = "bench/functions.txt";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={LIST}");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if !is("PROFILE", "release") || !is("TARGET", "x86_64-unknown-linux-gnu") {
        return;
    }
    let list = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join(LIST);
    let arguments =
        ["--symbol-ordering-file".into(), list.display().to_string(), "--no-warn-symbol-ordering".into()];
    let arguments = arguments.map(|argument| ["-Xlinker".to_owned(), argument]).concat();
    if linker_accepts(&arguments) {
        arguments.iter().for_each(|argument| println!("cargo:rustc-link-arg-bin=toolgate={argument}"));
    }
}

/// Tries the arguments on an empty program: that of rustc accepts them, but people may have set another linker.
fn linker_accepts(arguments: &[String]) -> bool {
    let Some(folder) = env::var_os("OUT_DIR") else { return false };
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc")));
    rustc.args(["--crate-name", "probe", "-", "-o"]).arg(Path::new(&folder).join("probe"));
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    rustc.args(arguments.iter().map(|argument| format!("-Clink-arg={argument}")));
    let probe = rustc.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    probe.is_ok_and(|mut probe| {
        let is_given = probe.stdin.take().is_some_and(|mut input| input.write_all(b"fn main() {}").is_ok());
        probe.wait().is_ok_and(|status| status.success()) && is_given
    })
}
