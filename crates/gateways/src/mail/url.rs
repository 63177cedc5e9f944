//! `SMTP_URL`: the mail server, its credentials, and whether the connection is encrypted.

use std::net::IpAddr;

use lettre::transport::smtp::AsyncSmtpTransportBuilder;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters, TlsParametersBuilder};
use lettre::{AsyncSmtpTransport, Tokio1Executor};
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;
use url::Url;

use crate::tls::Authorities;

/// The default port of message submission (RFC 6409), for URLs that name their TLS.
const SUBMISSION_PORT: u16 = 587;

/// Why the configuration is invalid. The text contains no value: the URL may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SmtpConfigError {
    #[error("must be smtp://user:password@host:port, with ?tls=required, ?tls=opportunistic or ?tls=none, or smtps://")]
    Url,
    #[error("has a password and ?tls=none: it would be sent in clear text; use ?tls=required or smtps://")]
    PlaintextPassword,
    #[error("cannot be used: TLS cannot be set up")]
    Tls,
    #[error("must be an address like no-reply@example.com or Name <no-reply@example.com>")]
    From,
}

/// The encryption of connections to the mail server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmtpTls {
    /// No TLS.
    None,
    /// STARTTLS if the server offers it. An attacker can remove the offer.
    Opportunistic,
    /// STARTTLS; without it no mail is sent.
    Required,
    /// TLS from the first byte (`smtps://`).
    Implicit,
}

/// The server of `SMTP_URL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmtpServer {
    pub tls: SmtpTls,
    /// Whether the server is on this machine.
    pub is_loopback: bool,
}

impl SmtpServer {
    /// Reads the URL. `smtp://` without `?tls=` means `Required`, to a loopback host `None`. Fails if the URL sends a
    /// password without TLS to another machine.
    pub fn of(url: &SecretString) -> Result<Self, SmtpConfigError> {
        Self::read(&parse(url)?)
    }

    fn read(url: &Url) -> Result<Self, SmtpConfigError> {
        let is_loopback = is_loopback(url);
        let tls = match (url.scheme(), tls_parameter(url)?.as_deref()) {
            ("smtps", None | Some("required")) => SmtpTls::Implicit,
            ("smtp", None) if is_loopback => SmtpTls::None,
            ("smtp", None | Some("required")) => SmtpTls::Required,
            ("smtp", Some("opportunistic")) => SmtpTls::Opportunistic,
            ("smtp", Some("none")) => SmtpTls::None,
            _ => return Err(SmtpConfigError::Url),
        };
        if tls == SmtpTls::None && !is_loopback && url.password().is_some() {
            return Err(SmtpConfigError::PlaintextPassword);
        }
        Ok(Self { tls, is_loopback })
    }

    /// Whether mail is sent only over TLS.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.tls, SmtpTls::Required | SmtpTls::Implicit)
    }
}

/// Builds the transport of the URL, which trusts these authorities.
pub(super) fn transport(
    url: &SecretString,
    authorities: &Authorities,
) -> Result<AsyncSmtpTransportBuilder, SmtpConfigError> {
    let mut url = parse(url)?;
    let server = SmtpServer::read(&url)?;
    let names_tls = tls_parameter(&url)?.is_some();
    url.set_query(None);
    let mut builder = AsyncSmtpTransport::<Tokio1Executor>::from_url(url.as_str()).map_err(|_| SmtpConfigError::Url)?;
    if names_tls && server.tls != SmtpTls::None && url.scheme() == "smtp" && url.port().is_none() {
        builder = builder.port(SUBMISSION_PORT);
    }
    let host = url.host_str().ok_or(SmtpConfigError::Url)?;
    let parameters = || tls_parameters(host, authorities);
    Ok(builder.tls(match server.tls {
        SmtpTls::None => Tls::None,
        SmtpTls::Opportunistic => Tls::Opportunistic(parameters()?),
        SmtpTls::Required => Tls::Required(parameters()?),
        SmtpTls::Implicit => Tls::Wrapper(parameters()?),
    }))
}

fn parse(url: &SecretString) -> Result<Url, SmtpConfigError> {
    let url = Url::parse(url.expose_secret().trim()).map_err(|_| SmtpConfigError::Url)?;
    match url.host_str() {
        Some(host) if !host.is_empty() => Ok(url),
        _ => Err(SmtpConfigError::Url),
    }
}

/// The value of `tls`. Other parameters, and `tls` twice, are refused: a typing error must not weaken the connection.
fn tls_parameter(url: &Url) -> Result<Option<String>, SmtpConfigError> {
    let mut parameters = url.query_pairs();
    match (parameters.next(), parameters.next()) {
        (None, _) => Ok(None),
        (Some((name, value)), None) if name == "tls" => Ok(Some(value.into_owned())),
        _ => Err(SmtpConfigError::Url),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = bare_host(url.host_str().unwrap_or_default());
    let address = host.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// The host without the brackets of an IPv6 address.
fn bare_host(host: &str) -> &str {
    host.trim_matches(['[', ']'])
}

fn tls_parameters(host: &str, authorities: &Authorities) -> Result<TlsParameters, SmtpConfigError> {
    let mut builder = TlsParametersBuilder::new(bare_host(host).to_owned()).certificate_store(CertificateStore::None);
    for certificate in authorities.certificates() {
        let certificate = Certificate::from_der(certificate.to_vec()).map_err(|_| SmtpConfigError::Tls)?;
        builder = builder.add_root_certificate(certificate);
    }
    builder.build().map_err(|_| SmtpConfigError::Tls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> Result<SmtpServer, SmtpConfigError> {
        SmtpServer::of(&SecretString::from(url))
    }

    #[test]
    fn smtp_requires_tls_except_for_loopback_hosts() {
        for (url, expected) in [
            ("smtp://mail.example", SmtpTls::Required),
            ("smtp://u:p@mail.example:25", SmtpTls::Required),
            ("smtp://mail.example?tls=required", SmtpTls::Required),
            ("smtp://u:p@mail.example?tls=opportunistic", SmtpTls::Opportunistic),
            ("smtp://u@mail.example?tls=none", SmtpTls::None),
            ("smtps://u:p@mail.example", SmtpTls::Implicit),
            ("smtps://u:p@localhost", SmtpTls::Implicit),
            ("smtp://u:p@localhost:2525", SmtpTls::None),
            ("smtp://u:p@127.0.0.1:2525", SmtpTls::None),
            ("smtp://u:p@[::1]:2525?tls=none", SmtpTls::None),
            ("smtp://u:p@localhost:2525?tls=required", SmtpTls::Required),
            ("smtp://127.0.0.1.example", SmtpTls::Required),
        ] {
            assert_eq!(server(url).unwrap().tls, expected, "{url}");
        }
    }

    #[test]
    fn password_without_tls_is_refused() {
        let refused = server("smtp://u:hunter2@mail.example?tls=none");
        assert_eq!(refused, Err(SmtpConfigError::PlaintextPassword));
    }

    #[test]
    fn unknown_parameters_are_refused() {
        for url in [
            "smtp://mail.example?tls=no",
            "smtp://mail.example?tls=",
            "smtp://mail.example?tsl=none",
            "smtp://mail.example?tls=required&tls=none",
            "smtps://mail.example?tls=none",
            "http://mail.example",
            "smtp://",
        ] {
            assert_eq!(server(url), Err(SmtpConfigError::Url), "{url}");
        }
    }
}
