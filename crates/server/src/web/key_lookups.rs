//! Look-ups of API keys that were never seen, in batches: one statement answers everybody who waits, so that a request
//! with a valid key waits for two statements at most, however many random keys are presented beside it.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use recado_domain::api_keys::{ApiKeyDirectory, KeyGrant};
use recado_domain::shared::StoreError;
use tokio::sync::oneshot;

use crate::logging::chain;

/// How many keys one statement looks up.
const BATCH: usize = 500;

/// How many requests may wait; beyond it they are refused.
const WAITING: usize = 10_000;

/// Why a request was refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("too many unknown API keys are being looked up")]
    Full,
    #[error("the look-up of unknown API keys failed: {0}")]
    Failed(String),
    #[error("the look-up of unknown API keys was given up")]
    GivenUp,
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> Self {
        Self::Unavailable(refusal.into())
    }
}

type Answer = oneshot::Sender<Result<Option<KeyGrant>, Refusal>>;

/// Requests that wait for a batch.
#[derive(Default)]
struct Queue {
    waiting: Vec<(Vec<u8>, Answer)>,
    /// Whether a task works on the batches. There is none while nobody waits.
    is_running: bool,
}

/// Looks keys up in batches, one at a time.
#[derive(Clone)]
pub struct KeyLookups {
    directory: Arc<dyn ApiKeyDirectory>,
    queue: Arc<Mutex<Queue>>,
}

impl KeyLookups {
    pub fn new(directory: Arc<dyn ApiKeyDirectory>) -> Self {
        Self {
            directory,
            queue: Arc::default(),
        }
    }

    /// The key with this hash, as a statement says that begins after this call.
    pub async fn find(&self, hash: &[u8]) -> Result<Option<KeyGrant>, StoreError> {
        let (answer, answered) = oneshot::channel();
        {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if queue.waiting.len() >= WAITING {
                return Err(Refusal::Full.into());
            }
            queue.waiting.push((hash.to_owned(), answer));
            if !mem::replace(&mut queue.is_running, true) {
                tokio::spawn(self.clone().run());
            }
        }
        Ok(answered.await.unwrap_or(Err(Refusal::GivenUp))?)
    }

    /// Answers batch after batch until nobody waits. It is a task of its own, so that a caller who hangs up takes no
    /// answer from the others.
    async fn run(self) {
        while let Some(batch) = self.next() {
            let hashes: Vec<&[u8]> = batch.iter().map(|(hash, _)| hash.as_slice()).collect();
            let found = self.directory.find_many(&hashes).await;
            let grants = found.map(HashMap::<Vec<u8>, KeyGrant>::from_iter);
            for (hash, answer) in batch {
                let result = match &grants {
                    Ok(grants) => Ok(grants.get(&hash).cloned()),
                    Err(error) => Err(Refusal::Failed(chain(error))),
                };
                // Whoever hung up needs no answer.
                answer.send(result).ok();
            }
        }
    }

    /// The next batch, oldest first; none ends the task.
    fn next(&self) -> Option<Vec<(Vec<u8>, Answer)>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waiting.retain(|(_, answer)| !answer.is_closed());
        queue.is_running = !queue.waiting.is_empty();
        let size = queue.waiting.len().min(BATCH);
        queue.is_running.then(|| queue.waiting.drain(..size).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use futures_util::future::join_all;
    use recado_domain::accounts::AccountStatus;
    use recado_domain::shared::{AccountId, ApiKeyId, UserId};
    use uuid::Uuid;

    use super::*;

    const KNOWN: &[u8] = b"known";

    /// Has one key, counts its statements, and may be away.
    #[derive(Default)]
    struct Directory {
        statements: AtomicUsize,
        is_away: bool,
    }

    #[async_trait]
    impl ApiKeyDirectory for Directory {
        async fn find_many(&self, hashes: &[&[u8]]) -> Result<Vec<(Vec<u8>, KeyGrant)>, StoreError> {
            assert!(hashes.len() <= BATCH);
            self.statements.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            if self.is_away {
                return Err(StoreError::Unavailable("away".into()));
            }
            let grant = KeyGrant {
                id: ApiKeyId(Uuid::nil()),
                account_id: AccountId(Uuid::nil()),
                created_by: UserId(Uuid::nil()),
                status: AccountStatus::Active,
                last_used_at: None,
            };
            let is_asked = hashes.contains(&KNOWN);
            Ok(is_asked.then(|| (KNOWN.to_vec(), grant)).into_iter().collect())
        }
    }

    #[tokio::test]
    async fn keys_of_many_requests_are_looked_up_together() {
        let directory = Arc::new(Directory::default());
        let lookups = KeyLookups::new(directory.clone());
        let hashes: Vec<Vec<u8>> = (0..1000_u32).map(|n| n.to_be_bytes().to_vec()).collect();
        let unknown = join_all(hashes.iter().map(|hash| lookups.find(hash)));
        let (unknown, known) = tokio::join!(unknown, lookups.find(KNOWN));
        assert!(unknown.into_iter().all(|found| found.unwrap().is_none()));
        assert!(known.unwrap().is_some());
        assert_eq!(directory.statements.load(Ordering::SeqCst), 3);
        // The task has ended; the next request begins another one.
        assert!(lookups.find(KNOWN).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn failure_is_told_to_everybody_and_forgotten() {
        let away = Directory {
            is_away: true,
            ..Directory::default()
        };
        let lookups = KeyLookups::new(Arc::new(away));
        for found in join_all((0..3).map(|_| lookups.find(KNOWN))).await {
            assert!(matches!(found, Err(StoreError::Unavailable(_))), "{found:?}");
        }
        assert!(lookups.find(KNOWN).await.is_err());
    }

    #[tokio::test]
    async fn too_many_are_refused() {
        let lookups = KeyLookups::new(Arc::new(Directory::default()));
        let found = join_all((0..=WAITING).map(|_| lookups.find(KNOWN))).await;
        let refused = found.iter().filter(|found| found.is_err());
        assert_eq!(refused.count(), 1);
    }
}
