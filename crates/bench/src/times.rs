//! Latency of single requests, one after the other.

use std::time::Instant;

use anyhow::{Result, bail};
use recado_testkit::http::Client;

/// Numbers of unmeasured warm-up requests and of measured requests.
const WARM_UP: usize = 10;
pub(super) const MEASURED: usize = 80;

/// The latencies of requests in milliseconds, sorted.
pub(super) struct Times(Vec<f64>);

impl Times {
    pub(super) fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self(times)
    }

    /// The percentile `percent`; NaN without measurements.
    pub(super) fn at(&self, percent: usize) -> f64 {
        let index = self.0.len().saturating_sub(1) * percent / 100;
        self.0.get(index).copied().unwrap_or(f64::NAN)
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

/// Milliseconds until a successful response is complete.
pub(super) fn timed(client: &Client, path: &str) -> Result<f64> {
    let began = Instant::now();
    let (status, body) = client.text(path)?;
    let elapsed = began.elapsed();
    if status != 200 {
        bail!("{path} responded with {status}: {body}");
    }
    Ok(elapsed.as_secs_f64() * 1000.0)
}

/// Measures two requests alternately.
pub(super) fn alternately(a: (&Client, &str), b: (&Client, &str)) -> Result<(Times, Times)> {
    let (mut times_a, mut times_b) = (Vec::new(), Vec::new());
    for number in 0..WARM_UP + MEASURED {
        let (time_a, time_b) = (timed(a.0, a.1)?, timed(b.0, b.1)?);
        if number >= WARM_UP {
            times_a.push(time_a);
            times_b.push(time_b);
        }
    }
    Ok((Times::of(times_a), Times::of(times_b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_return_percentiles() {
        let times = Times::of((1..=101).rev().map(f64::from).collect());
        assert_eq!((times.at(50), times.at(95), times.at(100)), (51.0, 96.0, 101.0));
        assert!(Times::of(Vec::new()).at(50).is_nan());
    }
}
