//! How the server's own connections are encrypted: PostgreSQL, Redis, mail and the gateways.

use std::net::IpAddr;
use std::path::Path;

use actix_web::http::Uri;
use recado_gateways::mail::SmtpServer;
use recado_gateways::tls::Authorities;
use recado_postgres::{DatabaseTls, TlsMode, UrlTls, url_tls};
use secrecy::SecretString;

use super::plaintext;
use super::values::{ConfigError, Source, invalid};

/// The variables with a URL of PostgreSQL.
const DATABASE_URLS: [&str; 2] = ["DATABASE_URL", "TENANT_DATABASE_URL"];

const MODES: &str = "must be off, require, verify-ca or verify-full";

/// The encryption of all outgoing connections.
#[derive(Clone)]
pub struct OutgoingTls {
    /// The authorities of the system and of `SSL_CERT_FILE`.
    pub authorities: Authorities,
    /// `DATABASE_TLS` and `DATABASE_TLS_CA`.
    pub database: DatabaseTls,
    /// The systems that are configured, and whether connections to them are always encrypted.
    pub targets: Vec<(&'static str, bool)>,
    /// What an operator should know of a configuration that is accepted.
    pub warnings: Vec<String>,
}

impl OutgoingTls {
    pub(super) fn read(source: Source<'_>) -> Result<Self, ConfigError> {
        let authorities = authorities(source)?;
        let mut warnings = Vec::new();
        let database = database_tls_with(source, &authorities, &mut warnings)?;
        let mut targets = vec![("postgres", is_database_encrypted(source, &database))];
        if let Some(url) = source("REDIS_URL") {
            targets.push(("redis", redis(&url, &mut warnings)?));
        }
        if let Some(url) = source("SMTP_URL") {
            // A malformed URL is an error of the mailer.
            if let Ok(server) = SmtpServer::of(&SecretString::from(url)) {
                targets.push(("smtp", server.is_encrypted()));
                warn_of_mail(server, &mut warnings);
            }
        }
        for (target, name) in [
            ("whatsapp", "WHATSAPP_API_URL"),
            ("payment", "PAYMENT_GATEWAY_URL"),
            ("ai", "AI_API_URL"),
            ("identity", "SESSION_JWKS_URL"),
        ] {
            if let Some(url) = source(name) {
                targets.push((target, !plaintext::is_plain(url.trim())));
            }
        }
        // Malformed hosts are an error also if no URL needs them.
        plaintext::plaintext_hosts(source)?;
        let bucket = plaintext::bucket_url(source)?;
        if source("MEDIA_STORE_URL").is_some_and(|url| url.trim().starts_with("s3://")) {
            targets.push(("storage", !bucket.is_some_and(|url| plaintext::is_plain(url.trim()))));
        }
        Ok(Self {
            authorities,
            database,
            targets,
            warnings,
        })
    }

