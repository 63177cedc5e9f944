//! Notification streams. While streams are open, one task of the process polls the database for new notifications and
//! broadcasts them to all streams. A stream itself holds no database connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use recado_domain::notifications::{NotificationFeed, SequencedNotification};
use recado_domain::shared::StoreError;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};
use tokio_util::sync::CancellationToken;

use crate::error::ApiError;
use crate::telemetry::WorkerMetrics;

/// The maximum number of open streams of a process.
const MAX_STREAMS: usize = 1000;

/// The interval of the polls for new notifications, and the maximum number of notifications of one poll.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const BATCH: i64 = 500;

/// How many notifications a slow stream may lag behind. Beyond that it is closed, and its client reconnects with the id
/// of the last notification that it received.
const MAX_LAG: usize = 1024;

/// The streams of a process.
#[derive(Clone)]
pub struct Streams(Arc<Inner>);

struct Inner {
    sender: broadcast::Sender<Arc<SequencedNotification>>,
    free: Arc<Semaphore>,
    /// The last sequence number that was published. None while no stream is open.
    seq: Mutex<Option<i64>>,
    wake: Notify,
    stop: CancellationToken,
}

/// An open stream: its permit and its queue of notifications.
pub struct Listener {
    receiver: broadcast::Receiver<Arc<SequencedNotification>>,
    /// Notifications up to this sequence number existed before the stream, or were delivered to it.
    last: i64,
    stop: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

/// A stream cannot be opened.
#[derive(Debug)]
pub enum ListenError {
    /// `MAX_STREAMS` streams are open.
    Full,
    Store(StoreError),
}

impl From<ListenError> for ApiError {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::Full => Self::unavailable("the limit of open notification streams is reached"),
            ListenError::Store(error) => error.into(),
        }
    }
}

/// Lets one stream of the thread at a time check whether its caller still has access.
pub struct StreamChecks(pub Semaphore);

impl Default for StreamChecks {
    fn default() -> Self {
        Self(Semaphore::new(1))
    }
}

impl Streams {
    pub fn new(stop: CancellationToken) -> Self {
        Self(Arc::new(Inner {
            sender: broadcast::Sender::new(MAX_LAG),
            free: Arc::new(Semaphore::new(MAX_STREAMS)),
            seq: Mutex::new(None),
            wake: Notify::new(),
            stop,
        }))
    }

    /// Opens a stream of the notifications that commit from now on. It subscribes before it reads the latest sequence
    /// number, so that it misses no notification that becomes visible in between.
    pub async fn listen(&self, feed: &dyn NotificationFeed) -> Result<Listener, ListenError> {
        let inner = &self.0;
        let permit = inner.free.clone().try_acquire_owned().map_err(|_| ListenError::Full)?;
        let receiver = inner.sender.subscribe();
        let last = feed.latest().await.map_err(ListenError::Store)?;
        self.publish_from(last);
        Ok(Listener {
            receiver,
            last,
            stop: inner.stop.clone(),
            _permit: permit,
        })
    }

    /// The number of open streams.
    pub fn open(&self) -> usize {
        MAX_STREAMS.saturating_sub(self.0.free.available_permits())
    }

    /// Publishes again from `start`, which a new listener needs. Other listeners skip what they already received.
    fn publish_from(&self, start: i64) {
        let mut seq = self.0.seq.lock().unwrap_or_else(PoisonError::into_inner);
        *seq = Some(seq.map_or(start, |seq| seq.min(start)));
        self.0.wake.notify_one();
    }

