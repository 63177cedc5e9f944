//! The send rate limiter of this process: it reserves send slots, which all servers share, and waits for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use recado_domain::campaigns::{Burst, SendRateLimiter, SendSlotStore, SlotTime, ThrottledRate};
use recado_domain::shared::StoreError;
use tokio::time::Instant;

pub struct TokioSendRateLimiter {
    slots: Arc<dyn SendSlotStore>,
    /// The zero of its slot times.
    epoch: Instant,
    /// The throttled numbers, each with its rate and the time at which the rate was read.
    throttled: Mutex<HashMap<String, (f64, Instant)>>,
}

impl TokioSendRateLimiter {
    pub fn new(slots: Arc<dyn SendSlotStore>) -> Self {
        Self {
            slots,
            epoch: Instant::now(),
            throttled: Mutex::default(),
        }
    }

    /// Stores the throttled rate of a number, or removes it if it no longer limits the number.
    fn set_throttled_rate(&self, phone_number_id: &str, rate: Option<f64>) {
        let age = time::Duration::ZERO;
        let limit = rate.and_then(|rate| ThrottledRate { rate, age }.limit());
        let mut throttled = self.throttled.lock().unwrap_or_else(PoisonError::into_inner);
        match limit {
            Some(limit) => throttled.insert(phone_number_id.to_owned(), (limit, Instant::now())),
            None => throttled.remove(phone_number_id),
        };
    }
}

#[async_trait]
impl SendRateLimiter for TokioSendRateLimiter {
    async fn reserve(&self, phone_number_id: &str, burst: Burst) -> Result<SlotTime, StoreError> {
        let slot = self.slots.reserve(phone_number_id, burst).await?;
        self.set_throttled_rate(phone_number_id, slot.limit);
        // The wait counts from the response, so a slow response makes the slot later and never too early.
        Ok(SlotTime(duration(self.epoch.elapsed()) + slot.wait))
    }

    fn limit(&self, phone_number_id: &str) -> Option<f64> {
        let throttled = self.throttled.lock().unwrap_or_else(PoisonError::into_inner);
        let (rate, read_at) = *throttled.get(phone_number_id)?;
        let age = duration(read_at.elapsed());
        ThrottledRate { rate, age }.limit()
    }

    async fn slow_down(&self, phone_number_id: &str, rate: f64) -> Result<(), StoreError> {
        let limit = self.slots.slow_down(phone_number_id, rate).await?;
        self.set_throttled_rate(phone_number_id, Some(limit));
        Ok(())
    }

    async fn until(&self, slot_time: SlotTime, lead: time::Duration) {
        if let Ok(wait) = std::time::Duration::try_from(-self.since(slot_time) - lead) {
            tokio::time::sleep(wait).await;
        }
    }

    fn since(&self, slot_time: SlotTime) -> time::Duration {
        duration(self.epoch.elapsed()) - slot_time.0
    }
}

fn duration(time: std::time::Duration) -> time::Duration {
    time::Duration::try_from(time).unwrap_or(time::Duration::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use recado_domain::campaigns::{SendRate, SendSlot};

    use super::*;

    /// Send slots by the paused clock of the test.
    struct TestSendSlots {
        epoch: Instant,
        next: Mutex<HashMap<String, time::Duration>>,
        limit: Mutex<Option<f64>>,
    }

    #[async_trait]
    impl SendSlotStore for TestSendSlots {
        async fn reserve(&self, number: &str, burst: Burst) -> Result<SendSlot, StoreError> {
            let now = duration(self.epoch.elapsed());
            let mut next = self.next.lock().unwrap();
            let slot = next.entry(number.to_owned()).or_insert(now);
            let free = (*slot).max(now);
            *slot = free + burst.time;
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

    fn limiter() -> TokioSendRateLimiter {
        let slots = TestSendSlots {
            epoch: Instant::now(),
            next: Mutex::default(),
            limit: Mutex::default(),
        };
        TokioSendRateLimiter::new(Arc::new(slots))
    }

    async fn wait_for_slot(limiter: &TokioSendRateLimiter, number: &str, send_rate: SendRate) {
        let slot_time = limiter.reserve(number, send_rate.burst()).await.unwrap();
        limiter.until(slot_time, time::Duration::ZERO).await;
    }

    #[tokio::test(start_paused = true)]
    async fn limiter_spaces_messages_per_number() {
        let limiter = limiter();
        let began = Instant::now();
        let send_rate = SendRate::Delay(time::Duration::milliseconds(200));
        let mut times = Vec::new();
        for number in ["a", "a", "b", "a"] {
            wait_for_slot(&limiter, number, send_rate).await;
            times.push(began.elapsed().as_millis());
        }
        assert_eq!(times, [0, 200, 200, 400]);
    }

    #[tokio::test(start_paused = true)]
    async fn until_returns_the_lead_before_the_slot() {
        let limiter = limiter();
        let began = Instant::now();
        let burst = SendRate::Delay(time::Duration::milliseconds(200)).burst();
        limiter.reserve("a", burst).await.unwrap();
        let slot_time = limiter.reserve("a", burst).await.unwrap();
        limiter.until(slot_time, time::Duration::milliseconds(50)).await;
        assert_eq!(began.elapsed().as_millis(), 150);
        assert_eq!(limiter.since(slot_time).whole_milliseconds(), -50);
        limiter.until(slot_time, time::Duration::milliseconds(500)).await;
        assert_eq!(began.elapsed().as_millis(), 150);
        limiter.until(slot_time, time::Duration::ZERO).await;
        assert_eq!(began.elapsed().as_millis(), 200);
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert_eq!(limiter.since(slot_time).whole_milliseconds(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn throttled_rate_applies_until_it_has_recovered() {
        let limiter = limiter();
        assert_eq!(limiter.limit("a"), None);
        limiter.slow_down("a", 200.0).await.unwrap();
        assert_eq!((limiter.limit("a"), limiter.limit("b")), (Some(100.0), None));
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(limiter.limit("a"), Some(130.0));
        // Another server throttled the number; the store returns that with the slot.
        limiter.reserve("b", SendRate::PerSecond(80).burst()).await.unwrap();
        assert_eq!(limiter.limit("b"), Some(100.0));
        tokio::time::sleep(Duration::from_secs(900)).await;
        assert_eq!(limiter.limit("b"), None);
    }
}
