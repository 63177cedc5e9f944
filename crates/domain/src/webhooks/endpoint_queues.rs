//! Bulkhead: the claimed deliveries of this process wait in one queue per endpoint. Each queue has its own concurrency
//! limit, so that an endpoint that does not respond delays only its own deliveries.

use std::collections::{HashMap, VecDeque};

use time::OffsetDateTime;

use super::{ClaimRequest, ClaimedDelivery};
use crate::shared::WebhookId;

/// The initial and the highest concurrency limit of an endpoint. The limit follows AIMD.
const INITIAL_CONCURRENCY: usize = 4;
const MAX_CONCURRENCY: usize = 32;

/// How many deliveries a queue may hold per unit of its concurrency limit.
const QUEUED_PER_PERMIT: usize = 8;

/// How many deliveries of all endpoints may be in flight, and how many may wait.
const MAX_IN_FLIGHT: usize = 512;
const MAX_QUEUED: usize = 4096;

/// Above this to_i64 of queues, idle ones are evicted.
const MAX_QUEUES: usize = 4096;

struct EndpointQueue {
    /// Deliveries with their claim times.
    waiting: VecDeque<(ClaimedDelivery, OffsetDateTime)>,
    in_flight: usize,
    limit: usize,
    /// Whether the endpoint is in `EndpointQueues::ready`.
    ready: bool,
}

impl EndpointQueue {
    fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            in_flight: 0,
            limit: INITIAL_CONCURRENCY,
            ready: false,
        }
    }

    fn can_start(&self) -> bool {
        !self.waiting.is_empty() && self.in_flight < self.limit
    }

    fn claimable(&self) -> usize {
        (self.limit * QUEUED_PER_PERMIT).saturating_sub(self.waiting.len() + self.in_flight)
    }
}

#[derive(Default)]
pub(super) struct EndpointQueues {
    queues: HashMap<WebhookId, EndpointQueue>,
    /// Round robin: endpoints that can start a delivery.
    ready: VecDeque<WebhookId>,
    queued: usize,
    in_flight: usize,
}

impl EndpointQueues {
    /// Enqueues deliveries that were claimed at `at`.
    pub(super) fn enqueue(&mut self, claimed: Vec<ClaimedDelivery>, at: OffsetDateTime) {
        for delivery in claimed {
            let id = delivery.key.endpoint_id;
            self.queued += 1;
            self.queues
                .entry(id)
                .or_insert_with(EndpointQueue::new)
                .waiting
                .push_back((delivery, at));
            self.check_ready(id);
        }
    }

    fn check_ready(&mut self, id: WebhookId) {
        if let Some(queue) = self.queues.get_mut(&id)
            && !queue.ready
            && queue.can_start()
        {
            queue.ready = true;
            self.ready.push_back(id);
        }
    }

    /// Dequeues the next delivery that may start, with its claim time, round robin over the endpoints.
    pub(super) fn start(&mut self) -> Option<(ClaimedDelivery, OffsetDateTime)> {
        if self.in_flight >= MAX_IN_FLIGHT {
            return None;
        }
        let id = self.ready.pop_front()?;
        let queue = self.queues.get_mut(&id)?;
        queue.ready = false;
        let delivery = queue.waiting.pop_front()?;
        queue.in_flight += 1;
        self.in_flight += 1;
        self.queued = self.queued.saturating_sub(1);
        self.check_ready(id);
        Some(delivery)
    }

