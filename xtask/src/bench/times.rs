//! How long single requests take, one after the other.

use std::time::Instant;

use crate::error::{Result, fail};
use crate::http::Client;

/// Requests that are not measured, and those that are.
const WARMING: usize = 10;
pub(super) const MEASURED: usize = 80;

/// The time of each of so many requests, in milliseconds, shortest first.
pub(super) struct Times(Vec<f64>);

impl Times {
    pub(super) fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self(times)
    }

    /// What so many percent of them did not exceed; not a number where there are none.
    pub(super) fn at(&self, percent: usize) -> f64 {
        let place = self.0.len().saturating_sub(1) * percent / 100;
        self.0.get(place).copied().unwrap_or(f64::NAN)
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

/// Milliseconds until the whole of a successful answer is there.
pub(super) fn timed(client: &Client, path: &str) -> Result<f64> {
    let began = Instant::now();
    let (status, body) = client.text(path)?;
    let taken = began.elapsed();
    if status != 200 {
        return fail(format!("{path} answered {status}: {body}"));
    }
    Ok(taken.as_secs_f64() * 1000.0)
}

/// Two requests in turns.
pub(super) fn in_turns(one: (&Client, &str), other: (&Client, &str)) -> Result<(Times, Times)> {
    let (mut of_one, mut of_other) = (Vec::new(), Vec::new());
    for number in 0..WARMING + MEASURED {
        let (first, second) = (timed(one.0, one.1)?, timed(other.0, other.1)?);
        if number >= WARMING {
            of_one.push(first);
            of_other.push(second);
        }
    }
    Ok((Times::of(of_one), Times::of(of_other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_by_their_share() {
        let times = Times::of((1..=101).rev().map(f64::from).collect());
        assert_eq!((times.at(50), times.at(95), times.at(100)), (51.0, 96.0, 101.0));
        assert!(Times::of(Vec::new()).at(50).is_nan());
    }
}
