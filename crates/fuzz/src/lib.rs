//! Fuzz targets: every parser of untrusted bytes, with the properties that hold for any input.
//!
//! A target panics if a property does not hold. `cargo xtask fuzz` searches for such inputs with libFuzzer, guided by
//! coverage. The tests of this crate repeat the inputs of `corpus/`, so that a mended defect stays mended.
#![doc = include_str!("../README.md")]

mod callback;
mod csv_export;
mod cursor;
mod import;
mod multipart;
mod page;

/// A parser and its properties.
#[derive(Clone, Copy)]
pub struct FuzzTarget {
    /// Also the directory below `corpus/`.
    pub name: &'static str,
    /// Panics if a property does not hold for the input.
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, run: fn(&[u8])) -> FuzzTarget {
    FuzzTarget { name, run }
}

pub const TARGETS: &[FuzzTarget] = &[
    target("multipart", multipart::run),
    target("callback", callback::run),
    target("page", page::run),
    target("cursor", cursor::run),
    target("import", import::run),
    target("csv_export", csv_export::run),
];

/// Takes the first byte as a number that controls the run. An empty input gives 0.
fn control(input: &[u8]) -> (usize, &[u8]) {
    match input.split_first() {
        Some((first, rest)) => (usize::from(*first), rest),
        None => (0, input),
    }
}
