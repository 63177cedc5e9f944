//! Batched look-ups of API keys that this process has no recent valid answer for. One statement answers all requests
//! that wait, so that a request waits for two statements at most: the one in flight and its own. A flood of random keys
//! makes a statement longer, and never the queue.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use recado_domain::api_keys::{ApiKeyDirectory, KeyGrant};
use recado_domain::shared::StoreError;
use tokio::sync::oneshot;

use crate::error_chain::chain;

/// How many requests may wait, and how many keys one statement looks up; further requests are refused.
const MAX_BATCH: usize = 10_000;

/// Why a look-up has no result.
#[derive(Debug, thiserror::Error)]
enum LookupError {
    #[error("too many unknown API keys are being looked up")]
    QueueFull,
    #[error("the look-up of unknown API keys failed: {0}")]
    Failed(String),
    #[error("the look-up of unknown API keys ended early")]
    TaskEnded,
}

impl From<LookupError> for StoreError {
    fn from(error: LookupError) -> Self {
        Self::Unavailable(error.into())
    }
}

type Lookup = (Vec<u8>, oneshot::Sender<Result<Option<KeyGrant>, LookupError>>);

/// Requests that wait for the next statement.
#[derive(Default)]
struct Queue {
    waiting: Vec<Lookup>,
    /// Whether a task works on the queue. There is none while no request waits.
    is_running: bool,
}

/// Looks keys up with one statement at a time.
#[derive(Clone)]
pub struct KeyLookups {
    directory: Arc<dyn ApiKeyDirectory>,
    queue: Arc<Mutex<Queue>>,
}

/// Ends the lookups of a task that ends early (a panic, the end of its runtime): the requests that wait get an error,
/// and the next one starts another task.
struct EarlyEnd(Option<Arc<Mutex<Queue>>>);

impl Drop for EarlyEnd {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            *queue.lock().unwrap_or_else(PoisonError::into_inner) = Queue::default();
        }
    }
}

impl KeyLookups {
    pub fn new(directory: Arc<dyn ApiKeyDirectory>) -> Self {
        Self {
            directory,
            queue: Arc::default(),
        }
    }

    /// Looks up the hash by a statement that starts after this call, so that it finds every key that was committed
    /// before.
    pub async fn find(&self, hash: &[u8]) -> Result<Option<KeyGrant>, StoreError> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if queue.waiting.len() >= MAX_BATCH {
                // Requests whose clients hung up count for nothing.
                queue.waiting.retain(|(_, sender)| !sender.is_closed());
            }
            if queue.waiting.len() >= MAX_BATCH {
                return Err(LookupError::QueueFull.into());
            }
            queue.waiting.push((hash.to_owned(), sender));
            if !mem::replace(&mut queue.is_running, true) {
                tokio::spawn(self.clone().run());
            }
        }
        Ok(receiver.await.unwrap_or(Err(LookupError::TaskEnded))?)
    }

    /// Runs statement after statement until no request waits. A task of its own, because a client that hangs up ends
    /// the future of its request.
    async fn run(self) {
        let mut early_end = EarlyEnd(Some(self.queue.clone()));
        while let Some(batch) = self.next() {
            let hashes: Vec<&[u8]> = batch.iter().map(|(hash, _)| hash.as_slice()).collect();
            let found = self.directory.find_many(&hashes).await;
            let grants = found.map(HashMap::<Vec<u8>, KeyGrant>::from_iter);
            for (hash, sender) in batch {
                let result = match &grants {
                    Ok(grants) => Ok(grants.get(&hash).cloned()),
                    Err(error) => Err(LookupError::Failed(chain(error))),
                };
                // It fails where the client hung up.
                sender.send(result).ok();
            }
        }
        early_end.0 = None;
    }

    /// Takes all requests that wait. `None`: there are none, and the task ends.
    fn next(&self) -> Option<Vec<Lookup>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waiting.retain(|(_, sender)| !sender.is_closed());
        queue.is_running = !queue.waiting.is_empty();
        queue.is_running.then(|| mem::take(&mut queue.waiting))
    }
}

