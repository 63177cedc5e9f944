//! The in-flight sends of a run: claimed sends that wait for their start, running calls, and results that are not yet
//! recorded.

use std::collections::VecDeque;
use std::pin::pin;

use futures_util::future::{BoxFuture, Either, poll_immediate, select};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::refusals::Refusals;
use super::{ClaimPosition, ClaimedSend, RunBlock, SendResult};
use crate::messaging::ErrorClass;
use crate::shared::{ContactId, SendId};

/// The most sends that are started and not recorded. It bounds the unknown outcomes after a crash and the messages that
/// can still leave after a cancel.
const MAX_IN_FLIGHT: usize = 50;

/// Results are recorded in batches of at least this size, as long as more sends can start.
const MIN_RESULT_BATCH: usize = 10;

/// The result of a call.
pub(crate) struct CompletedCall {
    pub(crate) send: SendId,
    pub(crate) result: SendResult,
    /// The class of the error if WhatsApp rejected this one message.
    pub(crate) error: Option<ErrorClass>,
    /// Why the run has to pause.
    pub(crate) block: Option<RunBlock>,
}

impl CompletedCall {
    /// A result without a rejection by WhatsApp.
    pub(crate) fn of(send: SendId, result: SendResult) -> Self {
        Self {
            send,
            result,
            error: None,
            block: None,
        }
    }
}

/// Futures make progress only when they are polled: the calls advance only while a method of this type is awaited.
#[derive(Default)]
pub(crate) struct InFlightSends<'a> {
    /// Claimed sends that are not started.
    waiting: VecDeque<ClaimedSend>,
    last_claimed_contact: Option<ContactId>,
    calls: FuturesUnordered<BoxFuture<'a, CompletedCall>>,
    /// The sends of `calls`.
    called: Vec<SendId>,
    /// Results that are not recorded.
    results: Vec<(SendId, SendResult)>,
    /// The first reason to pause the run that a call returned.
    block: Option<RunBlock>,
    refusals: Refusals,
    /// Whether a call was throttled since the last `take_throttled`.
    throttled: bool,
}

impl<'a> InFlightSends<'a> {
    /// The position of the next claim. None before the first claim.
    pub(super) fn claim_position(&self) -> Option<ClaimPosition> {
        let unrecorded = self.results.iter().map(|(send, _)| *send);
        Some(ClaimPosition {
            after: self.last_claimed_contact?,
            in_flight: self.called.iter().copied().chain(unrecorded).collect(),
        })
    }

    /// Queues claimed sends in the order of their ids, which is unrelated to the order of contacts. The rows that one
    /// batch updates then lie on different table pages. HOT updates: a page has room for a few changed rows only.
    pub(super) fn enqueue(&mut self, mut sends: Vec<ClaimedSend>) {
        let last_contact = sends.iter().map(|send| send.contact_id).max();
        self.last_claimed_contact = self.last_claimed_contact.max(last_contact);
        sends.sort_unstable_by_key(|send| send.id);
        self.waiting.extend(sends);
    }

    /// Moves the position of the next claim behind a contact whose send is held.
    pub(super) fn skip_to(&mut self, contact: ContactId) {
        self.last_claimed_contact = self.last_claimed_contact.max(Some(contact));
    }

    /// Whether a claimed send waits for its start.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a send was started and not recorded.
    pub(crate) fn has_unrecorded(&self) -> bool {
        !self.calls.is_empty() || !self.results.is_empty()
    }

    /// Takes up to `size` waiting sends, and the results to record before they start. None: `MAX_IN_FLIGHT` is reached,
    /// so a call has to end first. A batch larger than `MAX_IN_FLIGHT` starts when nothing else is in flight.
    pub(super) fn next_batch(&mut self, size: usize) -> Option<SendBatch> {
        let size = size.min(self.waiting.len());
        let limit = MAX_IN_FLIGHT.max(size);
        let record = self.results.len() >= MIN_RESULT_BATCH || self.calls.len() + self.results.len() + size > limit;
        let unrecorded = if record { 0 } else { self.results.len() };
        if self.calls.len() + unrecorded + size > limit {
            return None;
        }
        let results = if record {
            std::mem::take(&mut self.results)
        } else {
            vec![]
        };
        let sends = self.waiting.drain(..size).collect();
        Some(SendBatch { sends, results })
    }

    /// Takes the results that are not recorded.
    pub(crate) fn take_results(&mut self) -> Vec<(SendId, SendResult)> {
        std::mem::take(&mut self.results)
    }

    /// The number of running calls.
    pub(crate) fn calls(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn clear_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Adds calls and polls them once, so that their requests leave now.
    pub(crate) async fn start_calls(
        &mut self,
        calls: impl IntoIterator<Item = (SendId, BoxFuture<'a, CompletedCall>)>,
    ) {
        for (send, call) in calls {
            self.called.push(send);
            self.calls.push(call);
        }
        // The first poll sends the request. A call that completes at once gives its result here.
        while let Some(Some(completed)) = poll_immediate(self.calls.next()).await {
            self.add_completed(Some(completed));
        }
    }

    /// Adds results that need no call, or that have to be recorded again.
    pub(super) fn add_results(&mut self, results: impl IntoIterator<Item = (SendId, SendResult)>) {
        self.results.extend(results);
    }

    /// The reason for which a call cannot succeed for any message of the number, if one returned it.
    pub(crate) fn refused_call(&self) -> Option<&RunBlock> {
        self.block.as_ref()
    }

    /// The reason to pause the run, if a call returned one or the circuit breaker ([`Refusals`]) is open.
    pub(super) fn block(&self) -> Option<RunBlock> {
        let refusal_block = || {
            let reason = self.refusals.pause_reason()?;
            Some(RunBlock { reason, review: None })
        };
        self.block.clone().or_else(refusal_block)
    }

    /// Blocks the run for another reason than a call.
    pub(super) fn block_with(&mut self, reason: &str) {
        self.block.get_or_insert(RunBlock {
            reason: reason.to_owned(),
            review: None,
        });
    }

    /// Whether WhatsApp throttled the number since the last call of this method.
    pub(crate) fn take_throttled(&mut self) -> bool {
        std::mem::take(&mut self.throttled)
    }

    /// Awaits `work`, and polls the running calls and collects their results at the same time.
    pub(crate) async fn drive_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        while !self.calls.is_empty() {
            match select(work.as_mut(), self.calls.next()).await {
                Either::Left((output, _)) => return output,
                Either::Right((completed, _)) => self.add_completed(completed),
            }
        }
        work.await
    }

    /// Waits until any running call ends, and collects its result.
    pub(crate) async fn wait_for_one_call(&mut self) {
        let completed = self.calls.next().await;
        self.add_completed(completed);
    }

    /// Waits for the end of all calls, and returns every unrecorded result.
    pub(crate) async fn drain(&mut self) -> Vec<(SendId, SendResult)> {
        while !self.calls.is_empty() {
            self.wait_for_one_call().await;
        }
        std::mem::take(&mut self.results)
    }

    fn add_completed(&mut self, completed: Option<CompletedCall>) {
        if let Some(completed) = completed {
            let CompletedCall {
                send,
                result,
                error,
                block,
            } = completed;
            self.called.retain(|called| *called != send);
            self.refusals.add(&result, error);
            self.throttled |= matches!(result, SendResult::Throttled { .. });
            self.results.push((send, result));
            if self.block.is_none() {
                self.block = block;
            }
        }
    }
}

/// The sends to start next, and the results to record before them.
pub(super) struct SendBatch {
    pub(super) sends: Vec<ClaimedSend>,
    pub(super) results: Vec<(SendId, SendResult)>,
}
