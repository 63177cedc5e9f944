//! Streams of notifications. One task of the process looks for new ones, as long as anybody listens, and hands them to
//! every stream; a stream itself holds no connection to the database.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use recado_domain::notifications::{NotificationFeed, Told};
use recado_domain::shared::StoreError;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};
use tokio_util::sync::CancellationToken;

use crate::telemetry::Worker;

/// Streams that one process serves at the same time.
const STREAMS: usize = 1000;

/// How often somebody looks for new notifications, and how many are taken at once.
const LOOK: Duration = Duration::from_millis(200);
const BATCH: i64 = 500;

/// Notifications that a slow stream may be behind; it is ended then, and comes back for what it missed.
const BEHIND: usize = 1024;

/// The streams of a process.
#[derive(Clone)]
pub struct Streams(Arc<Inner>);

struct Inner {
    told: broadcast::Sender<Arc<Told>>,
    free: Arc<Semaphore>,
    /// The last place handed out; none while nobody listens.
    place: Mutex<Option<i64>>,
    wake: Notify,
    stop: CancellationToken,
}

/// A stream's place among them, and what is handed to it.
pub struct Listener {
    told: broadcast::Receiver<Arc<Told>>,
    /// What is not greater was there before, or was told already.
    last: i64,
    stop: CancellationToken,
    _place: OwnedSemaphorePermit,
}

/// Why there is no stream.
#[derive(Debug)]
pub enum NoStream {
    /// Too many are open.
    Full,
    /// The store failed.
    Store(StoreError),
}

impl Streams {
    /// Nobody listens yet.
    pub fn new(stop: CancellationToken) -> Self {
        Self(Arc::new(Inner {
            told: broadcast::Sender::new(BEHIND),
            free: Arc::new(Semaphore::new(STREAMS)),
            place: Mutex::new(None),
            wake: Notify::new(),
            stop,
        }))
    }

    /// Listens from now on. The order matters: whatever the store does not show yet when it is asked is handed out only
    /// after this listener is there.
    pub async fn listen(&self, feed: &dyn NotificationFeed) -> Result<Listener, NoStream> {
        let inner = &self.0;
        let place = inner.free.clone().try_acquire_owned().map_err(|_| NoStream::Full)?;
        let told = inner.told.subscribe();
        let last = feed.latest().await.map_err(NoStream::Store)?;
        self.begin_at(last);
        Ok(Listener {
            told,
            last,
            stop: inner.stop.clone(),
            _place: place,
        })
    }

    /// How many are open.
    pub fn open(&self) -> usize {
        STREAMS.saturating_sub(self.0.free.available_permits())
    }

    /// Nothing after this place was handed to a new listener yet. Whoever listens already skips what they know.
    fn begin_at(&self, wanted: i64) {
        let mut place = self.0.place.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(place.map_or(wanted, |place| place.min(wanted)));
        self.0.wake.notify_one();
    }

