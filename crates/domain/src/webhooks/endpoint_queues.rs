//! Deliveries that were claimed and wait in this process: a queue for each endpoint, with a concurrency limit of
//! its own, so that one that does not answer holds up itself alone.

use std::collections::{HashMap, VecDeque};

use time::OffsetDateTime;

use super::{ClaimRequest, ClaimedDelivery};
use crate::shared::WebhookId;

/// How many deliveries to one endpoint may be under way: at first, and at most.
const INITIAL_CONCURRENCY: usize = 4;
const MAX_CONCURRENCY: usize = 32;

/// How many deliveries a queue may hold for each call that its limit allows.
const STOCK: usize = 8;

/// How many may be under way in all, and how many may be held.
const OPEN: usize = 512;
const HELD: usize = 4096;

/// How many idle queues are remembered.
const REMEMBERED: usize = 4096;

/// The queue of one endpoint.
struct EndpointQueue {
    /// With the moments at which they were claimed.
    waiting: VecDeque<(ClaimedDelivery, OffsetDateTime)>,
    open: usize,
    limit: usize,
    /// Stands among those that are ready.
    ready: bool,
}

impl EndpointQueue {
    fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            open: 0,
            limit: INITIAL_CONCURRENCY,
            ready: false,
        }
    }

    fn can_start(&self) -> bool {
        !self.waiting.is_empty() && self.open < self.limit
    }

    fn claimable(&self) -> usize {
        (self.limit * STOCK).saturating_sub(self.waiting.len() + self.open)
    }
}

/// All queues.
#[derive(Default)]
pub(super) struct EndpointQueues {
    queues: HashMap<WebhookId, EndpointQueue>,
    /// Whose turn it is.
    ready: VecDeque<WebhookId>,
    held: usize,
    open: usize,
}

impl EndpointQueues {
    /// Takes in what was claimed at this moment.
    pub(super) fn enqueue(&mut self, claimed: Vec<ClaimedDelivery>, at: OffsetDateTime) {
        for delivery in claimed {
            let id = delivery.key.endpoint_id;
            self.held += 1;
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

    /// The next delivery that may start, endpoint by endpoint in turn, and when it was claimed.
    pub(super) fn start(&mut self) -> Option<(ClaimedDelivery, OffsetDateTime)> {
        if self.open >= OPEN {
            return None;
        }
        let id = self.ready.pop_front()?;
        let queue = self.queues.get_mut(&id)?;
        queue.ready = false;
        let delivery = queue.waiting.pop_front()?;
        queue.open += 1;
        self.open += 1;
        self.held = self.held.saturating_sub(1);
        self.check_ready(id);
        Some(delivery)
    }

    /// A delivery ended. A quick success raises the endpoint's limit by one; anything else halves it.
    pub(super) fn completed(&mut self, id: WebhookId, well: bool) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.limit = match well {
                true => (queue.limit + 1).min(MAX_CONCURRENCY),
                false => (queue.limit / 2).max(1),
            };
        }
        self.dismissed(id);
    }

    /// A delivery that had its turn was not attempted.
    pub(super) fn dismissed(&mut self, id: WebhookId) {
        self.open = self.open.saturating_sub(1);
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.open = queue.open.saturating_sub(1);
        }
        self.check_ready(id);
    }

    /// What may be claimed; none when enough is held.
    pub(super) fn claim_request(&mut self) -> Option<ClaimRequest> {
        let room = HELD.saturating_sub(self.held);
        if room == 0 {
            return None;
        }
        if self.queues.len() > REMEMBERED {
            self.queues
                .retain(|_, queue| queue.open > 0 || !queue.waiting.is_empty());
        }
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let queues = self.queues.iter().map(|(id, queue)| (*id, number(queue.claimable())));
        Some(ClaimRequest {
            endpoints: queues.collect(),
            others: number(INITIAL_CONCURRENCY * STOCK),
            limit: number(room),
        })
    }

    /// Gives up everything that did not start.
    pub(super) fn clear(&mut self) -> Vec<ClaimedDelivery> {
        self.ready.clear();
        self.held = 0;
        let queues = self.queues.values_mut();
        queues
            .flat_map(|queue| {
                queue.ready = false;
                queue.waiting.drain(..).map(|(delivery, _)| delivery)
            })
            .collect()
    }

    /// How many are under way.
    pub(super) fn open(&self) -> usize {
        self.open
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

    fn queues(of: &[(u128, usize)]) -> EndpointQueues {
        let mut queues = EndpointQueues::default();
        for (id, count) in of {
            queues.enqueue((0..*count).map(|_| claimed(endpoint(*id))).collect(), NOW);
        }
        queues
    }

    fn started(queues: &mut EndpointQueues) -> Vec<u128> {
        std::iter::from_fn(|| queues.start())
            .map(|(delivery, _)| delivery.key.endpoint_id.0.as_u128())
            .collect()
    }

    #[test]
    fn endpoints_take_turns_and_each_has_its_limit() {
        let mut queues = queues(&[(1, 100), (2, 2), (3, 6)]);
        assert_eq!(started(&mut queues), [1, 2, 3, 1, 2, 3, 1, 3, 1, 3]);
        assert_eq!(queues.open(), 10);
        queues.completed(endpoint(1), false);
        assert_eq!(
            started(&mut queues),
            Vec::<u128>::new(),
            "three are under way, and two may be"
        );
        queues.completed(endpoint(3), true);
        assert_eq!(started(&mut queues), [3, 3]);
    }

    #[test]
    fn limit_grows_by_one_and_shrinks_by_half_but_not_to_zero() {
        let mut queues = queues(&[(1, 1000)]);
        started(&mut queues);
        for _ in 0..100 {
            queues.completed(endpoint(1), true);
            started(&mut queues);
        }
        assert_eq!(queues.open(), 32);
        for _ in 0..32 {
            queues.completed(endpoint(1), false);
        }
        assert_eq!(started(&mut queues), [1]);
    }

    #[test]
    fn no_claim_exceeds_what_a_queue_can_use() {
        let mut queues = queues(&[(1, 20), (2, 32)]);
        let of = |queues: &mut EndpointQueues, id: u128| {
            let request = queues.claim_request().unwrap();
            let one = request.endpoints.iter().find(|(queue, _)| *queue == endpoint(id));
            one.map_or(request.others, |(_, n)| *n)
        };
        assert_eq!(
            [of(&mut queues, 1), of(&mut queues, 2), of(&mut queues, 9)],
            [12, 0, 32]
        );
        started(&mut queues);
        assert_eq!(of(&mut queues, 1), 12, "what is under way counts");
        for _ in 0..4 {
            queues.completed(endpoint(1), false);
        }
        assert_eq!(of(&mut queues, 1), 0);
        assert_eq!(queues.clear().len(), 44);
        assert_eq!((queues.claim_request().unwrap().limit, queues.open()), (4096, 4));
    }

    #[test]
    fn many_silent_endpoints_take_no_more_than_there_is() {
        let many: Vec<(u128, usize)> = (1..=200).map(|id| (id, 8)).collect();
        let mut queues = queues(&many);
        assert_eq!(started(&mut queues).len(), 512);
        queues.completed(endpoint(7), false);
        assert_eq!(started(&mut queues).len(), 1);
    }
}
