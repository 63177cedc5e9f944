//! Reads and checks single variables.

use std::net::SocketAddr;
use std::str::FromStr;

use actix_web::http::Uri;
use recado_domain::shared::Network;
use secrecy::SecretString;
use thiserror::Error;
use time::Duration;

/// Returns the value of a variable.
pub type Source<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A variable is missing or malformed. The message never contains the value, which may be a secret.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("configuration: {variable} {problem}")]
pub struct ConfigError {
    pub variable: &'static str,
    /// Continues the variable's name.
    pub problem: String,
}

pub(super) fn secret(source: Source<'_>, name: &str) -> Option<SecretString> {
    source(name).map(|value| SecretString::from(value.trim()))
}

/// The error omits the value, because a URL may contain a password.
pub(super) fn postgres_url(name: &'static str, url: String) -> Result<SecretString, ConfigError> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        Ok(SecretString::from(url))
    } else {
        Err(invalid(name, "must begin with postgres://"))
    }
}

pub(super) fn address(source: Source<'_>, name: &'static str) -> Result<Option<SocketAddr>, ConfigError> {
    let value = source(name).filter(|value| !value.trim().is_empty());
    value
        .map(|text| {
            text.trim()
                .parse()
                .map_err(|_| invalid(name, "must be an IP address and a port, like 127.0.0.1:8080"))
        })
        .transpose()
}

pub(super) fn invalid(variable: &'static str, problem: impl Into<String>) -> ConfigError {
    ConfigError {
        variable,
        problem: problem.into(),
    }
}

pub(super) fn required(source: Source<'_>, name: &'static str) -> Result<String, ConfigError> {
    source(name)
        .filter(|value| !value.trim().is_empty())
        .ok_or_else(|| invalid(name, "is required"))
}

pub(super) fn parsed<T: FromStr>(
    source: Source<'_>,
    name: &'static str,
    default: T,
    is_valid: impl Fn(&T) -> bool,
    accepted: &str,
) -> Result<T, ConfigError> {
    match source(name) {
        None => Ok(default),
        Some(text) => {
            let value = text.trim().parse().ok().filter(is_valid);
            value.ok_or_else(|| invalid(name, format!("must be {accepted}")))
        }
    }
}

pub(super) fn list<T: FromStr>(source: Source<'_>, name: &'static str, accepted: &str) -> Result<Vec<T>, ConfigError> {
    let text = source(name).unwrap_or_default();
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items
        .map(|item| item.parse().map_err(|_| invalid(name, format!("must be {accepted}"))))
        .collect()
}

pub(super) fn networks(source: Source<'_>, name: &'static str) -> Result<Vec<Network>, ConfigError> {
    list(source, name, "a comma-separated list of networks like 10.0.0.0/8")
}

/// The error omits the value, because a URL may contain a password.
pub(super) fn http_url(source: Source<'_>, name: &'static str) -> Result<Option<String>, ConfigError> {
    let Some(text) = source(name) else { return Ok(None) };
    let uri: Option<Uri> = text.trim().parse().ok();
    match uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https"))) {
        true => Ok(Some(text.trim().to_owned())),
        false => Err(invalid(name, "must be an http or https URL")),
    }
}

pub(super) fn duration(source: Source<'_>, name: &'static str, default: Duration) -> Result<Duration, ConfigError> {
    let Some(text) = source(name) else { return Ok(default) };
    parse_duration(&text).ok_or_else(|| invalid(name, "must be a duration like 500ms, 1s, 5m or 2h"))
}

/// Parses `500ms`, `1s`, `5m` or `2h`.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: Option<i64> = digits.parse().ok().filter(|number| (0..=1_000_000).contains(number));
    number.and_then(|number| match text.strip_prefix(digits)? {
        "ms" => Some(Duration::milliseconds(number)),
        "s" => Some(Duration::seconds(number)),
        "m" => Some(Duration::minutes(number)),
        "h" => Some(Duration::hours(number)),
        _ => None,
    })
}
