//! The send rate of a phone number: bursts, throttling and recovery.

use time::Duration;

/// WhatsApp's pair rate limit: a recipient gets at most one message of a number in this time.
pub const PAIR_INTERVAL: Duration = Duration::seconds(6);

/// The rate at which a number may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendRate {
    /// The time between two messages.
    Delay(Duration),
    /// The most messages in any second (1 to 1000).
    PerSecond(u32),
}

/// Messages that leave together, and the time until the next burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    pub messages: u32,
    /// Zero: the next burst may leave at once.
    pub time: Duration,
}

impl Burst {
    /// The number of sends to claim: whole bursts that leave within `time`, at most `max` sends, at least one burst.
    pub(super) fn claim_size(self, time: Duration, max: i64) -> i64 {
        let bursts = time.whole_microseconds() / self.time.whole_microseconds().max(1);
        let messages = i64::from(self.messages);
        messages * i64::try_from(bursts).unwrap_or(max).clamp(1, max / messages)
    }
}

/// The most messages in a burst.
const MAX_BURST: u32 = 25;

/// The highest rate of a number, in messages per second.
const HIGHEST_RATE: f64 = 1000.0;

/// The lower bound of the throttled rate, in messages per second.
pub const LOWEST_RATE: f64 = 1.0;

/// The recovery of a throttled rate: messages per second that each second adds.
pub const RATE_RECOVERY: f64 = 1.0;

/// Messages that are throttled within this time have the same cause and halve the rate once.
pub const RATE_HALVING_INTERVAL: Duration = Duration::SECOND;

/// AIMD: the throttled rate of a number at one time. WhatsApp may grant a number less than its profile states. Each
/// throttled message (130429) halves the rate, and time restores it by [`RATE_RECOVERY`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottledRate {
    /// Messages per second.
    pub rate: f64,
    /// The time since `rate` was stored.
    pub age: Duration,
}

impl ThrottledRate {
    /// The current limit. None if it has recovered to `HIGHEST_RATE`.
    pub fn limit(self) -> Option<f64> {
        let recovered = self.age.as_seconds_f64().max(0.0) * RATE_RECOVERY;
        Some(self.rate + recovered).filter(|limit| *limit < HIGHEST_RATE)
    }
}

impl SendRate {
    /// Messages per second.
    pub fn rate(self) -> f64 {
        match self {
            Self::Delay(delay) => delay.as_seconds_f64().recip().min(HIGHEST_RATE),
            Self::PerSecond(rate) => f64::from(rate),
        }
    }

    /// The same rate, but at most `limit` messages per second.
    #[must_use]
    pub fn limited(self, limit: Option<f64>) -> Self {
        match limit.filter(|limit| *limit < self.rate()) {
            Some(limit) => Self::Delay(Duration::SECOND / limit),
            None => self,
        }
    }

    /// The burst of this rate. For `PerSecond`, a burst is at most a tenth of the rate, and its size uses at least 99 %
    /// of the rate. Its time is `MARGIN` times its share of the second, so that no second exceeds the rate even if a
    /// burst is late by the margin.
    pub fn burst(self) -> Burst {
        match self {
            Self::Delay(delay) => {
                let delay_us = delay.whole_microseconds().max(1);
                let messages = u32::try_from(10_000 / delay_us)
                    .unwrap_or(MAX_BURST)
                    .clamp(1, MAX_BURST);
                Burst {
                    messages,
                    time: delay * messages,
                }
            }
            Self::PerSecond(rate) => {
                const MARGIN: f64 = 1.03;
                let rate = rate.max(1);
                let max = (rate / 10).clamp(1, MAX_BURST);
                let fills_second = |messages: &u32| (rate - rate % messages) * 100 >= rate * 99;
                let messages = (1..=max).rev().find(fills_second).unwrap_or(1);
                Burst {
                    messages,
                    time: Duration::SECOND * MARGIN / f64::from(rate / messages),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn send_rate_limit_lowers_and_never_raises_it() {
        let slow = SendRate::Delay(Duration::milliseconds(200));
        assert_eq!((slow.limited(None), slow.limited(Some(5.0))), (slow, slow));
        assert_eq!(slow.limited(Some(2.0)), SendRate::Delay(Duration::milliseconds(500)));
        assert_eq!(SendRate::PerSecond(80).limited(Some(80.5)), SendRate::PerSecond(80));
        let fast = SendRate::PerSecond(1000).limited(Some(500.0)).burst();
        assert_eq!((fast.messages, fast.time), (5, Duration::milliseconds(10)));
        let unlimited = SendRate::Delay(Duration::ZERO).limited(Some(1.0)).burst();
        assert_eq!((unlimited.messages, unlimited.time), (1, Duration::SECOND));
    }

    #[test]
    fn throttled_rate_recovers_by_one_per_second() {
        let after = |seconds| {
            let age = Duration::seconds(seconds);
            ThrottledRate { rate: 40.0, age }.limit()
        };
        assert_eq!((after(-3), after(0), after(30)), (Some(40.0), Some(40.0), Some(70.0)));
        assert_eq!((after(959), after(960)), (Some(999.0), None));
    }

    #[test]
    fn burst_follows_from_the_send_rate() {
        let burst = |send_rate: SendRate| (send_rate.burst().messages, send_rate.burst().time.whole_microseconds());
        let delay = |us| burst(SendRate::Delay(Duration::microseconds(us)));
        assert_eq!((delay(200_000), delay(10_000)), ((1, 200_000), (1, 10_000)));
        assert_eq!((delay(2000), delay(0)), ((5, 10_000), (25, 0)));
        let rate = |rate| burst(SendRate::PerSecond(rate));
        assert_eq!(
            (rate(1), rate(80), rate(1000)),
            ((1, 1_030_000), (8, 103_000), (25, 25_750))
        );
        assert_eq!((rate(0), rate(997)), (rate(1), (23, 23_953)));
    }

    proptest! {
        /// With every burst late by up to the margin, no second exceeds the rate, and the average is at least 96 % of
        /// it.
        #[test]
        fn bursts_never_exceed_the_rate(rate in 1_u32..=1000, delays in prop::collection::vec(0_i64..29_000, 200)) {
            let Burst { messages, time } = SendRate::PerSecond(rate).burst();
            let time = i64::try_from(time.whole_microseconds()).unwrap();
            let departures: Vec<i64> = (0..).zip(&delays).map(|(at, delay)| at * time + delay).collect();
            for from in &departures {
                let within = departures.iter().filter(|at| (*from..*from + 1_000_000).contains(at)).count();
                prop_assert!(u32::try_from(within).unwrap() * messages <= rate);
            }
            prop_assert!(i64::from(messages) * 1_000_000 * 100 >= i64::from(rate) * time * 96);
        }
    }
}
