//! Who knows the addresses of names.

use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Semaphore;

/// How many names are looked up at once. Each look-up holds a thread as long as the system takes, even when nobody
/// waits for it any more; the bound keeps names that never answer from taking every thread there is.
const LOOKUPS: usize = 128;

/// Resolves names. What it answers is judged by whoever asks.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// All addresses of a name, in the order in which they should be tried.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's own way, with its hosts file, its servers and its order.
pub struct SystemResolver {
    places: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(LOOKUPS)),
        }
    }
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let name = name.to_owned();
        let lookup = tokio::task::spawn_blocking(move || {
            // Held by the thread, not by the caller.
            let _place = place;
            Ok((name.as_str(), 0).to_socket_addrs()?.map(|found| found.ip()).collect())
        });
        lookup.await.map_err(io::Error::other)?
    }
}
