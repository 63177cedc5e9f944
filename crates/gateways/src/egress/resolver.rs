//! Resolves host names to addresses.

use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Semaphore;

/// Concurrent lookups. A lookup occupies a thread until the system returns, even after its caller timed out. The limit
/// stops names whose servers never respond from occupying every blocking thread.
const MAX_LOOKUPS: usize = 128;

/// Resolves names. The caller MUST check the returned addresses.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Returns all addresses of a name, in the order in which to try them.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The operating system's resolver, including its hosts file.
pub struct SystemResolver {
    permits: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_LOOKUPS)),
        }
    }
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let name = name.to_owned();
        let lookup = tokio::task::spawn_blocking(move || {
            // The thread holds the permit, since the caller may time out.
            let _permit = permit;
            Ok((name.as_str(), 0).to_socket_addrs()?.map(|found| found.ip()).collect())
        });
        lookup.await.map_err(io::Error::other)?
    }
}
