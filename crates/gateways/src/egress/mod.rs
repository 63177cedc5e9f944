//! The way out to addresses that tenants choose: every connection goes to an address that was judged a moment before, by
//! the rules of `recado_domain::egress`.
//!
//! Resolving, judging and connecting are one step: the address that is connected to is the one that was judged, and no
//! name is asked for twice (so that an answer that changes leads nowhere). One closed address among several refuses the
//! name. The certificate has to be of the URL's host. No redirect is followed, no proxy and no variable of the
//! environment is heeded. A kept connection serves its own scheme, host and port alone.

mod connector;
mod resolver;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Method, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use recado_domain::egress::{AllowList, Target, TargetRefusal};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;

use self::connector::{ConnectError, Connector};
pub use self::resolver::{Resolver, SystemResolver};
use crate::http::{causes, connected_within, error_chain};

/// How long resolving, connecting and the TLS handshake may take together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the pool holds an idle connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

const MAX_IDLE_PER_HOST: usize = 32;

/// Largest head of a response, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Why a call has no response. The texts never contain more of a URL than its host.
#[derive(Debug, Error)]
pub enum EgressError {
    /// The URL, or an address of its host, may not be called.
    #[error("refused: {0}")]
    Refused(TargetRefusal),
    /// The host has no address.
    #[error("no address: {0}")]
    Resolution(String),
    /// None of its addresses could be connected to.
    #[error("no connection: {0}")]
    Connection(String),
    /// No encrypted connection, or the certificate is of somebody else.
    #[error("no encrypted connection: {0}")]
    Tls(String),
    /// It took too long.
    #[error("no connection in time")]
    TimedOut,
    /// The response is malformed or cut off.
    #[error("no usable response: {0}")]
    Broken(String),
}

/// A call to an address of a tenant's.
pub struct EgressRequest {
    /// The method.
    pub method: Method,
    /// Where to.
    pub target: Target,
    /// The headers, but for `Host` and `Content-Length`.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// The guarded client. Clones share one pool of connections.
#[derive(Clone)]
pub struct Egress {
    client: Client<HttpsConnector<Connector>, Full<Bytes>>,
    allow: AllowList,
    connect_timeout: Duration,
}

/// What a client is made of.
pub struct EgressConfig {
    /// The private networks that may be reached.
    pub allow: AllowList,
    /// Who knows the addresses of names.
    pub resolver: Arc<dyn Resolver>,
    /// Whose certificates are believed.
    pub authorities: RootCertStore,
    /// How long resolving, connecting and the TLS handshake may take together.
    pub connect_timeout: Duration,
}

impl EgressConfig {
    /// The system's resolver and the public authorities.
    pub fn new(allow: AllowList) -> Self {
        Self {
            allow,
            resolver: Arc::new(SystemResolver::default()),
            authorities: RootCertStore {
                roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
            },
            connect_timeout: CONNECT_TIMEOUT,
        }
    }
}

impl Egress {
    /// A client with a pool of its own. Fails when TLS cannot be set up.
    pub fn new(config: EgressConfig) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be set up: {error}"))?
            .with_root_certificates(config.authorities)
            .with_no_client_auth();
        let connector = Connector::new(config.allow.clone(), config.resolver, config.connect_timeout);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let mut client = Client::builder(TokioExecutor::new());
        client
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .http1_max_buf_size(MAX_HEAD_BYTES);
        Ok(Self {
            client: client.build(connector),
            allow: config.allow,
            connect_timeout: config.connect_timeout,
        })
    }

    /// The networks that may be reached beside the public one.
    pub fn allow_list(&self) -> &AllowList {
        &self.allow
    }

    /// Makes one call and returns the head of its answer, with the body still to be read. Waiting for the head is
    /// bounded by the caller.
    pub async fn call(&self, call: EgressRequest) -> Result<Response<Incoming>, EgressError> {
        let host = call.target.host().to_owned();
        let result = self.exchange(call).await;
        if let Err(EgressError::Refused(refusal)) = &result {
            tracing::warn!(host, %refusal, "the egress rules refused a tenant's URL");
        }
        result
    }

    async fn exchange(&self, call: EgressRequest) -> Result<Response<Incoming>, EgressError> {
        let uri = call.target.as_str().parse::<Uri>();
        let mut message = hyper::Request::new(Full::new(call.body));
        *message.method_mut() = call.method;
        *message.uri_mut() = uri.map_err(|_| EgressError::Refused(TargetRefusal::Malformed))?;
        *message.headers_mut() = call.headers;
        let connection = capture_connection(&mut message);
        let response = connected_within(self.connect_timeout, connection, self.client.request(message)).await;
        response
            .ok_or(EgressError::TimedOut)?
            .map_err(|error| egress_error(&error))
    }
}

fn egress_error(error: &legacy::Error) -> EgressError {
    if !error.is_connect() {
        return EgressError::Broken(error_chain(error));
    }
    match causes(error).find_map(<dyn Error>::downcast_ref::<ConnectError>) {
        Some(ConnectError::Refused(refusal)) => EgressError::Refused(*refusal),
        Some(ConnectError::Resolution(detail)) => EgressError::Resolution(detail.clone()),
        Some(ConnectError::Connection(detail)) => EgressError::Connection(detail.clone()),
        Some(ConnectError::TimedOut) => EgressError::TimedOut,
        // Any other error before a connection is one of the TLS handshake.
        None => EgressError::Tls(error_chain(error)),
    }
}
