//! Limits on what one process holds for unauthenticated callers.

use super::{ConfigError, Source, invalid, parsed};
use crate::web::body::CALLBACK_BYTES;

const MIB: usize = 1024 * 1024;

/// The units of a size, with their bytes.
const UNITS: [(&str, usize); 3] = [("KiB", 1024), ("MiB", MIB), ("GiB", 1024 * MIB)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `MAX_CONNECTIONS`: open client connections.
    pub max_connections: usize,
    /// `CALLBACK_MEMORY`: bytes of callback bodies that are in memory at the same time.
    pub callback_memory: usize,
}

impl Limits {
    pub(super) fn read(source: Source<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            max_connections: parsed(
                source,
                "MAX_CONNECTIONS",
                4096,
                |connections| (16..=1_000_000).contains(connections),
                "16 to 1000000",
            )?,
            callback_memory: callback_memory(source)?,
        })
    }
}

/// The lower bound is `CALLBACK_BYTES`, so that the largest callback fits.
fn callback_memory(source: Source<'_>) -> Result<usize, ConfigError> {
    let name = "CALLBACK_MEMORY";
    let Some(text) = source(name) else { return Ok(64 * MIB) };
    let is_valid = |bytes: &usize| (CALLBACK_BYTES..=16 * 1024 * MIB).contains(bytes);
    let bytes = parse_size(&text).filter(is_valid);
    bytes.ok_or_else(|| invalid(name, "must be a size like 64MiB, from 4MiB to 16GiB"))
}

/// Parses a whole number with one of the `UNITS`, like `64MiB`, into bytes. `None` without a unit or on overflow.
fn parse_size(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, unit_bytes) = UNITS
        .iter()
        .find_map(|(unit, unit_bytes)| Some((text.strip_suffix(unit)?, *unit_bytes)))?;
    digits.parse::<usize>().ok()?.checked_mul(unit_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callback_memory_parses_sizes_within_bounds() {
        let read = |text: &'static str| callback_memory(&move |_| Some(text.to_owned()));
        assert_eq!(read("4MiB"), Ok(4 * MIB));
        assert_eq!(read(" 65536KiB "), Ok(64 * MIB));
        assert_eq!(read("1GiB"), Ok(1024 * MIB));
        for wrong in [
            "64",
            "64MB",
            "3MiB",
            "17GiB",
            "-1MiB",
            "MiB",
            "1.5GiB",
            "99999999999999999999GiB",
        ] {
            assert_eq!(read(wrong).unwrap_err().variable, "CALLBACK_MEMORY", "{wrong}");
        }
        assert_eq!(callback_memory(&|_| None), Ok(64 * MIB));
    }
}
