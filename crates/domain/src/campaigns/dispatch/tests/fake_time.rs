//! The dispatcher's ports to time: a limiter and a timer that advance time instead of waiting, and the server's stop.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use async_trait::async_trait;
use time::Duration;

use super::runs::FaultyRuns;
use crate::campaigns::{Burst, SendRateLimiter, SlotTime, TimeSlices};
use crate::shared::{Shutdown, StoreError, Timer};

/// Never delays a message, and advances the store's clock instead of resting.
pub(super) struct FakeTime {
    pub(super) runs: Arc<FaultyRuns>,
    pub(super) reserved: Mutex<Vec<(String, Burst)>>,
    pub(super) rests: Mutex<Vec<Duration>>,
    /// The numbers (from 1) of the send slots for which bursts waited.
    pub(super) waited: Mutex<Vec<i64>>,
    /// The number of first slots that each burst misses, by how much, and whether reserving another one fails.
    pub(super) missed: Mutex<(i64, Duration, bool)>,
    /// The rate at each call of `slow_down`.
    pub(super) slowed: Mutex<Vec<f64>>,
    /// The number of reservations before the server stops.
    pub(super) granted: Mutex<Option<usize>>,
    /// The number of departures, including the one before which the server stops.
    pub(super) departures: Mutex<Option<usize>>,
    pub(super) stopping: AtomicBool,
    pub(super) should_yield: AtomicBool,
}

#[async_trait]
impl SendRateLimiter for FakeTime {
    async fn reserve(&self, phone_number_id: &str, burst: Burst) -> Result<SlotTime, StoreError> {
        match self.granted.lock().unwrap().as_mut() {
            Some(0) => self.stopping.store(true, Ordering::Relaxed),
            Some(granted) => *granted -= 1,
            None => {}
        }
        let mut reserved = self.reserved.lock().unwrap();
        if !self.is_stopping() {
            reserved.push((phone_number_id.to_owned(), burst));
        }
        let (first, _, next_fails) = *self.missed.lock().unwrap();
        if next_fails && i64::try_from(reserved.len()).unwrap() % (first + 1) != 1 {
            return Err(StoreError::Unavailable("down".into()));
        }
        Ok(SlotTime(Duration::seconds(reserved.len().try_into().unwrap())))
    }

    fn limit(&self, _: &str) -> Option<f64> {
        let halvings = i32::try_from(self.slowed.lock().unwrap().len()).unwrap();
        (halvings > 0).then(|| (1000.0 / 2_f64.powi(halvings)).max(1.0))
    }

    async fn slow_down(&self, phone_number_id: &str, rate: f64) -> Result<(), StoreError> {
        assert_eq!(phone_number_id, "1065");
        self.slowed.lock().unwrap().push(rate);
        Ok(())
    }

    async fn until(&self, slot_time: SlotTime, lead: Duration) {
        if lead.is_zero() {
            self.waited.lock().unwrap().push(slot_time.0.whole_seconds());
        }
        if lead.is_zero()
            && let Some(departures) = self.departures.lock().unwrap().as_mut()
        {
            *departures = departures.saturating_sub(1);
            self.stopping.fetch_or(*departures == 0, Ordering::Relaxed);
        }
    }

    fn since(&self, slot_time: SlotTime) -> Duration {
        let (first, late, _) = *self.missed.lock().unwrap();
        if slot_time.0.whole_seconds() % (first + 1) == 0 {
            Duration::ZERO
        } else {
            late
        }
    }
}

#[async_trait]
impl Timer for FakeTime {
    async fn sleep(&self, time: Duration) {
        self.rests.lock().unwrap().push(time);
        self.runs.tables().now += time;
    }
}

#[async_trait]
impl Shutdown for FakeTime {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    async fn stopped(&self) {
        poll_fn(|_| match self.is_stopping() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

impl TimeSlices for FakeTime {
    fn should_yield(&self) -> bool {
        self.should_yield.swap(false, Ordering::Relaxed)
    }
}
