//! The pace of numbers, within this process: campaigns that leave from one number share its places.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use recado_domain::campaigns::{Pace, Pacer};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Numbers are forgotten when more than this are kept and their last place is past.
const NUMBERS: usize = 10_000;

/// Keeps a pace by handing out moments.
pub struct TokioPacer {
    stop: CancellationToken,
    next: Mutex<HashMap<String, Instant>>,
}

impl TokioPacer {
    /// Hands out places until `stop` is cancelled.
    pub fn new(stop: CancellationToken) -> Self {
        Self {
            stop,
            next: Mutex::default(),
        }
    }

    /// The moment from which `messages` may leave; the one after them is taken from then on.
    fn reserve(&self, number: &str, pace: Pace, messages: u32) -> Instant {
        let interval = std::time::Duration::try_from(pace.interval()).unwrap_or_default();
        let now = Instant::now();
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if next.len() > NUMBERS {
            next.retain(|_, moment| *moment > now);
        }
        let slot = next.entry(number.to_owned()).or_insert(now);
        let from = (*slot).max(now);
        *slot = from + interval.saturating_mul(messages);
        from
    }
}

#[async_trait]
impl Pacer for TokioPacer {
    async fn places(&self, phone_number_id: &str, pace: Pace, messages: u32) -> bool {
        let from = self.reserve(phone_number_id, pace, messages);
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep_until(from) => true,
        }
    }

    async fn rest(&self, time: time::Duration) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(time.try_into().unwrap_or_default()) => true,
        }
    }

    fn stopping(&self) -> bool {
        self.stop.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn messages_of_a_number_keep_their_distance_and_numbers_do_not_share_it() {
        let pacer = TokioPacer::new(CancellationToken::new());
        let began = Instant::now();
        let pace = Pace::Delay(time::Duration::milliseconds(200));
        let mut moments = Vec::new();
        for number in ["a", "a", "b", "a"] {
            assert!(pacer.places(number, pace, 1).await);
            moments.push(began.elapsed().as_millis());
        }
        assert_eq!(moments, [0, 200, 200, 400]);
        assert!(pacer.places("c", Pace::PerSecond(80), 4).await);
        assert!(pacer.places("c", Pace::PerSecond(80), 4).await);
        assert_eq!(began.elapsed().as_millis(), 450);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_leaves_once_the_server_stops() {
        let stop = CancellationToken::new();
        let pacer = TokioPacer::new(stop.clone());
        let pace = Pace::Delay(time::Duration::seconds(60));
        assert!(pacer.places("a", pace, 1).await);
        stop.cancel();
        let waited = tokio::time::timeout(Duration::from_secs(1), pacer.places("a", pace, 1)).await;
        assert_eq!(waited, Ok(false));
        assert!(pacer.stopping() && !pacer.rest(time::Duration::seconds(60)).await);
    }
}
