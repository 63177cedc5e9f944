//! Runs one fuzz target, named by `RECADO_FUZZ_TARGET`, in libFuzzer. `cargo xtask fuzz` builds and starts it.
#![no_main]

use std::process;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use recado_fuzz::{FuzzTarget, TARGETS};

static TARGET: LazyLock<FuzzTarget> = LazyLock::new(|| {
    let name = std::env::var("RECADO_FUZZ_TARGET").unwrap_or_default();
    let target = TARGETS.iter().find(|target| target.name == name);
    // An exit and not a panic, which libFuzzer would report as a crash of the target.
    *target.unwrap_or_else(|| process::exit(2))
});

fuzz_target!(|input: &[u8]| (TARGET.run)(input));
