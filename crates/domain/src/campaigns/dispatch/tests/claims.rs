//! Claims of the in-memory run store. They check that the worker names its sends in flight.

use uuid::Uuid;

use super::rows::{Row, claimed};
use super::runs::State;
use crate::campaigns::{ClaimOutcome, ClaimPosition};
use crate::messaging::SendStatus;
use crate::shared::{ContactId, SendId};

impl State {
    pub(super) fn claim(&mut self, worker: Uuid, position: Option<ClaimPosition>, size: i64) -> ClaimOutcome {
        if !self.goes_on() {
            return ClaimOutcome::Stopped;
        }
        if self.holder != Some(worker) {
            return ClaimOutcome::Lost;
        }
        let after = position.as_ref().map(|position| position.after);
        let in_flight = |row: &&Row| row.started && row.status == SendStatus::Pending && !row.unknown;
        let in_flight = self.rows.iter().filter(in_flight).map(|row| row.id);
        match &position {
            // The store keeps what was in flight before the worker began.
            None => self.in_flight_before = in_flight.collect(),
            // Workers that share an id may execute the run at the same time, and do not know each other's sends.
            Some(_) if self.id_reused => {}
            Some(position) => {
                let named = |send: &SendId| position.in_flight.contains(send) || self.in_flight_before.contains(send);
                let mut in_flight = in_flight;
                assert!(
                    in_flight.all(|send| named(&send)),
                    "a claim does not name a send in flight"
                );
            }
        }
        let (now, size) = (self.now, usize::try_from(size).unwrap());
        let open = |row: &&Row| row.status == SendStatus::Pending && !row.started;
        let due = |after: Option<ContactId>| {
            let again = |row: &&Row| row.retry_at.is_positive() && row.retry_at <= now;
            let next = move |row: &&Row| row.retry_at.is_zero() && Some(row.contact_id) > after;
            let open = || self.rows.iter().filter(open);
            let due = open().filter(again).chain(open().filter(next)).take(size);
            due.map(claimed).collect::<Vec<_>>()
        };
        let mut sends = due(after);
        if sends.is_empty() {
            sends = due(None);
        }
        if !sends.is_empty() {
            self.claimed.push(sends.len());
            return ClaimOutcome::Sends(sends);
        }
        let next = self.rows.iter().filter(open).map(|row| row.retry_at).min();
        next.map_or(ClaimOutcome::Exhausted, |next| ClaimOutcome::Wait(next - now))
    }
}
