//! The sends of a run that are under way: those that wait for their start, those whose calls go on, and results that are
//! still to be written.

use std::collections::VecDeque;
use std::pin::pin;

use futures_util::future::{BoxFuture, Either, poll_immediate, select};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::refusals::Refusals;
use super::{ClaimedSend, RunBlock, SendResult};
use crate::shared::{ContactId, SendId};

/// How many sends may be started and not recorded: as many as a crash leaves unknown at most, and as many as can still
/// leave after a cancel.
const OPEN: usize = 50;

/// Results are written together, so many at least as long as more can be started.
const BATCH: usize = 10;

/// A result, and why the run has to pause after it, if it has to.
pub(super) type CompletedCall = (SendId, SendResult, Option<RunBlock>);

/// See above. Calls go on only while somebody waits for something here.
#[derive(Default)]
pub(super) struct InFlightSends<'a> {
    waiting: VecDeque<ClaimedSend>,
    after: Option<ContactId>,
    calls: FuturesUnordered<BoxFuture<'a, CompletedCall>>,
    results: Vec<(SendId, SendResult)>,
    block: Option<RunBlock>,
    refusals: Refusals,
    throttled: bool,
}

impl<'a> InFlightSends<'a> {
    /// The contact after which the next claim begins.
    pub(super) fn after(&self) -> Option<ContactId> {
        self.after
    }

    /// Claimed sends, in the order of their ids, which is no order of their contacts: those written together lie on
    /// different pages of the store, and each page has room for a few changed rows, not for many at once.
    pub(super) fn enqueue(&mut self, mut sends: Vec<ClaimedSend>) {
        self.after = self.after.max(sends.iter().map(|send| send.contact_id).max());
        sends.sort_unstable_by_key(|send| send.id);
        self.waiting.extend(sends);
    }

    /// Whether nothing waits for its start.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether something was started and not recorded.
    pub(super) fn are_open(&self) -> bool {
        !self.calls.is_empty() || !self.results.is_empty()
    }

    /// Takes up to so many that wait, and results to record before they start. None: too much is open, a call has to end
    /// first.
    pub(super) fn next_batch(&mut self, size: usize) -> Option<SendBatch> {
        let size = size.min(self.waiting.len());
        let write = self.results.len() >= BATCH || self.calls.len() + self.results.len() + size > OPEN.max(size);
        let unwritten = if write { 0 } else { self.results.len() };
        if self.calls.len() + unwritten + size > OPEN.max(size) {
            return None;
        }
        let results = if write {
            std::mem::take(&mut self.results)
        } else {
            vec![]
        };
        let sends = self.waiting.drain(..size).collect();
        Some(SendBatch { sends, results })
    }

    /// Nothing that waits will start.
    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Lets calls leave.
    pub(super) async fn launch(&mut self, calls: impl IntoIterator<Item = BoxFuture<'a, CompletedCall>>) {
        self.calls.extend(calls);
        // A call begins when it is first looked at.
        while let Some(Some(completed)) = poll_immediate(self.calls.next()).await {
            self.take_in(Some(completed));
        }
    }

    /// Takes in what is known without a call, or of another try to write it.
    pub(super) fn settle(&mut self, results: impl IntoIterator<Item = (SendId, SendResult)>) {
        self.results.extend(results);
    }

    /// Why the run has to pause, if it has to.
    pub(super) fn block(&self) -> Option<RunBlock> {
        let refused = || {
            let reason = self.refusals.pause_reason()?;
            Some(RunBlock { reason, review: None })
        };
        self.block.clone().or_else(refused)
    }

    /// Whether the number was too fast since this was asked last.
    pub(super) fn take_throttled(&mut self) -> bool {
        std::mem::take(&mut self.throttled)
    }

    /// Does something while the calls go on.
    pub(super) async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        while !self.calls.is_empty() {
            match select(work.as_mut(), self.calls.next()).await {
                Either::Left((done, _)) => return done,
                Either::Right((completed, _)) => self.take_in(completed),
            }
        }
        work.await
    }

    /// Waits for the end of one call.
    pub(super) async fn one(&mut self) {
        let completed = self.calls.next().await;
        self.take_in(completed);
    }

    /// Waits for the end of all calls, and gives every result that is not written.
    pub(super) async fn drain(&mut self) -> Vec<(SendId, SendResult)> {
        while !self.calls.is_empty() {
            self.one().await;
        }
        std::mem::take(&mut self.results)
    }

    fn take_in(&mut self, completed: Option<CompletedCall>) {
        if let Some((send, result, block)) = completed {
            self.refusals.add(&result);
            self.throttled |= matches!(result, SendResult::Throttled { .. });
            self.results.push((send, result));
            if self.block.is_none() {
                self.block = block;
            }
        }
    }
}

/// Sends that are to start, and results that are to be written before.
pub(super) struct SendBatch {
    pub(super) sends: Vec<ClaimedSend>,
    pub(super) results: Vec<(SendId, SendResult)>,
}