/// The grant of a key without limits.
#[cfg(test)]
pub(super) fn grant_for_tests(
    id: recado_domain::shared::ApiKeyId,
    account_id: recado_domain::shared::AccountId,
) -> KeyGrant {
    let terms = recado_domain::api_keys::KeyTerms {
        name: "k".into(),
        key_hint: "abcd".into(),
        scopes: Arc::default(),
        allowed_cidrs: vec![],
    };
    KeyGrant {
        id,
        account_id,
        created_by: uuid::Uuid::nil().into(),
        status: recado_domain::accounts::AccountStatus::Active,
        last_used_at: None,
        expires_at: None,
        secret_valid_until: None,
        terms: Arc::new(terms),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use futures_util::future::join_all;
    use recado_domain::shared::{AccountId, ApiKeyId};
    use uuid::Uuid;

    use super::*;

    const KNOWN: &[u8] = b"known";

    /// A directory with one key. It counts statements and injects failures and panics.
    #[derive(Default)]
    struct Directory {
        statements: AtomicUsize,
        failures: AtomicUsize,
        panics: AtomicUsize,
    }

    /// Decrements the counter. True until it is zero.
    fn is_due(count: &AtomicUsize) -> bool {
        count
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok()
    }

    #[async_trait]
    impl ApiKeyDirectory for Directory {
        async fn find_many(&self, hashes: &[&[u8]]) -> Result<Vec<(Vec<u8>, KeyGrant)>, StoreError> {
            assert!(hashes.len() <= MAX_BATCH);
            self.statements.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            assert!(!is_due(&self.panics), "injected panic");
            if is_due(&self.failures) {
                return Err(StoreError::Unavailable("away".into()));
            }
            let grant = grant_for_tests(ApiKeyId(Uuid::nil()), AccountId(Uuid::nil()));
            let is_requested = hashes.contains(&KNOWN);
            Ok(is_requested.then(|| (KNOWN.to_vec(), grant)).into_iter().collect())
        }
    }

    fn with(directory: Directory) -> (KeyLookups, Arc<Directory>) {
        let directory = Arc::new(directory);
        (KeyLookups::new(directory.clone()), directory)
    }

    #[tokio::test]
    async fn requests_that_wait_share_one_statement() {
        let (lookups, directory) = with(Directory::default());
        let hashes: Vec<Vec<u8>> = (0..1000_u32).map(|n| n.to_be_bytes().to_vec()).collect();
        let unknown = join_all(hashes.iter().map(|hash| lookups.find(hash)));
        let (unknown, known) = tokio::join!(unknown, lookups.find(KNOWN));
        assert!(unknown.into_iter().all(|found| found.unwrap().is_none()));
        assert!(known.unwrap().is_some());
        assert_eq!(directory.statements.load(Ordering::SeqCst), 1);
        // The task has ended; the next request starts another one.
        assert!(lookups.find(KNOWN).await.unwrap().is_some());
        assert_eq!(directory.statements.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn failed_statement_fails_its_requests_only() {
        let (lookups, _) = with(Directory {
            failures: 1.into(),
            ..Directory::default()
        });
        for found in join_all((0..3).map(|_| lookups.find(KNOWN))).await {
            assert!(matches!(found, Err(StoreError::Unavailable(_))), "{found:?}");
        }
        assert!(lookups.find(KNOWN).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn panic_fails_its_requests_only() {
        let (lookups, _) = with(Directory {
            panics: 1.into(),
            ..Directory::default()
        });
        for found in join_all((0..3).map(|_| lookups.find(KNOWN))).await {
            assert!(matches!(found, Err(StoreError::Unavailable(_))), "{found:?}");
        }
        assert!(lookups.find(KNOWN).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn full_queue_refuses_and_counts_no_client_that_hung_up() {
        let (lookups, _) = with(Directory::default());
        let found = join_all((0..=MAX_BATCH).map(|_| lookups.find(KNOWN))).await;
        assert_eq!(found.iter().filter(|found| found.is_err()).count(), 1);
        let mut gone: Vec<_> = (0..MAX_BATCH).map(|_| Box::pin(lookups.find(KNOWN))).collect();
        for request in &mut gone {
            assert!(futures_util::poll!(request).is_pending());
        }
        drop(gone);
        assert!(lookups.find(KNOWN).await.unwrap().is_some());
    }
}
