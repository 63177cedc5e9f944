//! Locks by which a server uploads a file to WhatsApp once, also if several messages with it leave at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::lock::{Mutex as AsyncMutex, OwnedMutexGuard};

/// One lock for each upload that runs.
#[derive(Clone, Debug, Default)]
pub(super) struct UploadLocks(Arc<Mutex<HashMap<String, Weak<AsyncMutex<()>>>>>);

/// The lock of an upload, until it is dropped.
pub(super) struct UploadLock {
    _guard: OwnedMutexGuard<()>,
    /// Whether another upload of the key ran meanwhile.
    pub(super) has_waited: bool,
}

impl UploadLocks {
    /// Waits until no other upload of the key runs.
    pub(super) async fn lock(&self, key: String) -> UploadLock {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| lock.strong_count() > 0);
            let running = locks.get(&key).and_then(Weak::upgrade);
            running.unwrap_or_else(|| {
                let lock = Arc::default();
                locks.insert(key, Arc::downgrade(&lock));
                lock
            })
        };
        match lock.clone().try_lock_owned() {
            Some(guard) => UploadLock {
                _guard: guard,
                has_waited: false,
            },
            None => UploadLock {
                _guard: lock.lock_owned().await,
                has_waited: true,
            },
        }
    }
}
