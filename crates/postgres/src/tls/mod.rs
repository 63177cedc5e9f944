//! TLS to PostgreSQL: its modes, the parameters of a database URL that concern it, and the check at start.

mod check;
mod mode;
mod url;
mod verifier;

use std::fmt;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres_rustls::MakeRustlsConnect;

pub use check::{TlsRefusal, check_tls};
pub use mode::TlsMode;
pub(crate) use url::parse_url;
pub use url::{UrlTls, url_tls};

/// The protocol name of PostgreSQL in TLS (ALPN), which direct negotiation requires.
const ALPN: &[u8] = b"postgresql";

/// How connections are encrypted. The default fails closed: it connects without TLS to sockets and loopback hosts, and
/// refuses every other host.
#[derive(Clone, Default)]
pub struct DatabaseTls(Policy);

#[derive(Clone, Default)]
enum Policy {
    #[default]
    LoopbackOnly,
    Off,
    On(TlsMode, MakeRustlsConnect),
}

impl DatabaseTls {
    /// Trusts these authorities, which `TlsMode::Require` does not use. Fails if TLS cannot be set up, for example
    /// without any authority.
    pub fn new(mode: TlsMode, authorities: Arc<RootCertStore>) -> Result<Self, String> {
        if mode == TlsMode::Off {
            return Ok(Self(Policy::Off));
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be set up: {error}"))?;
        let mut config = match mode {
            TlsMode::VerifyFull => builder.with_root_certificates(authorities),
            TlsMode::VerifyCa => builder
                .dangerous()
                .with_custom_certificate_verifier(verifier::any_name(authorities, provider)?),
            TlsMode::Off | TlsMode::Require => builder
                .dangerous()
                .with_custom_certificate_verifier(verifier::any_certificate(provider)),
        }
        .with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self(Policy::On(mode, MakeRustlsConnect::new(config))))
    }

    /// The mode. The default is `Off`, with its restriction to loopback hosts.
    pub fn mode(&self) -> TlsMode {
        match &self.0 {
            Policy::LoopbackOnly | Policy::Off => TlsMode::Off,
            Policy::On(mode, _) => *mode,
        }
    }

    /// The TLS connector; `None` without TLS. Fails if this host may not be reached without TLS.
    pub(crate) fn connector(&self, config: &Config) -> Result<Option<MakeRustlsConnect>, PlaintextRefused> {
        match &self.0 {
            Policy::On(_, connector) => Ok(Some(connector.clone())),
            Policy::LoopbackOnly if !url::is_loopback(config) => Err(PlaintextRefused),
            Policy::LoopbackOnly | Policy::Off => Ok(None),
        }
    }
}

impl fmt::Debug for DatabaseTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DatabaseTls").field(&self.mode()).finish()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the host is not a loopback host, and no TLS is configured")]
pub(crate) struct PlaintextRefused;