    /// Logs the warnings.
    pub fn log_warnings(&self) {
        for warning in &self.warnings {
            tracing::warn!("{warning}");
        }
    }
}

/// The encryption of the database alone, for commands that need nothing else.
pub(super) fn database_tls(source: Source<'_>) -> Result<DatabaseTls, ConfigError> {
    let get = |name: &str| source(name).filter(|value| !value.trim().is_empty());
    let authorities = authorities(&get)?;
    database_tls_with(&get, &authorities, &mut Vec::new())
}

/// Whether a connection to PostgreSQL uses TLS. A Unix socket has none in any mode.
fn is_database_encrypted(source: Source<'_>, tls: &DatabaseTls) -> bool {
    let urls = DATABASE_URLS.iter().filter_map(|name| source(name));
    let mut urls = urls.filter_map(|url| url_tls(&SecretString::from(url)).ok());
    tls.mode() != TlsMode::Off && urls.any(|tls| !tls.is_socket)
}

/// `SSL_CERT_FILE` adds authorities to those of the system.
fn authorities(source: Source<'_>) -> Result<Authorities, ConfigError> {
    let system = Authorities::system();
    match source("SSL_CERT_FILE") {
        None => Ok(system),
        Some(path) => system
            .with_file(Path::new(path.trim()))
            .map_err(|problem| invalid("SSL_CERT_FILE", problem)),
    }
}

fn database_tls_with(
    source: Source<'_>,
    authorities: &Authorities,
    warnings: &mut Vec<String>,
) -> Result<DatabaseTls, ConfigError> {
    let mut urls = Vec::new();
    for name in DATABASE_URLS {
        if let Some(url) = source(name) {
            let tls = url_tls(&SecretString::from(url)).map_err(|problem| invalid(name, problem))?;
            urls.push((name, tls));
        }
    }
    let mode = mode(source, &urls)?;
    let authority_file = authority_file(source, &urls)?;
    match (mode, &authority_file) {
        (TlsMode::Off, Some(_)) => warnings.push(
            "an authority is configured for PostgreSQL (DATABASE_TLS_CA, sslrootcert), but its TLS is off".to_owned(),
        ),
        (TlsMode::Off, None) if !urls.iter().all(|(_, tls)| tls.is_loopback) => {
            warnings.push("connections to PostgreSQL are not encrypted (DATABASE_TLS=off)".to_owned());
        }
        (TlsMode::Require, _) => warnings.push(
            "connections to PostgreSQL are encrypted, but its certificate is not verified (require): an attacker in \
             the network can read and change everything; use verify-full"
                .to_owned(),
        ),
        _ => {}
    }
    let authorities = match authority_file {
        Some((name, file)) => Authorities::from_file(Path::new(&file)).map_err(|problem| invalid(name, problem))?,
        None => authorities.clone(),
    };
    DatabaseTls::new(mode, authorities.roots()).map_err(|problem| invalid("DATABASE_TLS", problem))
}

/// `DATABASE_TLS`, or the stricter `sslmode` of a URL.
fn mode(source: Source<'_>, urls: &[(&'static str, UrlTls)]) -> Result<TlsMode, ConfigError> {
    let is_loopback = urls.iter().all(|(_, tls)| tls.is_loopback);
    let (required, origin) = match source("DATABASE_TLS") {
        Some(text) => (
            text.trim().parse().map_err(|()| invalid("DATABASE_TLS", MODES))?,
            " (DATABASE_TLS)",
        ),
        None if is_loopback => (TlsMode::Off, ""),
        None => (
            TlsMode::VerifyFull,
            ", the default for hosts that are not loopback hosts",
        ),
    };
    let mut mode = required;
    for (name, tls) in urls {
        let Some(sslmode) = tls.mode else { continue };
        if sslmode < required {
            return Err(invalid(
                name,
                format!(
                    "has an sslmode that is weaker than {required}{origin}; remove sslmode from the URL, or set \
                     DATABASE_TLS={sslmode}"
                ),
            ));
        }
        mode = mode.max(sslmode);
    }
    Ok(mode)
}

/// `DATABASE_TLS_CA` or `sslrootcert`, with the name of its variable. `None` means the authorities of the process.
fn authority_file(
    source: Source<'_>,
    urls: &[(&'static str, UrlTls)],
) -> Result<Option<(&'static str, String)>, ConfigError> {
    let variable = source("DATABASE_TLS_CA").map(|path| ("DATABASE_TLS_CA", path.trim().to_owned()));
    let parameters = urls
        .iter()
        .filter_map(|(name, tls)| Some((*name, tls.root_cert.clone()?)));
    let mut found: Option<(&'static str, String)> = variable;
    for (name, path) in parameters {
        match &found {
            Some((_, earlier)) if *earlier != path => {
                return Err(invalid(
                    name,
                    "names another file with sslrootcert than DATABASE_TLS_CA or the other URL; name one file",
                ));
            }
            _ => found = found.or(Some((name, path))),
        }
    }
    // As for libpq, `system` means the authorities of the system.
    Ok(found.filter(|(_, path)| path != "system"))
}

/// Whether Redis is reached over TLS. `redis://` to another machine is a warning.
fn redis(url: &str, warnings: &mut Vec<String>) -> Result<bool, ConfigError> {
    let url = url.trim();
    if url.starts_with("rediss://") {
        return Ok(true);
    }
    let is_socket = url.starts_with("unix:") || url.starts_with("redis+unix:");
    let uri: Option<Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    let is_loopback = host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback());
    if !is_socket && !is_loopback {
        warnings.push("connections to Redis are not encrypted; use rediss:// in REDIS_URL".to_owned());
    }
    Ok(false)
}

fn warn_of_mail(server: SmtpServer, warnings: &mut Vec<String>) {
    if !server.is_encrypted() && !server.is_loopback {
        warnings.push(
            "mail may be sent without encryption (?tls=none or ?tls=opportunistic in SMTP_URL); use ?tls=required"
                .to_owned(),
        );
    }
}

/// Checks the TLS of every database before anything is sent to it.
pub(crate) async fn check_databases(urls: &[&SecretString], tls: &DatabaseTls) -> anyhow::Result<()> {
    for url in urls {
        recado_postgres::check_tls(url, tls).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
