//! SSRF protection: an HTTP client for URLs that tenants choose. It checks every address by the rules of
//! `recado_domain::egress` before it connects.
//!
//! Resolving, checking and connecting are one step: the client connects to the address that it checked and resolves
//! each name once, so DNS rebinding has no effect. One forbidden address among several refuses the name. The
//! certificate must match the URL's host. The client follows no redirect, and ignores proxies and environment
//! variables. A pooled connection serves only its own scheme, host and port.

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
use hyper_util::rt::TokioTimer;
use recado_domain::egress::{AllowList, Target, TargetRefusal};
use rustls::RootCertStore;
use thiserror::Error;

use self::connector::{ConnectError, Connector};
pub use self::resolver::{Resolver, SystemResolver};
use crate::http::{causes, connected_within, error_chain};
use crate::runtime::{BoundConnector, ConnectionRuntime};
use crate::tls;

/// Default time limit of resolving, connecting and the TLS handshake together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the pool holds an idle connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

const MAX_IDLE_PER_HOST: usize = 32;

/// Largest head of a response, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Why a call has no response. The texts never contain more of a URL than its host.
#[derive(Debug, Error)]
pub enum EgressError {
    /// The rules forbid the URL or an address of its host.
    #[error("refused: {0}")]
    Refused(TargetRefusal),
    #[error("no address: {0}")]
    Resolution(String),
    /// No address of the host accepted a connection.
    #[error("no connection: {0}")]
    Connection(String),
    /// The TLS handshake failed, or the certificate is not the host's.
    #[error("no encrypted connection: {0}")]
    Tls(String),
    #[error("no connection in time")]
    TimedOut,
    /// The response is malformed or cut off.
    #[error("no usable response: {0}")]
    Broken(String),
}

/// A call to a URL of a tenant.
pub struct EgressRequest {
    pub method: Method,
    pub target: Target,
    /// The headers without `Host` and `Content-Length`.
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// HTTP client with SSRF protection. Clones share one connection pool, also on other runtimes.
#[derive(Clone)]
pub struct Egress {
    client: Client<BoundConnector<HttpsConnector<Connector>>, Full<Bytes>>,
    allow: AllowList,
    connect_timeout: Duration,
}

pub struct EgressConfig {
    /// The private networks that calls may reach.
    pub allow: AllowList,
    pub resolver: Arc<dyn Resolver>,
    /// The trusted certificate authorities.
    pub authorities: Arc<RootCertStore>,
    /// Time limit of resolving, connecting and the TLS handshake together.
    pub connect_timeout: Duration,
}

impl EgressConfig {
    /// Uses the system's resolver and the authorities of the process.
    pub fn new(allow: AllowList) -> Self {
        Self {
            allow,
            resolver: Arc::new(SystemResolver::default()),
            authorities: tls::authorities().roots(),
            connect_timeout: CONNECT_TIMEOUT,
        }
    }
}

impl Egress {
    /// A client with its own connection pool. Its connections live on the current runtime. Fails without one, or if
    /// TLS cannot be set up.
    pub fn new(config: EgressConfig) -> Result<Self, String> {
        let connector = Connector::new(config.allow.clone(), config.resolver, config.connect_timeout);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::client_config(config.authorities)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let runtime = ConnectionRuntime::current().map_err(|error| error.to_string())?;
        let mut client = Client::builder(runtime.clone());
        client
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .http1_max_buf_size(MAX_HEAD_BYTES);
        Ok(Self {
            client: client.build(runtime.connect(connector)),
            allow: config.allow,
            connect_timeout: config.connect_timeout,
        })
    }

    /// The private networks that calls may reach.
    pub fn allow_list(&self) -> &AllowList {
        &self.allow
    }

    /// Makes one call and returns the head of the response with the unread body. The caller MUST limit the wait.
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