    /// Ends a delivery. AIMD: a fast success raises the endpoint's limit by one, any other result halves it.
    pub(super) fn completed(&mut self, id: WebhookId, fast_success: bool) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.limit = match fast_success {
                true => (queue.limit + 1).min(MAX_CONCURRENCY),
                false => (queue.limit / 2).max(1),
            };
        }
        self.release(id);
    }

    /// Ends a delivery without an attempt. The limit does not change.
    pub(super) fn release(&mut self, id: WebhookId) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.in_flight = queue.in_flight.saturating_sub(1);
        }
        self.check_ready(id);
    }

    /// Returns how much may be claimed, or `None` if enough deliveries wait.
    pub(super) fn claim_request(&mut self) -> Option<ClaimRequest> {
        let room = MAX_QUEUED.saturating_sub(self.queued);
        if room == 0 {
            return None;
        }
        if self.queues.len() > MAX_QUEUES {
            self.queues
                .retain(|_, queue| queue.in_flight > 0 || !queue.waiting.is_empty());
        }
        let to_i64 = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let queues = self.queues.iter().map(|(id, queue)| (*id, to_i64(queue.claimable())));
        Some(ClaimRequest {
            endpoints: queues.collect(),
            others: to_i64(INITIAL_CONCURRENCY * QUEUED_PER_PERMIT),
            limit: to_i64(room),
        })
    }

    /// Removes and returns all deliveries that did not start.
    pub(super) fn clear(&mut self) -> Vec<ClaimedDelivery> {
        self.ready.clear();
        self.queued = 0;
        let queues = self.queues.values_mut();
        queues
            .flat_map(|queue| {
                queue.ready = false;
                queue.waiting.drain(..).map(|(delivery, _)| delivery)
            })
            .collect()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::tests::{NOW, claimed};
    use super::*;

    fn endpoint(n: u128) -> WebhookId {
        Uuid::from_u128(n).into()
    }

    fn queues_with(counts: &[(u128, usize)]) -> EndpointQueues {
        let mut queues = EndpointQueues::default();
        for (id, count) in counts {
            queues.enqueue((0..*count).map(|_| claimed(endpoint(*id))).collect(), NOW);
        }
        queues
    }

    fn start_all(queues: &mut EndpointQueues) -> Vec<u128> {
        std::iter::from_fn(|| queues.start())
            .map(|(delivery, _)| delivery.key.endpoint_id.0.as_u128())
            .collect()
    }

    #[test]
    fn endpoint_queues_round_robin_within_their_limits() {
        let mut queues = queues_with(&[(1, 100), (2, 2), (3, 6)]);
        assert_eq!(start_all(&mut queues), [1, 2, 3, 1, 2, 3, 1, 3, 1, 3]);
        assert_eq!(queues.in_flight(), 10);
        queues.completed(endpoint(1), false);
        assert_eq!(
            start_all(&mut queues),
            Vec::<u128>::new(),
            "three are in flight, and the limit is two"
        );
        queues.completed(endpoint(3), true);
        assert_eq!(start_all(&mut queues), [3, 3]);
    }

    #[test]
    fn limit_grows_by_one_and_shrinks_by_half_but_not_to_zero() {
        let mut queues = queues_with(&[(1, 1000)]);
        start_all(&mut queues);
        for _ in 0..100 {
            queues.completed(endpoint(1), true);
            start_all(&mut queues);
        }
        assert_eq!(queues.in_flight(), 32);
        for _ in 0..32 {
            queues.completed(endpoint(1), false);
        }
        assert_eq!(start_all(&mut queues), [1]);
    }

    #[test]
    fn claim_request_is_bounded_by_queue_capacity() {
        let mut queues = queues_with(&[(1, 20), (2, 32)]);
        let claim_limit = |queues: &mut EndpointQueues, id: u128| {
            let request = queues.claim_request().unwrap();
            let limit = request.endpoints.iter().find(|(queue, _)| *queue == endpoint(id));
            limit.map_or(request.others, |(_, n)| *n)
        };
        assert_eq!(
            [
                claim_limit(&mut queues, 1),
                claim_limit(&mut queues, 2),
                claim_limit(&mut queues, 9)
            ],
            [12, 0, 32]
        );
        start_all(&mut queues);
        assert_eq!(claim_limit(&mut queues, 1), 12, "in-flight deliveries count");
        for _ in 0..4 {
            queues.completed(endpoint(1), false);
        }
        assert_eq!(claim_limit(&mut queues, 1), 0);
        assert_eq!(queues.clear().len(), 44);
        assert_eq!((queues.claim_request().unwrap().limit, queues.in_flight()), (4096, 4));
    }

    #[test]
    fn endpoint_queues_respect_the_total_in_flight_limit() {
        let many: Vec<(u128, usize)> = (1..=200).map(|id| (id, 8)).collect();
        let mut queues = queues_with(&many);
        assert_eq!(start_all(&mut queues).len(), 512);
        queues.completed(endpoint(7), false);
        assert_eq!(start_all(&mut queues).len(), 1);
    }
}
