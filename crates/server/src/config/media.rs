//! `WHATSAPP_MEDIA_HOSTS` and `MEDIA_INBOUND_MAX`: the files of messages.

use super::limits::parse_size;
use super::values::{ConfigError, Source, invalid, list};

/// Where WhatsApp offers the files of messages.
const DEFAULT_HOST: &str = "lookaside.fbsbx.com";

const MIB: usize = 1024 * 1024;

/// Which files of messages are fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboundMedia {
    /// `WHATSAPP_MEDIA_HOSTS`: the hosts, beside the API's, that receive the access token for a file.
    pub hosts: Vec<String>,
    /// `MEDIA_INBOUND_MAX`: the largest file, in bytes.
    pub max_bytes: u64,
}

impl InboundMedia {
    pub(super) fn read(source: Source<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            hosts: hosts(source)?,
            max_bytes: inbound_max(source)?,
        })
    }
}

/// The hosts, beside the API's, that receive the access token for a file.
fn hosts(source: Source<'_>) -> Result<Vec<String>, ConfigError> {
    let name = "WHATSAPP_MEDIA_HOSTS";
    if source(name).is_none() {
        return Ok(vec![DEFAULT_HOST.to_owned()]);
    }
    let accepted = "a comma-separated list of host names like lookaside.fbsbx.com, without a port";
    let hosts: Vec<String> = list(source, name, accepted)?;
    let is_host = |host: &String| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        host.len() <= 253 && host.chars().all(is_allowed)
    };
    match hosts.iter().all(is_host) {
        true => Ok(hosts),
        false => Err(invalid(name, format!("must be {accepted}"))),
    }
}

/// The largest file of a message that is fetched, in bytes.
fn inbound_max(source: Source<'_>) -> Result<u64, ConfigError> {
    let name = "MEDIA_INBOUND_MAX";
    let text = source(name);
    let bytes = text.as_deref().map_or(Some(100 * MIB), parse_size);
    let bytes = bytes.filter(|bytes| (1..=16 * 1024 * MIB).contains(bytes));
    bytes
        .and_then(|bytes| u64::try_from(bytes).ok())
        .ok_or_else(|| invalid(name, "must be a size like 100MiB, from 1KiB to 16GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_hosts_and_size_have_defaults_and_bounds() {
        assert_eq!(hosts(&|_| None).unwrap(), [DEFAULT_HOST]);
        assert_eq!(
            hosts(&|_| Some("a.example, b.example".into())).unwrap(),
            ["a.example", "b.example"]
        );
        for wrong in ["a.example:443", "https://a.example", "a b"] {
            assert_eq!(
                hosts(&|_| Some(wrong.into())).unwrap_err().variable,
                "WHATSAPP_MEDIA_HOSTS"
            );
        }
        assert_eq!(inbound_max(&|_| None).unwrap(), 104_857_600);
        assert_eq!(inbound_max(&|_| Some("1KiB".into())).unwrap(), 1024);
        for wrong in ["0KiB", "100", "17GiB", "many"] {
            assert_eq!(
                inbound_max(&|_| Some(wrong.into())).unwrap_err().variable,
                "MEDIA_INBOUND_MAX"
            );
        }
    }
}
