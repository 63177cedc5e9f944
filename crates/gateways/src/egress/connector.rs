//! Resolves a name, checks its addresses and connects, in one step.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::rt::TokioIo;
use recado_domain::egress::{AllowList, Target, TargetRefusal};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use super::Resolver;

/// Addresses of a name that are tried. All of its addresses are checked.
const MAX_TRIED_ADDRESSES: usize = 4;

#[derive(Debug, Error)]
pub(super) enum ConnectError {
    #[error("refused: {0}")]
    Refused(TargetRefusal),
    #[error("no address: {0}")]
    Resolution(String),
    #[error("no connection: {0}")]
    Connection(String),
    #[error("no connection in time")]
    TimedOut,
}

/// Opens the connections of the pool.
#[derive(Clone)]
pub(super) struct Connector(Arc<ConnectorInner>);

struct ConnectorInner {
    allow: AllowList,
    resolver: Arc<dyn Resolver>,
    timeout: Duration,
}

impl Connector {
    pub(super) fn new(allow: AllowList, resolver: Arc<dyn Resolver>, timeout: Duration) -> Self {
        Self(Arc::new(ConnectorInner {
            allow,
            resolver,
            timeout,
        }))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, origin: Uri) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.connect(&origin.to_string()).await.map(TokioIo::new) })
    }
}

impl ConnectorInner {
    /// Enforces the timeout here too, since the pool continues to connect after the request was dropped. Leaves a fifth
    /// of the time for the TLS handshake.
    async fn connect(&self, origin: &str) -> Result<TcpStream, ConnectError> {
        let deadline = Instant::now() + self.timeout * 4 / 5;
        // Checks the URL again: every connection passes through here, whatever the caller checked before.
        let target = Target::parse(origin, &self.allow).map_err(ConnectError::Refused)?;
        let addresses = self.resolve(&target, deadline).await?;
        for address in &addresses {
            target.may_be_at(*address, &self.allow).map_err(ConnectError::Refused)?;
        }
        connect_any(&addresses, target.port(), deadline).await
    }

    async fn resolve(&self, target: &Target, deadline: Instant) -> Result<Vec<IpAddr>, ConnectError> {
        if let Some(address) = target.address() {
            return Ok(vec![address]);
        }
        let found = timeout_at(deadline, self.resolver.resolve(target.host())).await;
        match found.map_err(|_| ConnectError::Resolution("the resolver did not respond in time".into()))? {
            Ok(found) if found.is_empty() => Err(ConnectError::Resolution("the name has no address".into())),
            Ok(found) => Ok(found),
            Err(error) => Err(ConnectError::Resolution(error.to_string())),
        }
    }
}

/// Tries one address after the other, each for an equal share of the remaining time.
async fn connect_any(addresses: &[IpAddr], port: u16, deadline: Instant) -> Result<TcpStream, ConnectError> {
    let mut remaining = u32::try_from(addresses.len().min(MAX_TRIED_ADDRESSES)).unwrap_or(1);
    let mut last_error = ConnectError::TimedOut;
    for address in addresses.iter().take(MAX_TRIED_ADDRESSES) {
        let share = deadline.saturating_duration_since(Instant::now()) / remaining.max(1);
        remaining = remaining.saturating_sub(1);
        match tokio::time::timeout(share, TcpStream::connect(SocketAddr::new(*address, port))).await {
            Ok(Ok(stream)) => {
                // Sends small requests at once. A failure only delays them.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => last_error = ConnectError::Connection(error.to_string()),
            Err(_) => last_error = ConnectError::TimedOut,
        }
    }
    Err(last_error)
}
