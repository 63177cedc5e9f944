//! How fast messages may leave a number.

use time::Duration;

/// A recipient gets no more than one message of a number in this time: the platform's own limit.
pub const PAIR_INTERVAL: Duration = Duration::seconds(6);

/// How fast messages may leave a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// So long between two messages.
    Delay(Duration),
    /// No more than so many in any second (1 to 1000).
    PerSecond(u32),
}

/// Messages that leave together, and the time until the next ones may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// How many.
    pub messages: u32,
    /// Zero: nothing has to be waited for.
    pub time: Duration,
}

/// The most messages that leave together.
const MOST: u32 = 25;

impl Pace {
    /// What leaves together. Where so many a second are allowed, a portion is at most a tenth of them, and of a size that
    /// fills the second best; its time is a little longer than its part of the second, so that no second has too many
    /// messages even if one portion is late by that.
    pub fn portion(self) -> Portion {
        match self {
            Self::Delay(delay) => {
                let delay_us = delay.whole_microseconds().max(1);
                let messages = u32::try_from(10_000 / delay_us).unwrap_or(MOST).clamp(1, MOST);
                Portion {
                    messages,
                    time: delay * messages,
                }
            }
            Self::PerSecond(rate) => {
                const MARGIN: f64 = 1.03;
                let rate = rate.max(1);
                let most = (rate / 10).clamp(1, MOST);
                let fills = |messages: &u32| (rate - rate % messages) * 100 >= rate * 99;
                let messages = (1..=most).rev().find(fills).unwrap_or(1);
                Portion {
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
    fn portions() {
        let of = |pace: Pace| (pace.portion().messages, pace.portion().time.whole_microseconds());
        let delay = |us| of(Pace::Delay(Duration::microseconds(us)));
        assert_eq!((delay(200_000), delay(10_000)), ((1, 200_000), (1, 10_000)));
        assert_eq!((delay(2000), delay(0)), ((5, 10_000), (25, 0)));
        let rate = |rate| of(Pace::PerSecond(rate));
        assert_eq!(
            (rate(1), rate(80), rate(1000)),
            ((1, 1_030_000), (8, 103_000), (25, 25_750))
        );
        assert_eq!((rate(0), rate(997)), (rate(1), (23, 23_953)));
    }

    proptest! {
        /// However late each portion is, up to what the margin allows: no second has more messages than the rate, and
        /// all in all there are not much fewer.
        #[test]
        fn no_second_has_more_than_the_rate(rate in 1_u32..=1000, late in prop::collection::vec(0_i64..29_000, 200)) {
            let Portion { messages, time } = Pace::PerSecond(rate).portion();
            let time = i64::try_from(time.whole_microseconds()).unwrap();
            let left: Vec<i64> = (0..).zip(&late).map(|(at, late)| at * time + late).collect();
            for from in &left {
                let within = left.iter().filter(|at| (*from..*from + 1_000_000).contains(at)).count();
                prop_assert!(u32::try_from(within).unwrap() * messages <= rate);
            }
            prop_assert!(i64::from(messages) * 1_000_000 * 100 >= i64::from(rate) * time * 96);
        }
    }
}
