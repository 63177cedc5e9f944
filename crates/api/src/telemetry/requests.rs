//! Metrics of requests, labelled with the route's pattern and never with the path, and of rate limit decisions. Each
//! handle is created on first use and reused: a request costs a few atomic additions.

use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// The label of requests without a route: unknown paths, wrong methods, preflights.
const UNMATCHED: &str = "unmatched";

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

static UNMATCHED_ROUTE: LazyLock<Route> = LazyLock::new(|| Route::new(UNMATCHED, UNMATCHED));

static IN_FLIGHT: LazyLock<Gauge> = LazyLock::new(|| gauge!("recado_http_requests_in_flight"));

/// The metrics of one route.
#[derive(Debug)]
pub struct Route {
    path: &'static str,
    method: &'static str,
    classes: [OnceLock<Counter>; CLASSES.len()],
    seconds: OnceLock<Histogram>,
}

impl Route {
    pub fn new(path: &'static str, method: &'static str) -> Self {
        Self {
            path,
            method,
            classes: Default::default(),
            seconds: OnceLock::new(),
        }
    }

    pub fn unmatched() -> &'static Self {
        &UNMATCHED_ROUTE
    }

    /// The route's pattern.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Records a response with this status after this duration.
    pub fn record_response(&self, status: u16, duration: Duration) {
        let index = usize::from(status / 100).saturating_sub(1).min(CLASSES.len() - 1);
        if let (Some(count), Some(class)) = (self.classes.get(index), CLASSES.get(index).copied()) {
            let create = || {
                let (method, route) = (self.method, self.path);
                counter!("recado_http_requests_total", "method" => method, "route" => route, "status" => class)
            };
            count.get_or_init(create).increment(1);
        }
        let create =
            || histogram!("recado_http_request_duration_seconds", "method" => self.method, "route" => self.path);
        self.seconds.get_or_init(create).record(duration);
    }
}

/// Counts a request as in flight until it is dropped.
pub struct InFlight(());

impl InFlight {
    pub fn begin() -> Self {
        IN_FLIGHT.increment(1);
        Self(())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        IN_FLIGHT.decrement(1);
    }
}

/// The outcome of a rate limit check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimitOutcome {
    Allowed,
    Refused,
    /// The rate limiter is unavailable, so the request was let through.
    FailedOpen,
}

/// Counts the outcome of a rate limit check.
pub fn count_rate_limit(outcome: RateLimitOutcome) {
    struct Decisions {
        allowed: Counter,
        refused: Counter,
        failed_open: Counter,
    }
    static DECISIONS: LazyLock<Decisions> = LazyLock::new(|| {
        let count = |decision: &'static str| counter!("recado_rate_limit_decisions_total", "decision" => decision);
        Decisions {
            allowed: count("allowed"),
            refused: count("refused"),
            failed_open: count("failed_open"),
        }
    });
    match outcome {
        RateLimitOutcome::Allowed => DECISIONS.allowed.increment(1),
        RateLimitOutcome::Refused => DECISIONS.refused.increment(1),
        RateLimitOutcome::FailedOpen => DECISIONS.failed_open.increment(1),
    }
}