    /// Polls for new notifications and broadcasts them, until the server stops.
    pub async fn publish(self, feed: impl NotificationFeed) {
        let metrics = WorkerMetrics::of("notification_streams");
        while !self.0.stop.is_cancelled() {
            let Some(seq) = self.seq() else {
                tokio::select! {
                    () = self.0.stop.cancelled() => {}
                    () = self.0.wake.notified() => {}
                }
                continue;
            };
            match feed.after(seq, BATCH).await {
                Ok(notifications) => {
                    self.broadcast(seq, notifications);
                    metrics.worked();
                }
                Err(error) => {
                    metrics.failed();
                    tracing::warn!(cause = ?error, "polling for notifications failed");
                }
            }
            tokio::select! {
                () = self.0.stop.cancelled() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// The sequence number after which the next poll reads. None: no stream is open.
    fn seq(&self) -> Option<i64> {
        let mut seq = self.0.seq.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.sender.receiver_count() == 0 {
            *seq = None;
        }
        *seq
    }

    fn broadcast(&self, from: i64, notifications: Vec<SequencedNotification>) {
        let Some(last) = notifications.last().map(|notification| notification.seq) else {
            return;
        };
        for notification in notifications {
            // An error means only that no stream is open any more.
            self.0.sender.send(Arc::new(notification)).ok();
        }
        let mut seq = self.0.seq.lock().unwrap_or_else(PoisonError::into_inner);
        // A new listener may have set an earlier start meanwhile.
        if *seq == Some(from) {
            *seq = Some(last);
        }
    }
}

impl Listener {
    /// Discards the queued notifications and returns the last sequence number. The caller MUST deliver everything up to
    /// that number by other means. The stream continues after it, even if it lagged behind.
    pub fn skip(&mut self) -> i64 {
        loop {
            match self.receiver.try_recv() {
                Ok(notification) => self.last = self.last.max(notification.seq),
                // The lost notifications precede the queued ones, or are broadcast again.
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return self.last,
            }
        }
    }

    /// Waits for the next notification. None: the server stops, or the stream lags behind by more than `MAX_LAG`.
    pub async fn next(&mut self) -> Option<Arc<SequencedNotification>> {
        loop {
            let notification = tokio::select! {
                () = self.stop.cancelled() => return None,
                received = self.receiver.recv() => received.ok()?,
            };
            if notification.seq > self.last {
                self.last = notification.seq;
                return Some(notification);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use async_trait::async_trait;
    use recado_domain::notifications::Notification;
    use recado_domain::shared::{AccountId, NotificationId};
    use serde_json::json;
    use time::OffsetDateTime;
    use uuid::Uuid;

    use super::*;

    /// A feed with the notifications 1 to `latest`. It counts polls.
    #[derive(Clone, Default)]
    struct FakeFeed {
        latest: Arc<AtomicI64>,
        polls: Arc<AtomicI64>,
    }

    fn numbered(seq: i64) -> SequencedNotification {
        let notification = Notification {
            id: NotificationId(Uuid::nil()),
            kind: "info".into(),
            title: "t".into(),
            message: "m".into(),
            data: json!({}),
            read_at: None,
            created_at: OffsetDateTime::UNIX_EPOCH,
        };
        SequencedNotification {
            seq,
            account_id: AccountId(Uuid::nil()),
            notification,
        }
    }

    #[async_trait]
    impl NotificationFeed for FakeFeed {
        async fn latest(&self) -> Result<i64, StoreError> {
            Ok(self.latest.load(Ordering::SeqCst))
        }

        async fn after(&self, seq: i64, limit: i64) -> Result<Vec<SequencedNotification>, StoreError> {
            self.polls.fetch_add(1, Ordering::SeqCst);
            let last = self.latest.load(Ordering::SeqCst).min(seq + limit);
            Ok((seq + 1..=last).map(numbered).collect())
        }

        async fn seq_of(&self, _: AccountId, _: NotificationId) -> Result<Option<i64>, StoreError> {
            Ok(None)
        }

        async fn between(
            &self,
            _: AccountId,
            _: i64,
            _: i64,
            _: i64,
        ) -> Result<Vec<SequencedNotification>, StoreError> {
            Ok(vec![])
        }
    }

    async fn seqs(listener: &mut Listener, count: usize) -> Vec<i64> {
        let mut seqs = Vec::new();
        for _ in 0..count {
            seqs.push(listener.next().await.unwrap().seq);
        }
        seqs
    }

    #[tokio::test(start_paused = true)]
    async fn listener_receives_each_later_notification_once() {
        let (stop, feed) = (CancellationToken::new(), FakeFeed::default());
        let streams = Streams::new(stop.clone());
        let publisher = tokio::spawn(streams.clone().publish(feed.clone()));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(feed.polls.load(Ordering::SeqCst), 0, "polled without a listener");
        feed.latest.store(5, Ordering::SeqCst);
        let mut first = streams.listen(&feed).await.unwrap();
        assert_eq!(first.skip(), 5);
        feed.latest.store(7, Ordering::SeqCst);
        let mut second = streams.listen(&feed).await.unwrap();
        assert_eq!(seqs(&mut first, 2).await, [6, 7]);
        feed.latest.store(9, Ordering::SeqCst);
        assert_eq!(seqs(&mut second, 2).await, [8, 9]);
        assert_eq!(seqs(&mut first, 2).await, [8, 9]);
        // A third listener that read an older sequence number gets what it missed; the others get nothing twice.
        streams.publish_from(4);
        feed.latest.store(10, Ordering::SeqCst);
        assert_eq!(seqs(&mut first, 1).await, [10]);
        drop((first, second));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let polls = feed.polls.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(feed.polls.load(Ordering::SeqCst), polls);
        stop.cancel();
        publisher.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn streams_are_limited_and_end_with_the_server() {
        let (stop, feed) = (CancellationToken::new(), FakeFeed::default());
        let streams = Streams::new(stop.clone());
        let mut open = Vec::new();
        for _ in 0..MAX_STREAMS {
            open.push(streams.listen(&feed).await.unwrap());
        }
        assert!(matches!(streams.listen(&feed).await, Err(ListenError::Full)));
        open.pop();
        open.push(streams.listen(&feed).await.unwrap());
        // A stream that lags too far behind is closed.
        feed.latest.store(5000, Ordering::SeqCst);
        streams.broadcast(0, (1..=2000).map(numbered).collect());
        assert!(open[0].next().await.is_none());
        // A stream that skips its queue continues with later notifications.
        assert_eq!(open[2].skip(), 2000);
        streams.broadcast(2000, vec![numbered(1999), numbered(2001)]);
        assert_eq!(seqs(&mut open[2], 1).await, [2001]);
        stop.cancel();
        assert!(open[1].next().await.is_none());
    }
}