    /// Looks for new notifications until the server stops.
    pub async fn tell(self, feed: impl NotificationFeed) {
        let figures = Worker::of("notification streams");
        while !self.0.stop.is_cancelled() {
            let Some(place) = self.place() else {
                tokio::select! {
                    () = self.0.stop.cancelled() => {}
                    () = self.0.wake.notified() => {}
                }
                continue;
            };
            match feed.after(place, BATCH).await {
                Ok(told) => {
                    self.hand_out(place, told);
                    figures.worked();
                }
                Err(error) => {
                    figures.failed();
                    tracing::warn!(cause = ?error, "notifications cannot be looked for");
                }
            }
            tokio::select! {
                () = self.0.stop.cancelled() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Where to look on; nowhere once nobody listens.
    fn place(&self) -> Option<i64> {
        let mut place = self.0.place.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.told.receiver_count() == 0 {
            *place = None;
        }
        *place
    }

    fn hand_out(&self, from: i64, told: Vec<Told>) {
        let Some(last) = told.last().map(|told| told.place) else {
            return;
        };
        for one in told {
            // Nobody listening any more is no fault.
            self.0.told.send(Arc::new(one)).ok();
        }
        let mut place = self.0.place.lock().unwrap_or_else(PoisonError::into_inner);
        // Unless a new listener asked for an earlier one meanwhile.
        if *place == Some(from) {
            *place = Some(last);
        }
    }
}

impl Listener {
    /// Passes over what waits for it: what is not after this place is told by other means. However far behind it was, it
    /// hears everything after that.
    pub fn skip(&mut self) -> i64 {
        loop {
            match self.told.try_recv() {
                Ok(told) => self.last = self.last.max(told.place),
                // What is lost was handed out before what waits, or is handed out again.
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return self.last,
            }
        }
    }

    /// The next notification; none at the end: the server stops, or the listener fell too far behind.
    pub async fn next(&mut self) -> Option<Arc<Told>> {
        loop {
            let told = tokio::select! {
                () = self.stop.cancelled() => return None,
                told = self.told.recv() => told.ok()?,
            };
            if told.place > self.last {
                self.last = told.place;
                return Some(told);
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

    /// A feed whose notifications are numbered from 1.
    #[derive(Clone, Default)]
    struct Numbers {
        latest: Arc<AtomicI64>,
        looks: Arc<AtomicI64>,
    }

    fn told(place: i64) -> Told {
        let notification = Notification {
            id: NotificationId(Uuid::nil()),
            kind: "info".into(),
            title: "t".into(),
            message: "m".into(),
            data: json!({}),
            read_at: None,
            created_at: OffsetDateTime::UNIX_EPOCH,
        };
        Told {
            place,
            account_id: AccountId(Uuid::nil()),
            notification,
        }
    }

    #[async_trait]
    impl NotificationFeed for Numbers {
        async fn latest(&self) -> Result<i64, StoreError> {
            Ok(self.latest.load(Ordering::SeqCst))
        }

        async fn after(&self, place: i64, limit: i64) -> Result<Vec<Told>, StoreError> {
            self.looks.fetch_add(1, Ordering::SeqCst);
            let last = self.latest.load(Ordering::SeqCst).min(place + limit);
            Ok((place + 1..=last).map(told).collect())
        }

        async fn place_of(&self, _: AccountId, _: NotificationId) -> Result<Option<i64>, StoreError> {
            Ok(None)
        }

        async fn between(&self, _: AccountId, _: i64, _: i64, _: i64) -> Result<Vec<Told>, StoreError> {
            Ok(vec![])
        }
    }

    async fn places(listener: &mut Listener, count: usize) -> Vec<i64> {
        let mut places = Vec::new();
        for _ in 0..count {
            places.push(listener.next().await.unwrap().place);
        }
        places
    }

    #[tokio::test(start_paused = true)]
    async fn every_listener_hears_everything_after_it_came_once() {
        let (stop, feed) = (CancellationToken::new(), Numbers::default());
        let streams = Streams::new(stop.clone());
        let teller = tokio::spawn(streams.clone().tell(feed.clone()));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(feed.looks.load(Ordering::SeqCst), 0, "nobody listens, nobody looks");
        feed.latest.store(5, Ordering::SeqCst);
        let mut first = streams.listen(&feed).await.unwrap();
        assert_eq!(first.skip(), 5);
        feed.latest.store(7, Ordering::SeqCst);
        let mut second = streams.listen(&feed).await.unwrap();
        assert_eq!(places(&mut first, 2).await, [6, 7]);
        feed.latest.store(9, Ordering::SeqCst);
        assert_eq!(places(&mut second, 2).await, [8, 9]);
        assert_eq!(places(&mut first, 2).await, [8, 9]);
        // A third one that comes with an old answer of the store is told what it missed, and the others not again.
        streams.begin_at(4);
        feed.latest.store(10, Ordering::SeqCst);
        assert_eq!(places(&mut first, 1).await, [10]);
        drop((first, second));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let looks = feed.looks.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(feed.looks.load(Ordering::SeqCst), looks);
        stop.cancel();
        teller.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn streams_are_bounded_and_end_with_the_server() {
        let (stop, feed) = (CancellationToken::new(), Numbers::default());
        let streams = Streams::new(stop.clone());
        let mut open = Vec::new();
        for _ in 0..STREAMS {
            open.push(streams.listen(&feed).await.unwrap());
        }
        assert!(matches!(streams.listen(&feed).await, Err(NoStream::Full)));
        open.pop();
        open.push(streams.listen(&feed).await.unwrap());
        // One that is too far behind is ended.
        feed.latest.store(5000, Ordering::SeqCst);
        streams.hand_out(0, (1..=2000).map(told).collect());
        assert!(open[0].next().await.is_none());
        // Unless it is told that otherwise, and goes on with what comes then.
        assert_eq!(open[2].skip(), 2000);
        streams.hand_out(2000, vec![told(1999), told(2001)]);
        assert_eq!(places(&mut open[2], 1).await, [2001]);
        stop.cancel();
        assert!(open[1].next().await.is_none());
    }
}
