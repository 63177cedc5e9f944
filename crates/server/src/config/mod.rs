//! Configuration: every environment variable, checked before anything starts. `docs/configuration.md` lists them.

use std::net::{IpAddr, SocketAddr};

use actix_web::http::Uri;
use recado_api::app_secret::AppSecrets;
use recado_domain::egress::AllowList;
use recado_domain::redacted_debug;
use recado_domain::retention::RetentionBounds;
use recado_domain::shared::Network;
use recado_domain::webhooks::Schedule;
use recado_postgres::{DatabaseTls, RetentionDays};
use secrecy::SecretString;
use time::Duration;

use crate::logging;
pub use app_secrets::app_secrets;
pub use identity::IdentityRules;
pub use limits::Limits;
pub use media::InboundMedia;
use recado_api::origin::Origin;
pub use tls::OutgoingTls;
pub(crate) use tls::check_databases;
pub use values::{ConfigError, Source};
use values::{
    address, duration, http_url, invalid, list, networks, parse_duration, parsed, postgres_url, required, secret,
};

mod api_keys;
mod app_secrets;
mod callback_secrets;
mod identity;
mod limits;
mod media;
mod plaintext;
mod retention;
mod tls;
mod values;

/// The minimum length of an HS256 secret in bytes (RFC 7518, section 3.2).
const MIN_SESSION_SECRET_BYTES: usize = 32;

/// The maximum number of delays in `WEBHOOK_RETRY_SCHEDULE`.
const MAX_RETRY_DELAYS: usize = 50;

/// How session tokens are verified.
#[derive(Clone, Debug)]
pub enum SessionVerification {
    /// With a shared secret (HS256).
    Secret(SecretString),
    /// With the keys that the identity provider publishes at this URL.
    Jwks(String),
}

/// The AI service. Without a URL and a model, websites cannot be read.
#[derive(Clone)]
pub struct AiAccess {
    /// `AI_API_URL`, including the version segment.
    pub url: Option<String>,
    pub key: Option<SecretString>,
    pub model: Option<String>,
}

redacted_debug!(AiAccess { model });

impl AiAccess {
    fn read(source: Source<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            url: plaintext::secret_url(source, "AI_API_URL")?,
            key: source("AI_API_KEY").map(|key| SecretString::from(key.trim())),
            model: source("AI_MODEL").map(|model| model.trim().to_owned()),
        })
    }
}

