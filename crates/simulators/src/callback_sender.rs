//! The background worker that posts callbacks: a bounded queue ordered by due time. A single thread preserves the order
//! and retries each POST until the response is 200 or the attempts are used up.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::locked;

/// Capacity of the queue. Beyond it, new jobs are dropped and counted.
const CAPACITY: usize = 500_000;
/// Maximum number of due jobs that are dequeued at once.
const BATCH: usize = 50;
const MAX_ATTEMPTS: u32 = 20;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct QueuedCallback {
    pub(crate) url: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether to retry unless the response is 200.
    pub(crate) retry: bool,
}

/// The counts of callbacks by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Deliveries {
    /// POSTs with the response 200.
    pub delivered: u64,
    /// POSTs that failed after all attempts.
    pub given_up: u64,
    /// Jobs that were dropped because the queue was full.
    pub dropped: u64,
    /// Jobs that are queued or in flight.
    pub waiting: usize,
}

struct State<J> {
    jobs: BTreeMap<(Instant, u64), J>,
    sequence: u64,
    busy: usize,
    stopped: bool,
    counts: Deliveries,
}

pub(crate) struct Queue<J> {
    state: Mutex<State<J>>,
    changed: Condvar,
}

impl<J> Default for Queue<J> {
    fn default() -> Self {
        let (jobs, counts) = (BTreeMap::new(), Deliveries::default());
        Self {
            state: Mutex::new(State {
                jobs,
                sequence: 0,
                busy: 0,
                stopped: false,
                counts,
            }),
            changed: Condvar::new(),
        }
    }
}

impl<J> Queue<J> {
    pub(crate) fn push(&self, due: Instant, job: J) {
        let mut state = locked(&self.state);
        if state.jobs.len() >= CAPACITY {
            state.counts.dropped += 1;
            return;
        }
        state.sequence += 1;
        let key = (due, state.sequence);
        state.jobs.insert(key, job);
        self.changed.notify_all();
    }

    pub(crate) fn stop(&self) {
        locked(&self.state).stopped = true;
        self.changed.notify_all();
    }

    pub(crate) fn deliveries(&self) -> Deliveries {
        let state = locked(&self.state);
        Deliveries {
            waiting: state.jobs.len() + state.busy,
            ..state.counts
        }
    }

    /// Waits until no job is queued or in flight. False: `at_most` ran out first.
    pub(crate) fn wait_idle(&self, at_most: Duration) -> bool {
        let busy = |state: &mut State<J>| state.busy > 0 || !state.jobs.is_empty();
        let waited = self.changed.wait_timeout_while(locked(&self.state), at_most, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// The worker's loop, until [`Queue::stop`]. A POST that is in flight then still completes.
    pub(crate) fn work(&self, pack: impl Fn(Vec<J>) -> Vec<QueuedCallback>) {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .build()
            .into();
        while let Some(jobs) = self.dequeue_due() {
            for callback in pack(jobs) {
                let delivered = self.deliver(&agent, &callback);
                let counts = &mut locked(&self.state).counts;
                if delivered {
                    counts.delivered += 1;
                } else {
                    counts.given_up += 1;
                }
            }
            locked(&self.state).busy = 0;
            self.changed.notify_all();
        }
    }

    /// Waits for the next due jobs. None: the queue is stopped.
    fn dequeue_due(&self) -> Option<Vec<J>> {
        let mut state = locked(&self.state);
        loop {
            if state.stopped {
                return None;
            }
            let now = Instant::now();
            let mut due = Vec::new();
            while due.len() < BATCH && state.jobs.first_key_value().is_some_and(|((at, _), _)| *at <= now) {
                due.extend(state.jobs.pop_first().map(|(_, job)| job));
            }
            if !due.is_empty() {
                state.busy = due.len();
                return Some(due);
            }
            let next = state
                .jobs
                .first_key_value()
                .map(|((at, _), _)| at.saturating_duration_since(now));
            let pause = next.unwrap_or(Duration::from_secs(3600));
            state = self
                .changed
                .wait_timeout(state, pause)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn deliver(&self, agent: &ureq::Agent, callback: &QueuedCallback) -> bool {
        let mut pause = FIRST_PAUSE;
        for remaining in (0..MAX_ATTEMPTS).rev() {
            if post(agent, callback) {
                return true;
            }
            if remaining == 0 || !callback.retry || self.stopped_within(pause) {
                return false;
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
        false
    }

    fn stopped_within(&self, pause: Duration) -> bool {
        let running = |state: &mut State<J>| !state.stopped;
        let waited = self.changed.wait_timeout_while(locked(&self.state), pause, running);
        waited.unwrap_or_else(PoisonError::into_inner).0.stopped
    }
}

fn post(agent: &ureq::Agent, callback: &QueuedCallback) -> bool {
    let mut request = agent.post(&callback.url).header("Content-Type", "application/json");
    for (name, value) in &callback.headers {
        request = request.header(*name, value);
    }
    request
        .send(callback.body.as_slice())
        .is_ok_and(|response| response.status().as_u16() == 200)
}
