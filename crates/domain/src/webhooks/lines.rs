//! Deliveries that were claimed and wait in this process: a line for each endpoint, with places of its own, so that one
//! that does not answer holds up itself alone.

use std::collections::{HashMap, VecDeque};

use time::OffsetDateTime;

use super::{Claimed, Wanted};
use crate::shared::WebhookId;

/// How many deliveries to one endpoint may be under way: at first, and at most.
const FIRST_PLACES: usize = 4;
const PLACES: usize = 32;

/// How many deliveries a line may hold for each of its places.
const STOCK: usize = 8;

/// How many may be under way in all, and how many may be held.
const OPEN: usize = 512;
const HELD: usize = 4096;

/// How many idle lines are remembered.
const REMEMBERED: usize = 4096;

/// The line of one endpoint.
struct Line {
    /// With the moments at which they were claimed.
    waiting: VecDeque<(Claimed, OffsetDateTime)>,
    open: usize,
    places: usize,
    /// Stands among those that are ready.
    ready: bool,
}

impl Line {
    fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            open: 0,
            places: FIRST_PLACES,
            ready: false,
        }
    }

    fn can_start(&self) -> bool {
        !self.waiting.is_empty() && self.open < self.places
    }

    fn wants(&self) -> usize {
        (self.places * STOCK).saturating_sub(self.waiting.len() + self.open)
    }
}

/// All lines.
#[derive(Default)]
pub(super) struct Lines {
    lines: HashMap<WebhookId, Line>,
    /// Whose turn it is.
    ready: VecDeque<WebhookId>,
    held: usize,
    open: usize,
}

impl Lines {
    /// Takes in what was claimed at this moment.
    pub(super) fn line_up(&mut self, claimed: Vec<Claimed>, at: OffsetDateTime) {
        for delivery in claimed {
            let id = delivery.key.endpoint_id;
            self.held += 1;
            self.lines
                .entry(id)
                .or_insert_with(Line::new)
                .waiting
                .push_back((delivery, at));
            self.check_ready(id);
        }
    }

    fn check_ready(&mut self, id: WebhookId) {
        if let Some(line) = self.lines.get_mut(&id)
            && !line.ready
            && line.can_start()
        {
            line.ready = true;
            self.ready.push_back(id);
        }
    }

    /// The next delivery that may start, endpoint by endpoint in turn, and when it was claimed.
    pub(super) fn start(&mut self) -> Option<(Claimed, OffsetDateTime)> {
        if self.open >= OPEN {
            return None;
        }
        let id = self.ready.pop_front()?;
        let line = self.lines.get_mut(&id)?;
        line.ready = false;
        let delivery = line.waiting.pop_front()?;
        line.open += 1;
        self.open += 1;
        self.held = self.held.saturating_sub(1);
        self.check_ready(id);
        Some(delivery)
    }

    /// A delivery ended. An endpoint that answers quickly and well gets one place more; one that does not loses half.
    pub(super) fn landed(&mut self, id: WebhookId, well: bool) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.places = match well {
                true => (line.places + 1).min(PLACES),
                false => (line.places / 2).max(1),
            };
        }
        self.dismissed(id);
    }

    /// A delivery that had its turn was not attempted.
    pub(super) fn dismissed(&mut self, id: WebhookId) {
        self.open = self.open.saturating_sub(1);
        if let Some(line) = self.lines.get_mut(&id) {
            line.open = line.open.saturating_sub(1);
        }
        self.check_ready(id);
    }

    /// What may be claimed; none when enough is held.
    pub(super) fn wanted(&mut self) -> Option<Wanted> {
        let room = HELD.saturating_sub(self.held);
        if room == 0 {
            return None;
        }
        if self.lines.len() > REMEMBERED {
            self.lines.retain(|_, line| line.open > 0 || !line.waiting.is_empty());
        }
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let lines = self.lines.iter().map(|(id, line)| (*id, number(line.wants())));
        Some(Wanted {
            lines: lines.collect(),
            others: number(FIRST_PLACES * STOCK),
            limit: number(room),
        })
    }

    /// Gives up everything that did not start.
    pub(super) fn clear(&mut self) -> Vec<Claimed> {
        self.ready.clear();
        self.held = 0;
        let lines = self.lines.values_mut();
        lines
            .flat_map(|line| {
                line.ready = false;
                line.waiting.drain(..).map(|(delivery, _)| delivery)
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

    fn lines(of: &[(u128, usize)]) -> Lines {
        let mut lines = Lines::default();
        for (id, count) in of {
            lines.line_up((0..*count).map(|_| claimed(endpoint(*id))).collect(), NOW);
        }
        lines
    }

    fn started(lines: &mut Lines) -> Vec<u128> {
        std::iter::from_fn(|| lines.start())
            .map(|(delivery, _)| delivery.key.endpoint_id.0.as_u128())
            .collect()
    }

    #[test]
    fn endpoints_take_turns_and_each_has_its_places() {
        let mut lines = lines(&[(1, 100), (2, 2), (3, 6)]);
        assert_eq!(started(&mut lines), [1, 2, 3, 1, 2, 3, 1, 3, 1, 3]);
        assert_eq!(lines.open(), 10);
        lines.landed(endpoint(1), false);
        assert_eq!(
            started(&mut lines),
            Vec::<u128>::new(),
            "three are under way, and two may be"
        );
        lines.landed(endpoint(3), true);
        assert_eq!(started(&mut lines), [3, 3]);
    }

    #[test]
    fn places_grow_one_by_one_and_shrink_by_half_but_never_to_none() {
        let mut lines = lines(&[(1, 1000)]);
        started(&mut lines);
        for _ in 0..100 {
            lines.landed(endpoint(1), true);
            started(&mut lines);
        }
        assert_eq!(lines.open(), 32);
        for _ in 0..32 {
            lines.landed(endpoint(1), false);
        }
        assert_eq!(started(&mut lines), [1]);
    }

    #[test]
    fn nobody_claims_more_than_a_line_can_use() {
        let mut lines = lines(&[(1, 20), (2, 32)]);
        let of = |lines: &mut Lines, id: u128| {
            let wanted = lines.wanted().unwrap();
            let one = wanted.lines.iter().find(|(line, _)| *line == endpoint(id));
            one.map_or(wanted.others, |(_, n)| *n)
        };
        assert_eq!([of(&mut lines, 1), of(&mut lines, 2), of(&mut lines, 9)], [12, 0, 32]);
        started(&mut lines);
        assert_eq!(of(&mut lines, 1), 12, "what is under way counts");
        for _ in 0..4 {
            lines.landed(endpoint(1), false);
        }
        assert_eq!(of(&mut lines, 1), 0);
        assert_eq!(lines.clear().len(), 44);
        assert_eq!((lines.wanted().unwrap().limit, lines.open()), (4096, 4));
    }

    #[test]
    fn many_silent_endpoints_take_no_more_than_there_is() {
        let many: Vec<(u128, usize)> = (1..=200).map(|id| (id, 8)).collect();
        let mut lines = lines(&many);
        assert_eq!(started(&mut lines).len(), 512);
        lines.landed(endpoint(7), false);
        assert_eq!(started(&mut lines).len(), 1);
    }
}