/// The server's configuration.
#[derive(Clone)]
pub struct Config {
    pub database_url: SecretString,
    /// `TENANT_DATABASE_URL`: tenant queries log in with it. None: they log in with `DATABASE_URL` and assume the
    /// tenant role.
    pub tenant_database_url: Option<SecretString>,
    /// `DATABASE_POOL_SIZE`: connections for the tenant queries of requests.
    pub database_pool_size: usize,
    /// `REDIS_URL`. None: this process counts rate limits for itself.
    pub redis_url: Option<SecretString>,
    pub bind: SocketAddr,
    /// `PUBLIC_URL`: where people reach this server, without a trailing slash.
    pub public_url: String,
    /// `CORS_ORIGINS`: other sites whose pages may call with cookies.
    pub cors_origins: Vec<Origin>,
    pub trusted_proxies: Vec<Network>,
    pub app_secrets: AppSecrets,
    pub session_cookie: String,
    /// `SESSION_JWT_SECRET` or `SESSION_JWKS_URL`.
    pub session_verification: SessionVerification,
    pub session_issuer: Option<String>,
    pub session_audience: Option<String>,
    pub cookie_secure: bool,
    pub platform_admin_emails: Vec<String>,
    /// Who is an administrator besides those addresses, and how old sessions may be.
    pub identity: IdentityRules,
    /// `SMTP_URL`. None: no mail is sent.
    pub smtp_url: Option<SecretString>,
    /// `MAIL_FROM`: the sender of the server's mail.
    pub mail_from: String,
    /// `PAYMENT_GATEWAY_URL`, including the version segment.
    pub payment_gateway_url: Option<String>,
    pub payment_gateway_api_key: Option<SecretString>,
    /// `PAYMENT_GATEWAY_WEBHOOK_TOKEN`: authenticates gateway events.
    pub payment_gateway_webhook_token: Option<SecretString>,
    /// `WHATSAPP_API_URL`, including the version segment.
    pub whatsapp_api_url: Option<String>,
    /// `WHATSAPP_APP_SECRET`: each signs callbacks. Empty: none is accepted.
    pub whatsapp_app_secrets: Vec<SecretString>,
    /// `WHATSAPP_VERIFY_TOKEN`: WhatsApp presents it when the callback URL is set up.
    pub whatsapp_verify_token: Option<SecretString>,
    /// `WHATSAPP_APP_ID`: the app that uploads the files of template headers.
    pub whatsapp_app_id: Option<String>,
    /// `MEDIA_STORE_URL`: `file:///directory` or `s3://bucket/prefix`.
    pub media_store_url: Option<String>,
    /// `MEDIA_PUBLIC_URL`: the public address of stored files, without a trailing slash.
    pub media_public_url: String,
    pub inbound_media: InboundMedia,
    pub ai: AiAccess,
    /// `EGRESS_ALLOW_CIDRS`: private networks in which websites and webhook endpoints may be.
    pub egress_allow: AllowList,
    /// `CAMPAIGN_MESSAGE_DELAY_MS`.
    pub message_delay: Duration,
    /// `CAMPAIGN_MAX_CONCURRENT_RUNS`: runs that this process executes at the same time.
    pub runs: usize,
    /// `DATABASE_WAIT_TIMEOUT`: how long a request waits for a database connection before it fails with 503.
    pub database_wait_timeout: Duration,
    pub send_unknown_ttl: Duration,
    pub webhook_retry_schedule: Schedule,
    pub limits: Limits,
    /// `RETENTION_..._DAYS`: how long the rows of each kind stay.
    pub retention: RetentionDays,
    /// `RETENTION_MIN_DAYS`, `RETENTION_MAX_DAYS` and `RETENTION_FORCE_DAYS`: the bounds of the terms of accounts.
    pub retention_bounds: RetentionBounds,
    /// `API_KEY_MAX_DAYS`: how long a key lives at most. None: keys need not end.
    pub api_key_longest: Option<Duration>,
    pub log_format: logging::Format,
    /// `METRICS_BIND`. None: the process has no metrics listener.
    pub metrics_bind: Option<SocketAddr>,
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`. None: the process records no traces.
    pub otlp_endpoint: Option<String>,
    pub tls: OutgoingTls,
}

redacted_debug!(Config {
    bind,
    public_url,
    database_pool_size,
    runs,
    log_format,
    metrics_bind
});

impl Config {
    /// Reads the environment of the process.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::read(&|name| std::env::var(name).ok())
    }

    /// Reads all variables. An empty variable counts as unset.
    pub fn read(source: Source<'_>) -> Result<Self, ConfigError> {
        let get = |name: &str| source(name).filter(|value| !value.trim().is_empty());
        let get: Source<'_> = &get;
        let bind = Self::bind(get)?;
        let public_url = public_url(get, bind)?;
        let mail_from = get("MAIL_FROM").unwrap_or_else(|| default_sender(&public_url));
        Ok(Self {
            database_url: Self::database_url(get)?,
            tenant_database_url: Self::tenant_database_url(get)?,
            database_pool_size: Self::database_pool_size(get)?,
            redis_url: secret(get, "REDIS_URL"),
            bind,
            media_public_url: http_url(get, "MEDIA_PUBLIC_URL")?.map_or_else(
                || format!("{public_url}/media"),
                |url| url.trim_end_matches('/').to_owned(),
            ),
            media_store_url: media_store_url_from(get)?,
            public_url,
            cors_origins: list(
                get,
                "CORS_ORIGINS",
                "a comma-separated list of origins like https://app.example.com",
            )?,
            trusted_proxies: networks(get, "TRUSTED_PROXIES")?,
            app_secrets: app_secrets(get)?,
            session_cookie: get("SESSION_COOKIE").unwrap_or_else(|| "svc-session".to_owned()),
            session_verification: session_verification(get)?,
            session_issuer: get("SESSION_JWT_ISSUER"),
            session_audience: get("SESSION_JWT_AUDIENCE"),
            cookie_secure: parsed(get, "COOKIE_SECURE", true, |_| true, "true or false")?,
            platform_admin_emails: list(get, "PLATFORM_ADMIN_EMAILS", "a comma-separated list of addresses")?,
            identity: IdentityRules::read(get)?,
            smtp_url: smtp_url_from(get)?,
            mail_from,
            payment_gateway_url: plaintext::secret_url(get, "PAYMENT_GATEWAY_URL")?,
            payment_gateway_api_key: secret(get, "PAYMENT_GATEWAY_API_KEY"),
            payment_gateway_webhook_token: secret(get, "PAYMENT_GATEWAY_WEBHOOK_TOKEN"),
            whatsapp_api_url: plaintext::secret_url(get, "WHATSAPP_API_URL")?,
            whatsapp_app_secrets: callback_secrets::whatsapp(get)?,
            whatsapp_app_id: get("WHATSAPP_APP_ID").map(|id| id.trim().to_owned()),
            whatsapp_verify_token: secret(get, "WHATSAPP_VERIFY_TOKEN"),
            inbound_media: InboundMedia::read(get)?,
            ai: AiAccess::read(get)?,
            egress_allow: egress_allow(get)?,
            message_delay: message_delay(get)?,
            runs: parsed(
                get,
                "CAMPAIGN_MAX_CONCURRENT_RUNS",
                64,
                |runs| (1..=1000).contains(runs),
                "1 to 1000",
            )?,
            database_wait_timeout: duration(get, "DATABASE_WAIT_TIMEOUT", Duration::milliseconds(750))?,
            send_unknown_ttl: duration(get, "SEND_UNKNOWN_TTL", Duration::minutes(10))?,
            webhook_retry_schedule: retry_schedule(get)?,
            limits: Limits::read(get)?,
            retention: retention::read(get)?,
            retention_bounds: retention::bounds(get)?,
            api_key_longest: api_keys::longest(get)?,
            log_format: parsed(get, "LOG_FORMAT", logging::Format::Pretty, |_| true, "pretty or json")?,
            metrics_bind: Self::metrics_bind(get)?,
            otlp_endpoint: http_url(get, "OTEL_EXPORTER_OTLP_ENDPOINT")?,
            tls: OutgoingTls::read(get)?,
        })
    }

    fn database_pool_size(source: Source<'_>) -> Result<usize, ConfigError> {
        let fits = |size: &usize| (4..=500).contains(size);
        parsed(source, "DATABASE_POOL_SIZE", 16, fits, "4 to 500")
    }

    /// `BIND`: the address of the routes.
    pub fn bind(source: Source<'_>) -> Result<SocketAddr, ConfigError> {
        let default = SocketAddr::from(([127, 0, 0, 1], 8080));
        Ok(address(source, "BIND")?.unwrap_or(default))
    }

    /// `METRICS_BIND`: the address of the metrics listener.
    pub fn metrics_bind(source: Source<'_>) -> Result<Option<SocketAddr>, ConfigError> {
        address(source, "METRICS_BIND")
    }

    /// `DATABASE_URL`: the only variable that `recado migrate` needs.
    pub fn database_url(source: Source<'_>) -> Result<SecretString, ConfigError> {
        postgres_url("DATABASE_URL", required(source, "DATABASE_URL")?)
    }

    /// `TENANT_DATABASE_URL`: `recado migrate` makes its role.
    pub fn tenant_database_url(source: Source<'_>) -> Result<Option<SecretString>, ConfigError> {
        let name = "TENANT_DATABASE_URL";
        let url = source(name).filter(|value| !value.trim().is_empty());
        url.map(|url| postgres_url(name, url)).transpose()
    }

    /// `DATABASE_TLS`, `DATABASE_TLS_CA` and `SSL_CERT_FILE`, for commands that need the database alone.
    pub fn database_tls(source: Source<'_>) -> Result<DatabaseTls, ConfigError> {
        tls::database_tls(source)
    }
}

/// The error omits the value, because the URL may contain a password.
fn smtp_url_from(source: Source<'_>) -> Result<Option<SecretString>, ConfigError> {
    match source("SMTP_URL") {
        Some(url) if url.starts_with("smtp://") || url.starts_with("smtps://") => Ok(Some(SecretString::from(url))),
        Some(_) => Err(invalid("SMTP_URL", "must begin with smtp:// or smtps://")),
        None => Ok(None),
    }
}

/// `PUBLIC_URL`, by default `http://` and `BIND`.
fn public_url(source: Source<'_>, bind: SocketAddr) -> Result<String, ConfigError> {
    match http_url(source, "PUBLIC_URL")? {
        Some(url) => Ok(url.trim_end_matches('/').to_owned()),
        None if bind.port() == 0 => Err(invalid("PUBLIC_URL", "is required with port 0 in BIND")),
        None => Ok(format!("http://{bind}")),
    }
}

/// The default sender uses the host of `PUBLIC_URL`. If that is an IP address, it uses `localhost`: such a server is
/// not expected to send mail beyond its machine.
fn default_sender(public_url: &str) -> String {
    let uri: Option<Uri> = public_url.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let is_ip_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    let domain = if is_ip_address || host.is_empty() {
        "localhost"
    } else {
        host
    };
    format!("Recado <no-reply@{domain}>")
}

/// Checks the scheme only. Opening the store checks the rest.
fn media_store_url_from(source: Source<'_>) -> Result<Option<String>, ConfigError> {
    match source("MEDIA_STORE_URL").map(|url| url.trim().to_owned()) {
        Some(url) if url.starts_with("file:///") || url.starts_with("s3://") => Ok(Some(url)),
        Some(_) => Err(invalid("MEDIA_STORE_URL", "must begin with file:/// or s3://")),
        None => Ok(None),
    }
}

fn session_verification(source: Source<'_>) -> Result<SessionVerification, ConfigError> {
    let jwks_url = http_url(source, "SESSION_JWKS_URL")?;
    match (source("SESSION_JWT_SECRET"), jwks_url) {
        (Some(secret), None) if secret.len() < MIN_SESSION_SECRET_BYTES => Err(invalid(
            "SESSION_JWT_SECRET",
            format!("must have at least {MIN_SESSION_SECRET_BYTES} bytes"),
        )),
        (Some(secret), None) => Ok(SessionVerification::Secret(SecretString::from(secret))),
        (None, Some(url)) => Ok(SessionVerification::Jwks(url)),
        (None, None) => Err(invalid(
            "SESSION_JWT_SECRET",
            "or SESSION_JWKS_URL is required; set one of them",
        )),
        (Some(_), Some(_)) => Err(invalid(
            "SESSION_JWT_SECRET",
            "and SESSION_JWKS_URL are both set; set only one of them",
        )),
    }
}

fn egress_allow(source: Source<'_>) -> Result<AllowList, ConfigError> {
    Ok(networks(source, "EGRESS_ALLOW_CIDRS")?.into())
}

fn message_delay(source: Source<'_>) -> Result<Duration, ConfigError> {
    let name = "CAMPAIGN_MESSAGE_DELAY_MS";
    let is_valid = |ms: &i64| (0..=60_000).contains(ms);
    Ok(Duration::milliseconds(parsed(
        source,
        name,
        200,
        is_valid,
        "0 to 60000",
    )?))
}

fn retry_schedule(source: Source<'_>) -> Result<Schedule, ConfigError> {
    let name = "WEBHOOK_RETRY_SCHEDULE";
    let Some(text) = source(name) else {
        return Ok(Schedule::default());
    };
    let delays: Option<Vec<Duration>> = text.split(',').map(parse_duration).collect();
    let delays = delays.filter(|delays| delays.len() <= MAX_RETRY_DELAYS);
    delays
        .map(Schedule)
        .ok_or_else(|| invalid(name, "must be at most 50 durations, separated by commas, like 5s,5m,2h"))
}

#[cfg(test)]
mod tests;
