//! Metrics of background workers: the outcome of each iteration, and the time of the last success.

use std::time::SystemTime;

use metrics::{Counter, Gauge, counter, gauge};

/// The metrics of one worker.
pub struct WorkerMetrics {
    worked: Counter,
    idle: Counter,
    failed: Counter,
    panicked: Counter,
    last_success: Gauge,
}

impl WorkerMetrics {
    /// `worker` becomes a label value, so it MUST come from a small fixed set.
    pub fn of(worker: &'static str) -> Self {
        let count = |outcome: &'static str| {
            let name = "recado_worker_iterations_total";
            counter!(name, "worker" => worker, "outcome" => outcome)
        };
        let metrics = Self {
            worked: count("worked"),
            idle: count("idle"),
            failed: count("failed"),
            panicked: count("panicked"),
            last_success: gauge!("recado_worker_last_success_timestamp_seconds", "worker" => worker),
        };
        // Initially the start of the process, so that a worker that never succeeds is noticed too.
        metrics.set_last_success();
        metrics
    }

    /// Records an iteration that did work.
    pub fn worked(&self) {
        self.worked.increment(1);
        self.set_last_success();
    }

    /// Records an iteration that found no work.
    pub fn idle(&self) {
        self.idle.increment(1);
        self.set_last_success();
    }

    pub fn failed(&self) {
        self.failed.increment(1);
    }

    pub fn panicked(&self) {
        self.panicked.increment(1);
    }

    fn set_last_success(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.last_success.set(now.unwrap_or_default().as_secs_f64());
    }
}
