//! Limits on what one process holds for its callers, and on what callers may do.

use recado_api::web::callback::CALLBACK_BYTES;
use recado_domain::accounts::ACCOUNTS_PER_USER;

use super::values::{ConfigError, Source, invalid, parsed};

const MIB: usize = 1024 * 1024;

/// The units of a size, with their bytes.
const UNITS: [(&str, usize); 3] = [("KiB", 1024), ("MiB", MIB), ("GiB", 1024 * MIB)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `MAX_CONNECTIONS`: open client connections.
    pub max_connections: usize,
    /// `CALLBACK_MEMORY`: bytes of callback bodies that are in memory at the same time.
    pub callback_memory: usize,
    /// `REQUESTS_PER_MINUTE`: requests of an account, or of an address on anonymous routes. `None`: no ceiling.
    pub requests_per_minute: Option<u32>,
    /// `ACCOUNTS_PER_USER`: accounts that a user made and owns.
    pub accounts_per_user: u32,
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
            requests_per_minute: requests_per_minute(source)?,
            accounts_per_user: parsed(
                source,
                "ACCOUNTS_PER_USER",
                ACCOUNTS_PER_USER,
                |accounts| *accounts <= 1_000_000,
                "0 to 1000000",
            )?,
        })
    }
}

/// The upper bound keeps the log of a window small: the rate limiter stores the time of every request.
fn requests_per_minute(source: Source<'_>) -> Result<Option<u32>, ConfigError> {
    let name = "REQUESTS_PER_MINUTE";
    if source(name).is_none() {
        return Ok(None);
    }
    let is_valid = |requests: &u32| (1..=100_000).contains(requests);
    parsed(source, name, 0, is_valid, "1 to 100000").map(Some)
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
pub(super) fn parse_size(text: &str) -> Option<usize> {
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
    fn request_and_account_limits_have_bounds() {
        let read = |name: &'static str, text: &'static str| {
            Limits::read(&move |asked| (asked == name).then(|| text.to_owned()))
        };
        let unset = Limits::read(&|_| None).unwrap();
        assert_eq!((unset.requests_per_minute, unset.accounts_per_user), (None, 100));
        assert_eq!(
            read("REQUESTS_PER_MINUTE", "600").unwrap().requests_per_minute,
            Some(600)
        );
        assert_eq!(read("ACCOUNTS_PER_USER", "0").unwrap().accounts_per_user, 0);
        for (name, text) in [
            ("REQUESTS_PER_MINUTE", "0"),
            ("REQUESTS_PER_MINUTE", "100001"),
            ("REQUESTS_PER_MINUTE", "many"),
            ("ACCOUNTS_PER_USER", "-1"),
            ("ACCOUNTS_PER_USER", "1000001"),
        ] {
            assert_eq!(read(name, text).unwrap_err().variable, name, "{text}");
        }
    }

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
