//! The TLS check at start: a handshake with every host, without any login, so that no password is sent.

use std::io;
use std::time::Duration;

use rustls::{CertificateError, Error as TlsError};
use secrecy::SecretString;
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslNegotiation};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect as _};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{DatabaseTls, parse_url};

/// Time limit for one host. A host that does not respond is left to the pools, which retry.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How much of the names of a certificate is shown.
const MAX_NAMES: usize = 5;
const MAX_NAME_CHARS: usize = 253;

/// `SSLRequest`: its length and its code.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// The response to `SSLRequest` of a server with TLS, and of one without.
const WITH_TLS: u8 = b'S';
const WITHOUT_TLS: u8 = b'N';

/// A host whose TLS is missing or not trusted.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the connection to PostgreSQL at {host}:{port} cannot be trusted: {reason}")]
pub struct TlsRefusal {
    pub host: String,
    pub port: u16,
    pub reason: String,
}

enum Failure {
    /// The server cannot be trusted, now or later.
    Refused(String),
    /// The server cannot be reached now.
    Unavailable(String),
}

/// Checks the TLS of every host of the URL. Fails if a host has no TLS, or a certificate that is not trusted. A host
/// that cannot be reached is logged and not an error: the server also starts without its database.
pub async fn check_tls(url: &SecretString, tls: &DatabaseTls) -> Result<(), TlsRefusal> {
    // A malformed URL is an error of the pools.
    let Ok(config) = parse_url(url) else { return Ok(()) };
    let Ok(Some(connector)) = tls.connector(&config) else {
        return Ok(());
    };
    for (index, host) in config.get_hosts().iter().enumerate() {
        let Host::Tcp(host) = host else { continue };
        let port = port(&config, index);
        let address = config
            .get_hostaddrs()
            .get(index)
            .map_or_else(|| host.clone(), ToString::to_string);
        let is_direct = config.get_ssl_negotiation() == SslNegotiation::Direct;
        let handshake = handshake(connector.clone(), host, (&address, port), is_direct);
        let result = tokio::time::timeout(TIMEOUT, handshake).await;
        match result.unwrap_or_else(|_| Err(Failure::Unavailable(format!("no response within {TIMEOUT:?}")))) {
            Ok(()) => {}
            Err(Failure::Unavailable(cause)) => {
                tracing::warn!(%host, port, cause, "PostgreSQL cannot be reached, its TLS is not checked yet");
            }
            Err(Failure::Refused(reason)) => {
                let host = host.clone();
                return Err(TlsRefusal { host, port, reason });
            }
        }
    }
    Ok(())
}

fn port(config: &Config, index: usize) -> u16 {
    let ports = config.get_ports();
    ports.get(index).or(ports.first()).copied().unwrap_or(5432)
}

async fn handshake(
    mut connector: MakeRustlsConnect,
    host: &str,
    address: (&str, u16),
    is_direct: bool,
) -> Result<(), Failure> {
    let unavailable = |error: io::Error| Failure::Unavailable(error.to_string());
    let mut stream = TcpStream::connect(address).await.map_err(unavailable)?;
    if !is_direct {
        stream.write_all(&SSL_REQUEST).await.map_err(unavailable)?;
        match stream.read_u8().await.map_err(unavailable)? {
            WITH_TLS => {}
            WITHOUT_TLS => {
                let reason = "the server has no TLS; set ssl = on there, or DATABASE_TLS=off if the network is trusted";
                return Err(Failure::Refused(reason.to_owned()));
            }
            // An error message, for example because the server has no process left for the connection.
            b'E' => return Err(Failure::Unavailable("the server reports an error".to_owned())),
            _ => return Err(Failure::Refused("the server is not PostgreSQL".to_owned())),
        }
    }
    let connector = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut connector, host)
        .map_err(|error| Failure::Refused(error.to_string()))?;
    let encrypted = connector
        .connect(stream)
        .await
        .map_err(|error| handshake_failure(&error))?;
    drop(encrypted);
    Ok(())
}

fn handshake_failure(error: &io::Error) -> Failure {
    let tls_error = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    match tls_error {
        Some(tls_error) => Failure::Refused(reason(tls_error)),
        None if error.kind() == io::ErrorKind::InvalidInput => {
            Failure::Refused("the host is neither a DNS name nor an IP address".to_owned())
        }
        None => Failure::Unavailable(error.to_string()),
    }
}

/// What is wrong with the certificate, in words.
fn reason(error: &TlsError) -> String {
    let TlsError::InvalidCertificate(error) = error else {
        return error.to_string();
    };
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is not signed by a trusted authority; name the authority with DATABASE_TLS_CA".to_owned()
        }
        CertificateError::NotValidForName => "its certificate is for another name".to_owned(),
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            "its certificate names no host (subjectAltName)".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            format!("its certificate is for another name: {}", names(presented))
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "its certificate has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet".to_owned()
        }
        error if error.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is that of an authority (CA:TRUE); issue a certificate for the server".to_owned()
        }
        error => format!("its certificate is not valid: {error}"),
    }
}

/// The names of a certificate, which rustls describes like `DnsName("db.example")`. The certificate is not trusted, so
/// only a few printable characters are shown.
fn names(presented: &[String]) -> String {
    let bare = |name: &String| -> String {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        let inner = inner.unwrap_or(name).trim_matches('"');
        inner
            .chars()
            .filter(char::is_ascii_graphic)
            .take(MAX_NAME_CHARS)
            .collect()
    };
    let shown: Vec<String> = presented.iter().take(MAX_NAMES).map(bare).collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_certificate_are_shown_without_their_type() {
        let presented = [
            "DnsName(\"db.example\")",
            "IpAddress(10.0.0.5)",
            "DirectoryName",
            "DnsName(\"a\n\u{1b}b\")",
        ];
        let presented = presented.map(str::to_owned);
        assert_eq!(names(&presented), "db.example, 10.0.0.5, DirectoryName, ab");
        assert_eq!(
            names(&vec!["DnsName(\"a\")".to_owned(); 50]).matches('a').count(),
            MAX_NAMES
        );
    }
}
