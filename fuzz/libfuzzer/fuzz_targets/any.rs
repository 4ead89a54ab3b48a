//! Runs the target that the variable TARGET names under libFuzzer.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use toolgate_fuzz::{Target, find};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("TARGET").expect("TARGET names a target");
    find(&name).expect("TARGET names a target that exists")
});

fuzz_target!(|input: &[u8]| (TARGET.run)(input));
