//! The connection that all hits share: up until it fails, then replaced aside, so that nobody waits for a dead Redis.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisResult};

use crate::rate_limiter;

/// How long connecting may take; it goes on in the background when a hit has given up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long nobody asks after a failure, and between two attempts to get a new connection.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct SharedConnection {
    client: Client,
    state: Mutex<State>,
}

/// The number tells the connections apart: of the hits that fail together on one, the first replaces it.
enum State {
    /// Nobody has counted yet.
    Unused,
    Up {
        connection: ConnectionManager,
        number: u64,
    },
    /// A task of its own gets the next one.
    Down,
}

impl SharedConnection {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            state: Mutex::new(State::Unused),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, on its way at the first call, and its number; none while it is being replaced.
    pub(crate) fn connection(&self) -> RedisResult<Option<(ConnectionManager, u64)>> {
        let mut state = self.state();
        match &*state {
            State::Up { connection, number } => Ok(Some((connection.clone(), *number))),
            State::Down => Ok(None),
            State::Unused => {
                let connection = self.connect()?;
                *state = State::Up {
                    connection: connection.clone(),
                    number: 0,
                };
                let mut warming = connection.clone();
                // A task of its own, so that the hits that give up on the connection do not keep it from coming about.
                tokio::spawn(async move {
                    if let Err(error) = rate_limiter::load(&mut warming).await {
                        tracing::debug!(%error, "Redis cannot be reached");
                    }
                });
                Ok(Some((connection, 0)))
            }
        }
    }

    /// Connects when it is first used.
    fn connect(&self) -> RedisResult<ConnectionManager> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(CONNECT_TIMEOUT))
            .set_number_of_retries(0);
        ConnectionManager::new_lazy_with_config(self.client.clone(), config)
    }

    /// The connection of this number failed: nobody uses it any more, and whatever state it was in is gone with it.
    pub(crate) fn failed(self: &Arc<Self>, number: u64, timeout: Duration) {
        let mut state = self.state();
        if matches!(*state, State::Up { number: used, .. } if used == number) {
            *state = State::Down;
            tokio::spawn(replace(Arc::downgrade(self), number + 1, timeout));
        }
    }

    /// A new connection that answers what a hit asks, in the time that a hit has.
    async fn revived(&self, timeout: Duration) -> Option<ConnectionManager> {
        let mut connection = self.connect().ok()?;
        match rate_limiter::load(&mut connection).await {
            // Whoever refuses answers, too.
            Err(error) if !rate_limiter::is_refusal(&error) => return None,
            _ => {}
        }
        match rate_limiter::in_time(timeout, rate_limiter::probe(&mut connection)).await? {
            Err(error) if !rate_limiter::is_refusal(&error) => None,
            _ => Some(connection),
        }
    }
}

/// Tries until there is a good connection, or nobody left who wants one.
async fn replace(shared: Weak<SharedConnection>, number: u64, timeout: Duration) {
    loop {
        tokio::time::sleep(PAUSE).await;
        let Some(shared) = shared.upgrade() else { return };
        if let Some(connection) = shared.revived(timeout).await {
            *shared.state() = State::Up { connection, number };
            tracing::info!("Redis answers, requests are counted again");
            return;
        }
    }
}
