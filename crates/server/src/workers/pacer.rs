//! The pace of numbers in this process: a clock, and the places that the store gives out to all servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use recado_domain::campaigns::{Moment, PaceStore, Pacer, Portion};
use recado_domain::shared::StoreError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Waits for the places of numbers, and tells runs when to make room.
pub struct TokioPacer {
    stop: CancellationToken,
    places: Arc<dyn PaceStore>,
    /// What its moments are counted from.
    epoch: Instant,
    crowded: AtomicBool,
}

impl TokioPacer {
    /// Waits until `stop` is cancelled.
    pub fn new(stop: CancellationToken, places: Arc<dyn PaceStore>) -> Self {
        Self {
            stop,
            places,
            epoch: Instant::now(),
            crowded: AtomicBool::new(false),
        }
    }

    /// A run waits, and there is no place for it.
    pub(super) fn ask_for_room(&self) {
        self.crowded.store(true, Ordering::Relaxed);
    }

    async fn sleep_until(&self, deadline: Instant) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep_until(deadline) => true,
        }
    }
}

#[async_trait]
impl Pacer for TokioPacer {
    async fn reserve(&self, phone_number_id: &str, portion: Portion) -> Result<Moment, StoreError> {
        let wait = self.places.reserve(phone_number_id, portion.time).await?;
        // From when the answer came: a slow one makes the place later, never earlier than it is.
        Ok(Moment(duration(self.epoch.elapsed()) + wait))
    }

    async fn until(&self, moment: Moment, lead: time::Duration) -> bool {
        let Ok(wait) = std::time::Duration::try_from(-self.since(moment) - lead) else {
            return !self.stopping();
        };
        self.sleep_until(Instant::now() + wait).await
    }

    fn since(&self, moment: Moment) -> time::Duration {
        duration(self.epoch.elapsed()) - moment.0
    }

    async fn rest(&self, time: time::Duration) -> bool {
        self.sleep_until(Instant::now() + time.try_into().unwrap_or_default())
            .await
    }

    fn stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    fn crowded(&self) -> bool {
        self.crowded.swap(false, Ordering::Relaxed)
    }
}

fn duration(time: std::time::Duration) -> time::Duration {
    time::Duration::try_from(time).unwrap_or(time::Duration::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::time::Duration;

    use recado_domain::campaigns::Pace;

    use super::*;

    /// Places by the test's own clock.
    struct Places {
        epoch: Instant,
        next: Mutex<HashMap<String, time::Duration>>,
    }

    #[async_trait]
    impl PaceStore for Places {
        async fn reserve(&self, number: &str, time: time::Duration) -> Result<time::Duration, StoreError> {
            let now = duration(self.epoch.elapsed());
            let mut next = self.next.lock().unwrap();
            let slot = next.entry(number.to_owned()).or_insert(now);
            let free = (*slot).max(now);
            *slot = free + time;
            Ok(free - now)
        }
    }

    fn pacer(stop: &CancellationToken) -> TokioPacer {
        let places = Places {
            epoch: Instant::now(),
            next: Mutex::default(),
        };
        TokioPacer::new(stop.clone(), Arc::new(places))
    }

    async fn place(pacer: &TokioPacer, number: &str, pace: Pace) -> bool {
        let moment = pacer.reserve(number, pace.portion()).await.unwrap();
        pacer.until(moment, time::Duration::ZERO).await
    }

    #[tokio::test(start_paused = true)]
    async fn messages_of_a_number_keep_their_distance_and_numbers_do_not_share_it() {
        let pacer = pacer(&CancellationToken::new());
        let began = Instant::now();
        let pace = Pace::Delay(time::Duration::milliseconds(200));
        let mut moments = Vec::new();
        for number in ["a", "a", "b", "a"] {
            assert!(place(&pacer, number, pace).await);
            moments.push(began.elapsed().as_millis());
        }
        assert_eq!(moments, [0, 200, 200, 400]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lead_is_time_before_the_moment() {
        let pacer = pacer(&CancellationToken::new());
        let began = Instant::now();
        let portion = Pace::Delay(time::Duration::milliseconds(200)).portion();
        pacer.reserve("a", portion).await.unwrap();
        let moment = pacer.reserve("a", portion).await.unwrap();
        assert!(pacer.until(moment, time::Duration::milliseconds(50)).await);
        assert_eq!(began.elapsed().as_millis(), 150);
        assert_eq!(pacer.since(moment).whole_milliseconds(), -50);
        assert!(pacer.until(moment, time::Duration::milliseconds(500)).await);
        assert_eq!(began.elapsed().as_millis(), 150);
        assert!(pacer.until(moment, time::Duration::ZERO).await);
        assert_eq!(began.elapsed().as_millis(), 200);
        pacer.rest(time::Duration::milliseconds(30)).await;
        assert_eq!(pacer.since(moment).whole_milliseconds(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_leaves_once_the_server_stops() {
        let stop = CancellationToken::new();
        let pacer = pacer(&stop);
        let pace = Pace::Delay(time::Duration::seconds(60));
        assert!(place(&pacer, "a", pace).await);
        stop.cancel();
        let waited = tokio::time::timeout(Duration::from_secs(1), place(&pacer, "a", pace)).await;
        assert_eq!(waited, Ok(false));
        assert!(!pacer.until(Moment(time::Duration::ZERO), time::Duration::ZERO).await);
        assert!(pacer.stopping() && !pacer.rest(time::Duration::seconds(60)).await);
    }

    #[tokio::test]
    async fn room_is_made_once_for_each_time_it_is_asked_for() {
        let pacer = pacer(&CancellationToken::new());
        assert!(!pacer.crowded());
        pacer.ask_for_room();
        pacer.ask_for_room();
        assert!(pacer.crowded() && !pacer.crowded());
    }
}
