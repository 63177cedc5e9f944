//! Latencies and their percentiles.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use recado_testkit::http::Client;

/// Numbers of unmeasured warm-up requests and of measured requests.
const WARM_UP: usize = 10;
pub(super) const MEASURED: usize = 80;

/// Significant decimal digits of a recorded latency.
const DIGITS: u8 = 3;

/// A longer latency counts as this one.
const MAX: Duration = Duration::from_secs(3600);

/// The latencies of requests.
///
/// Percentiles are by nearest rank, as hdrhistogram defines them: p99 is the smallest recorded latency that at least
/// 99 % of all do not exceed, to `DIGITS` digits. All percentiles of the benches are computed here, in milliseconds;
/// without any latency they are NaN.
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(super) fn new() -> Result<Self> {
        let histogram = Histogram::new_with_max(nanoseconds(MAX), DIGITS);
        Ok(Self(histogram.context("cannot create a histogram")?))
    }

    pub(super) fn of(latencies: &[Duration]) -> Result<Self> {
        let mut all = Self::new()?;
        latencies.iter().for_each(|latency| all.record(*latency));
        Ok(all)
    }

    pub(super) fn record(&mut self, latency: Duration) {
        self.0.saturating_record(nanoseconds(latency));
    }

    pub(super) fn p50(&self) -> f64 {
        self.at(0.5)
    }

    pub(super) fn p95(&self) -> f64 {
        self.at(0.95)
    }

    pub(super) fn p99(&self) -> f64 {
        self.at(0.99)
    }

    pub(super) fn p99_9(&self) -> f64 {
        self.at(0.999)
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The number of latencies of at least `bound`.
    pub(super) fn count_from(&self, bound: Duration) -> u64 {
        self.0.count_between(nanoseconds(bound), u64::MAX)
    }

    fn at(&self, quantile: f64) -> f64 {
        if self.0.is_empty() {
            return f64::NAN;
        }
        Duration::from_nanos(self.0.value_at_quantile(quantile)).as_secs_f64() * 1000.0
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The time until a successful response is complete.
pub(super) fn timed(client: &Client, path: &str) -> Result<Duration> {
    let began = Instant::now();
    let (status, body) = client.text(path)?;
    let elapsed = began.elapsed();
    if status != 200 {
        bail!("{path} responded with {status}: {body}");
    }
    Ok(elapsed)
}

/// Measures two requests alternately.
pub(super) fn alternately(a: (&Client, &str), b: (&Client, &str)) -> Result<(Latencies, Latencies)> {
    let (mut latencies_a, mut latencies_b) = (Latencies::new()?, Latencies::new()?);
    for number in 0..WARM_UP + MEASURED {
        let (time_a, time_b) = (timed(a.0, a.1)?, timed(b.0, b.1)?);
        if number >= WARM_UP {
            latencies_a.record(time_a);
            latencies_b.record(time_b);
        }
    }
    Ok((latencies_a, latencies_b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let latencies: Vec<_> = (1..=1000).rev().map(Duration::from_millis).collect();
        let latencies = Latencies::of(&latencies).unwrap();
        let found = [latencies.p50(), latencies.p95(), latencies.p99(), latencies.p99_9()];
        for (found, rank) in found.into_iter().zip([500.0_f64, 950.0, 990.0, 999.0]) {
            assert!((found - rank).abs() <= rank / 1000.0, "{found} is not {rank}");
        }
        let few = Latencies::of(&[1, 2, 3].map(Duration::from_millis)).unwrap();
        assert_eq!([few.p50().round(), few.p99().round()], [2.0, 3.0]);
        assert!(Latencies::new().unwrap().p50().is_nan());
    }
}
