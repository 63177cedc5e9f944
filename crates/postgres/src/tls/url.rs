//! The TLS parameters of a database URL. The driver knows neither `verify-ca`, `verify-full` nor `sslrootcert`, so they
//! are taken out of the URL before the driver parses it.

use std::net::IpAddr;

use percent_encoding::percent_decode_str;
use recado_domain::shared::StoreError;
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::mode::TlsMode;

/// What a database URL says about TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlTls {
    /// `sslmode`. `disable`, `allow` and `prefer` require no TLS, so they are `Off`.
    pub mode: Option<TlsMode>,
    /// `sslrootcert`: the PEM file of the trusted authorities.
    pub root_cert: Option<String>,
    /// Whether every host is a loopback host or a Unix socket.
    pub is_loopback: bool,
    /// Whether every host is a Unix socket, which has no TLS.
    pub is_socket: bool,
}

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum UrlError {
    #[error("is not a valid PostgreSQL URL")]
    Malformed,
    #[error("has an sslmode other than disable, allow, prefer, require, verify-ca and verify-full")]
    Mode,
}

/// Reads what a URL says about TLS. The error continues the name of the variable, and never contains a value.
pub fn url_tls(url: &SecretString) -> Result<UrlTls, String> {
    let parsed = parse(url.expose_secret()).map_err(|error| error.to_string())?;
    Ok(UrlTls {
        mode: parsed.mode,
        root_cert: parsed.root_cert,
        is_loopback: is_loopback(&parsed.config),
        is_socket: parsed
            .config
            .get_hosts()
            .iter()
            .all(|host| matches!(host, Host::Unix(_))),
    })
}

/// Parses a URL for the driver, without its TLS parameters.
pub(crate) fn parse_url(url: &SecretString) -> Result<Config, StoreError> {
    parse(url.expose_secret())
        .map(|parsed| parsed.config)
        .map_err(|error| StoreError::Failed(Box::new(error)))
}

struct Parsed {
    config: Config,
    mode: Option<TlsMode>,
    root_cert: Option<String>,
}

fn parse(url: &str) -> Result<Parsed, UrlError> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut mode, mut root_cert, mut rest) = (None, None, Vec::new());
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = percent_decode_str(value)
            .decode_utf8()
            .map_err(|_| UrlError::Malformed)?;
        match name {
            "sslmode" => mode = Some(parse_mode(&value)?),
            "sslrootcert" => root_cert = Some(value.into_owned()),
            _ => rest.push(parameter),
        }
    }
    let text = match rest.is_empty() {
        true => base.to_owned(),
        false => format!("{base}?{}", rest.join("&")),
    };
    let mut config: Config = text.parse().map_err(|_| UrlError::Malformed)?;
    if config.get_hosts().is_empty() {
        // Certificates are verified for the host, so an address alone is the host.
        let addresses: Vec<String> = config.get_hostaddrs().iter().map(ToString::to_string).collect();
        for address in addresses {
            config.host(address);
        }
    }
    Ok(Parsed {
        config,
        mode,
        root_cert,
    })
}

fn parse_mode(text: &str) -> Result<TlsMode, UrlError> {
    match text {
        "disable" | "allow" | "prefer" => Ok(TlsMode::Off),
        "require" => Ok(TlsMode::Require),
        "verify-ca" => Ok(TlsMode::VerifyCa),
        "verify-full" => Ok(TlsMode::VerifyFull),
        _ => Err(UrlError::Mode),
    }
}

/// Whether the connection stays on this machine: every host is a Unix socket or a loopback host, and so is every
/// address of `hostaddr`.
pub(super) fn is_loopback(config: &Config) -> bool {
    config.get_hostaddrs().iter().all(IpAddr::is_loopback) && config.get_hosts().iter().all(is_loopback_host)
}

fn is_loopback_host(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            let address = name.parse::<IpAddr>();
            name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
        }
        Host::Unix(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<UrlTls, String> {
        url_tls(&SecretString::from(url))
    }

    #[test]
    fn url_tls_reads_sslmode_and_sslrootcert() {
        let url = "postgres://u:p%40@db.example/r?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fetc%2Fca.pem";
        let tls = read(url).unwrap();
        assert_eq!(tls.mode, Some(TlsMode::VerifyFull));
        assert_eq!(
            (tls.root_cert.as_deref(), tls.is_loopback),
            (Some("/etc/ca.pem"), false)
        );
        let config = parse_url(&SecretString::from(url)).unwrap();
        assert_eq!(config.get_connect_timeout().unwrap().as_secs(), 3);
        assert_eq!(config.get_password(), Some(&b"p@"[..]));
        for (mode, expected) in [
            ("disable", TlsMode::Off),
            ("prefer", TlsMode::Off),
            ("require", TlsMode::Require),
            ("verify-ca", TlsMode::VerifyCa),
        ] {
            assert_eq!(
                read(&format!("postgres://h/r?sslmode={mode}")).unwrap().mode,
                Some(expected)
            );
        }
    }

    #[test]
    fn url_tls_error_hides_the_value() {
        for (url, expected) in [
            ("postgres://u:hunter2@h/r?sslmode=hunter2", "sslmode other than"),
            ("postgres://u:hunter2@h:port/r", "is not a valid PostgreSQL URL"),
            (
                "postgres://u:hunter2@h/r?sslcert=hunter2",
                "is not a valid PostgreSQL URL",
            ),
        ] {
            let error = read(url).unwrap_err();
            assert!(error.contains(expected) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn only_loopback_hosts_and_sockets_are_loopback() {
        for (url, expected) in [
            ("postgres://u@localhost/r", true),
            ("postgres://u@127.0.0.9:5433/r", true),
            ("postgres://u@[::1]/r", true),
            ("postgres://u@%2Fvar%2Frun%2Fpostgresql/r", true),
            ("postgres:///r?hostaddr=127.0.0.1", true),
            ("postgres://u@localhost,db.example/r", false),
            ("postgres://u@db.example/r", false),
            ("postgres://u@localhost.example/r", false),
            // The address is this machine, but the name says that it may be another one.
            ("postgres://u@db.example/r?hostaddr=127.0.0.1", false),
            ("postgres://u@localhost/r?hostaddr=10.0.0.1", false),
            ("postgres:///r?hostaddr=10.0.0.1", false),
        ] {
            assert_eq!(read(url).unwrap().is_loopback, expected, "{url}");
        }
    }
}
