//! The connection that all hits share. After a failure a background task replaces it, so that no hit waits for a dead
//! Redis.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisResult};

use crate::hit;

/// Limit of one connection attempt. The attempt continues in the background when a hit has timed out.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Wait after a failure, and between two attempts to reconnect.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

pub(crate) struct SharedConnection {
    client: Client,
    state: Mutex<State>,
}

/// `generation` counts the connections: of the hits that fail together on one connection, only the first replaces it.
enum State {
    /// Before the first hit.
    Unused,
    Up {
        connection: ConnectionManager,
        generation: u64,
    },
    /// A background task is reconnecting.
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

    /// Returns the connection and its generation; `None` while a task is reconnecting. The first call connects.
    pub(crate) fn connection(&self) -> RedisResult<Option<(ConnectionManager, u64)>> {
        let mut state = self.state();
        match &*state {
            State::Up { connection, generation } => Ok(Some((connection.clone(), *generation))),
            State::Down => Ok(None),
            State::Unused => {
                let connection = self.connect()?;
                *state = State::Up {
                    connection: connection.clone(),
                    generation: 0,
                };
                let mut warming = connection.clone();
                // Connects in a separate task: hits that time out must not cancel the connection attempt.
                tokio::spawn(async move {
                    if let Err(error) = hit::load(&mut warming).await {
                        tracing::debug!(%error, "Redis is unreachable");
                    }
                });
                Ok(Some((connection, 0)))
            }
        }
    }

    /// Creates a lazy connection, which connects at its first command.
    pub(crate) fn connect(&self) -> RedisResult<ConnectionManager> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(CONNECT_TIMEOUT))
            .set_number_of_retries(0);
        ConnectionManager::new_lazy_with_config(self.client.clone(), config)
    }

    /// Discards the connection of this generation and starts reconnecting. Does nothing if another hit did so before.
    pub(crate) fn mark_failed(self: &Arc<Self>, generation: u64, timeout: Duration) {
        let mut state = self.state();
        if matches!(*state, State::Up { generation: current, .. } if current == generation) {
            *state = State::Down;
            tokio::spawn(reconnect(Arc::downgrade(self), generation + 1, timeout));
        }
    }

    /// Opens a connection and probes it with the command and timeout of a hit. `None` if the probe gets no response.
    async fn open_probed(&self, timeout: Duration) -> Option<ConnectionManager> {
        let mut connection = self.connect().ok()?;
        match hit::load(&mut connection).await {
            // A refusal is a response, too: the connection works.
            Err(error) if !hit::is_refusal(&error) => return None,
            _ => {}
        }
        match hit::run_within(timeout, hit::probe(&mut connection)).await? {
            Err(error) if !hit::is_refusal(&error) => None,
            _ => Some(connection),
        }
    }
}

/// Retries until a connection works or the limiter is dropped.
async fn reconnect(shared: Weak<SharedConnection>, generation: u64, timeout: Duration) {
    loop {
        tokio::time::sleep(RECONNECT_DELAY).await;
        let Some(shared) = shared.upgrade() else { return };
        if let Some(connection) = shared.open_probed(timeout).await {
            *shared.state() = State::Up { connection, generation };
            tracing::info!("Redis responds again, requests are counted again");
            return;
        }
    }
}
