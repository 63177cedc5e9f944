//! The pace of numbers in this process: a clock, and the places that the store gives out to all servers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use recado_domain::campaigns::{Moment, PaceStore, Pacer, Portion, ThrottledRate};
use recado_domain::shared::StoreError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Waits for the places of numbers, and tells runs when to make room.
pub struct TokioPacer {
    stop: CancellationToken,
    places: Arc<dyn PaceStore>,
    /// What its moments are counted from.
    epoch: Instant,
    /// The numbers that were throttled, with their rates and when those were read.
    throttled: Mutex<HashMap<String, (f64, Instant)>>,
    crowded: AtomicBool,
}

impl TokioPacer {
    /// Waits until `stop` is cancelled.
    pub fn new(stop: CancellationToken, places: Arc<dyn PaceStore>) -> Self {
        Self {
            stop,
            places,
            epoch: Instant::now(),
            throttled: Mutex::default(),
            crowded: AtomicBool::new(false),
        }
    }

    /// A run waits, and there is no place for it.
    pub(super) fn ask_for_room(&self) {
        self.crowded.store(true, Ordering::Relaxed);
    }

    /// Remembers the throttled rate of a number, as long as it limits anything.
    fn learn(&self, phone_number_id: &str, rate: Option<f64>) {
        let age = time::Duration::ZERO;
        let limit = rate.and_then(|rate| ThrottledRate { rate, age }.limit());
        let mut throttled = self.throttled.lock().unwrap_or_else(PoisonError::into_inner);
        match limit {
            Some(limit) => throttled.insert(phone_number_id.to_owned(), (limit, Instant::now())),
            None => throttled.remove(phone_number_id),
        };
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
        let slot = self.places.reserve(phone_number_id, portion).await?;
        self.learn(phone_number_id, slot.limit);
        // From when the answer came: a slow one makes the place later, never earlier than it is.
        Ok(Moment(duration(self.epoch.elapsed()) + slot.wait))
    }

    fn limit(&self, phone_number_id: &str) -> Option<f64> {
        let throttled = self.throttled.lock().unwrap_or_else(PoisonError::into_inner);
        let (rate, read_at) = *throttled.get(phone_number_id)?;
        let age = duration(read_at.elapsed());
        ThrottledRate { rate, age }.limit()
    }

    async fn slow_down(&self, phone_number_id: &str, rate: f64) -> Result<(), StoreError> {
        let limit = self.places.slow_down(phone_number_id, rate).await?;
        self.learn(phone_number_id, Some(limit));
        Ok(())
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
    use std::time::Duration;

    use recado_domain::campaigns::{Pace, SendSlot};

    use super::*;

    /// Places by the test's own clock.
    struct Places {
        epoch: Instant,
        next: Mutex<HashMap<String, time::Duration>>,
        limit: Mutex<Option<f64>>,
    }

    #[async_trait]
    impl PaceStore for Places {
        async fn reserve(&self, number: &str, portion: Portion) -> Result<SendSlot, StoreError> {
            let now = duration(self.epoch.elapsed());
            let mut next = self.next.lock().unwrap();
            let slot = next.entry(number.to_owned()).or_insert(now);
            let free = (*slot).max(now);
            *slot = free + portion.time;
            Ok(SendSlot {
                wait: free - now,
                limit: *self.limit.lock().unwrap(),
            })
        }

        async fn slow_down(&self, _: &str, rate: f64) -> Result<f64, StoreError> {
            *self.limit.lock().unwrap() = Some(rate / 2.0);
            Ok(rate / 2.0)
        }
    }

    fn pacer(stop: &CancellationToken) -> TokioPacer {
        let places = Places {
            epoch: Instant::now(),
            next: Mutex::default(),
            limit: Mutex::default(),
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

    #[tokio::test(start_paused = true)]
    async fn a_throttled_rate_is_remembered_until_it_has_recovered() {
        let pacer = pacer(&CancellationToken::new());
        assert_eq!(pacer.limit("a"), None);
        pacer.slow_down("a", 200.0).await.unwrap();
        assert_eq!((pacer.limit("a"), pacer.limit("b")), (Some(100.0), None));
        pacer.rest(time::Duration::seconds(30)).await;
        assert_eq!(pacer.limit("a"), Some(130.0));
        // Another server throttled the number; the store returns that with the slot.
        pacer.reserve("b", Pace::PerSecond(80).portion()).await.unwrap();
        assert_eq!(pacer.limit("b"), Some(100.0));
        pacer.rest(time::Duration::seconds(900)).await;
        assert_eq!(pacer.limit("b"), None);
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
