//! The state of a history: the in-memory store, and what its callers know of each send.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::FutureExt;
use recado_domain::campaigns::in_memory::{
    InMemoryAccount, InMemoryCampaign, InMemoryContact, InMemoryRuns, InMemorySend, RunTables, SendKey,
};
use recado_domain::campaigns::{
    CampaignStatus, ClaimOutcome, HeldSends, PAIR_INTERVAL, Recipient, RunReport, SendCounts, StartOutcome,
};
use recado_domain::messaging::SendStatus;
use recado_domain::shared::{SendId, WriteOutcome};
use time::Duration;

use super::callers::Caller;
use super::steps::{Results, Step};
use super::system::ModelFixture;
use crate::error_codes::ERROR_CODES;
use crate::histories::{index, number};
use crate::support::NOW;

/// The account of each campaign. Both campaigns of the first account use the same number.
pub(super) const CAMPAIGNS: [usize; 3] = [0, 0, 1];

/// The number of contacts per account.
pub(super) const CONTACTS_PER_ACCOUNT: [usize; 2] = [3, 2];

pub(super) const WORKERS: usize = 2;

/// Identifies a send by its campaign and its contact within the campaign's account.
pub(super) type Key = (usize, usize);

/// The result that a worker records for a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Sent,
    /// WhatsApp accepted the message without returning its id.
    SentWithoutId,
    /// WhatsApp accepted the message and returned the recipient's `wa_id`.
    SentWithWaId,
    Failed,
    /// Failed, because the recipient stopped marketing messages.
    Stopped,
    Unknown,
    DeferredNow,
    DeferredLong,
    Throttled,
    Released,
}

impl Kind {
    pub(super) const ALL: [Self; 10] = [
        Self::Sent,
        Self::SentWithoutId,
        Self::SentWithWaId,
        Self::Failed,
        Self::Stopped,
        Self::Unknown,
        Self::DeferredNow,
        Self::DeferredLong,
        Self::Throttled,
        Self::Released,
    ];

    /// Whether `record_and_start` writes the result in its single statement.
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Self::Sent | Self::SentWithoutId)
    }

    /// Whether WhatsApp certainly did not process the send, so that it waits again.
    pub(super) fn puts_back(self) -> bool {
        use Kind::{DeferredLong, DeferredNow, Released, Throttled};
        matches!(self, DeferredNow | DeferredLong | Throttled | Released)
    }
}

/// What the callers know of a send.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// The number of starts.
    pub(super) starts: usize,
    /// The recorded result of the latest attempt.
    pub(super) reported: Option<Kind>,
    /// Whether it was started, and neither put back by its worker nor retried after a failure.
    outstanding: bool,
}

/// A claimed send: its contact, its attempts, and whether the contact can be reached.
pub(super) type Claimed = (usize, u32, bool);

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    Nothing,
    Start(StartOutcome),
    Write(WriteOutcome<CampaignStatus>),
    /// The campaign of the run, and whether another run waits.
    Taken(Option<usize>, bool),
    Claimed(Vec<Claimed>),
    Skipped(usize),
    Held(HeldSends),
    Wait,
    Exhausted,
    Stopped,
    Lost,
    RecordAndStart {
        goes_on: bool,
        started: Vec<Key>,
        unreachable: BTreeSet<Key>,
    },
    Report(RunReport),
    Failed(u64),
    Unmatched(Vec<usize>),
    Reserved(bool),
}

impl From<ClaimOutcome> for StepOutcome {
    fn from(claim: ClaimOutcome) -> Self {
        match claim {
            ClaimOutcome::Sends(sends) => {
                let sends = sends.iter().map(|send| {
                    let contact = index(send.contact_id.0);
                    (contact, send.attempts, send.recipient.is_some())
                });
                Self::Claimed(sends.collect())
            }
            ClaimOutcome::Skipped(contact) => Self::Skipped(index(contact.0)),
            ClaimOutcome::Held(held) => Self::Held(held),
            ClaimOutcome::Wait(time) => {
                assert!(time.is_positive());
                Self::Wait
            }
            ClaimOutcome::Exhausted => Self::Exhausted,
            ClaimOutcome::Stopped => Self::Stopped,
            ClaimOutcome::Lost => Self::Lost,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) tables: RunTables,
    /// The monthly limit of each account.
    pub(super) limits: [i64; 2],
    /// Whether the second account has no number, so that its runs are simulated.
    pub(super) simulates: bool,
    pub(super) histories: BTreeMap<Key, History>,
    /// The number of messages of each account that were reported as sent after their reservation was released.
    surplus: [i64; 2],
    /// The outcome of the last step.
    pub(super) outcome: StepOutcome,
    /// The invariant that the last step violated.
    pub(super) violation: Option<String>,
}

/// The WhatsApp id of an attempt's message.
pub(super) fn message_of((campaign, contact): Key, attempt: usize) -> String {
    format!("m{campaign}{contact}-{attempt}")
}

fn key_of(key: SendKey) -> Key {
    (index(key.0.0), index(key.1.0))
}

impl State {
    pub(super) fn new(model: &ModelFixture, limit: i64, simulates: bool) -> Self {
        let mut tables = RunTables::new(NOW, ERROR_CODES);
        for (id, count) in model.accounts.iter().zip(CONTACTS_PER_ACCOUNT) {
            let mut account = InMemoryAccount::default();
            for contact in 0..count {
                let recipient = Recipient {
                    name: format!("Ana {contact}"),
                    phone: format!("+5511900000{contact:03}"),
                    user_id: None,
                    email: None,
                    attributes: serde_json::Map::new(),
                };
                let opted_out = false;
                account
                    .contacts
                    .insert(number(contact).into(), InMemoryContact { recipient, opted_out });
            }
            tables.accounts.insert(*id, account);
        }
        model.campaigns().for_each(|campaign| tables.add(campaign));
        Self {
            tables,
            limits: [limit, 100],
            simulates,
            histories: BTreeMap::new(),
            surplus: [0, 0],
            outcome: StepOutcome::Nothing,
            violation: None,
        }
    }

    pub(super) fn campaign(&self, at: usize) -> &InMemoryCampaign {
        &self.tables.campaigns[&number(at).into()]
    }

    pub(super) fn status(&self, at: usize) -> CampaignStatus {
        self.campaign(at).campaign.status
    }

    pub(super) fn is_paused(&self, at: usize) -> bool {
        self.campaign(at).campaign.paused_at.is_some()
    }

    /// Whether a worker has prepared the queued run. None: the campaign is not in the queue.
    pub(super) fn is_prepared(&self, at: usize) -> Option<bool> {
        Some(self.campaign(at).queue_entry.as_ref()?.prepared)
    }

    pub(super) fn account(&self, campaign: usize) -> &InMemoryAccount {
        &self.tables.accounts[&self.campaign(campaign).campaign.account_id]
    }

    pub(super) fn send(&self, (campaign, contact): Key) -> Option<&InMemorySend> {
        self.tables
            .sends
            .get(&(number(campaign).into(), number(contact).into()))
    }

    /// The sends of a campaign, in the order of their contacts.
    pub(super) fn sends_of(&self, campaign: usize) -> impl Iterator<Item = (Key, &InMemorySend)> + Clone {
        self.tables
            .sends_of(number(campaign).into())
            .map(|(key, send)| (key_of(key), send))
    }

    /// The ids of the sends in the in-memory store.
    fn ids(&self) -> BTreeMap<Key, SendId> {
        let sends = self.tables.sends.iter();
        sends.map(|(key, send)| (key_of(*key), send.id)).collect()
    }

    pub(super) fn history(&self, key: Key) -> History {
        self.histories.get(&key).cloned().unwrap_or_default()
    }

    pub(super) fn holder(&self, campaign: usize) -> Option<usize> {
        self.tables.holder(number(campaign).into()).map(index)
    }

    pub(super) fn is_held_by(&self, campaign: usize, worker: usize) -> bool {
        self.holder(campaign) == Some(worker)
    }

    pub(super) fn is_finished(&self, campaign: usize) -> bool {
        use CampaignStatus::{Completed, Partial, Sent};
        matches!(self.status(campaign), Sent | Completed | Partial)
    }

    /// The sends that a claim may return: due ones in any order, then others in their order.
    pub(super) fn claimable(&self, campaign: usize, after: Option<usize>) -> [Vec<Claimed>; 2] {
        let after = after.map(|contact| number(contact).into());
        let (due, fresh) = self.tables.due_sends(number(campaign).into(), after);
        let claimed = |key: SendKey| {
            let contact = &self.account(campaign).contacts[&key.1];
            (index(key.1.0), self.tables.sends[&key].attempts, !contact.opted_out)
        };
        [due, fresh].map(|keys| keys.into_iter().map(claimed).collect())
    }

    /// The state after the step.
    pub(super) fn after(self, model: &ModelFixture, step: &Step) -> Self {
        let mut state = self.clone();
        state.change_tables(model, step);
        let store = InMemoryRuns::new(state.tables);
        let caller = Caller {
            model,
            runs: &store,
            sends: &store,
            campaigns: &store,
            updates: &store,
            test_sends: &store,
            ids: &self.ids(),
            before: &self,
        };
        state.outcome = caller.run(step).now_or_never().expect("nothing waits");
        state.tables = store.tables().clone();
        state.violation = state.tables.check_sums().err();
        state.update_histories(&self, step);
        state.check_quota(&self, step);
        state
    }

    /// The changes that no store performs.
    fn change_tables(&mut self, model: &ModelFixture, step: &Step) {
        let tables = &mut self.tables;
        let now = tables.now;
        match step {
            Step::Expire(campaign) => {
                let entry = tables.entry_mut(number(*campaign).into()).unwrap();
                entry.leased_until = now - Duration::SECOND;
            }
            Step::Consent { account, contact, out } => {
                let account = tables.accounts.get_mut(&model.accounts[*account]).unwrap();
                account.contacts.get_mut(&number(*contact).into()).unwrap().opted_out = *out;
            }
            Step::Suspend { account, suspended } => {
                let account = tables.accounts.get_mut(&model.accounts[*account]).unwrap();
                account.suspended = *suspended;
            }
            Step::PassTime => {
                for send in tables.sends.values_mut() {
                    send.started_at = send.started_at.map(|at| at - Duration::DAY);
                    send.retry_at = send.retry_at.map(|at| at.min(now - Duration::SECOND));
                }
            }
            _ => {}
        }
    }

    fn update_histories(&mut self, before: &Self, step: &Step) {
        match step {
            Step::Record { campaign, results } => self.add_results(before, *campaign, results, true),
            Step::RecordAndStart { campaign, results, .. } => self.add_results(before, *campaign, results, false),
            _ => {}
        }
        match (step, self.outcome.clone()) {
            (_, StepOutcome::RecordAndStart { started, .. }) => started.into_iter().for_each(|key| self.add_start(key)),
            (Step::Retry { campaign, .. }, StepOutcome::Start(StartOutcome::Started { .. })) => {
                let waiting = self.sends_of(*campaign).filter(|(_, send)| send.waits());
                let waiting: Vec<Key> = waiting.map(|(key, _)| key).collect();
                for key in waiting {
                    let history = self.histories.entry(key).or_default();
                    (history.reported, history.outstanding) = (None, false);
                }
            }
            _ => {}
        }
    }

    fn add_results(&mut self, before: &Self, campaign: usize, results: &Results, all: bool) {
        for (contact, kind) in results {
            let key = (campaign, *contact);
            let history = self.histories.entry(key).or_default();
            history.outstanding &= !kind.puts_back();
            // `record_and_start` ignores a plain result of a send that did not start.
            if all || !kind.is_plain() || before.send(key).is_some_and(InMemorySend::is_open) {
                history.reported = Some(*kind);
            }
        }
    }

    fn add_start(&mut self, key: Key) {
        let history = self.histories.entry(key).or_default();
        if history.outstanding {
            self.violation = Some(format!("{key:?} started twice"));
        }
        history.starts += 1;
        (history.reported, history.outstanding) = (None, true);
    }

    /// Checks that no more messages are used than the limit allows. A message counts as surplus if it was reported as
    /// sent after the end of its run had released its reservation.
    fn check_quota(&mut self, before: &Self, step: &Step) {
        let unreserved = |key: &SendKey, send: &InMemorySend| {
            send.status == SendStatus::Pending && !before.tables.holds_reservation(*key)
        };
        for (key, send) in before.tables.sends.iter().filter(|(key, send)| unreserved(key, send)) {
            let status = self.tables.sends[key].status;
            let is_sent = !matches!(status, SendStatus::Pending | SendStatus::Failed);
            self.surplus[CAMPAIGNS[index(key.0.0)]] += i64::from(is_sent && send.status != status);
        }
        let has_reserved = matches!(
            self.outcome,
            StepOutcome::Start(StartOutcome::Started { .. }) | StepOutcome::Reserved(true)
        );
        for (at, account) in CAMPAIGNS.into_iter().enumerate() {
            let row = self.account(at);
            let (used, limit) = (row.sent + row.reserved + row.test_sends, self.limits[account]);
            let reserves = has_reserved && step.account() == Some(account);
            if used > limit + if reserves { 0 } else { self.surplus[account] } {
                self.violation = Some(format!("{used} of {limit} messages are used"));
            }
        }
    }

    /// The expected row of a send.
    fn send_line(&self, (campaign, contact): Key, send: &InMemorySend) -> String {
        let now = self.tables.now;
        let retry = match send.retry_at {
            None => "-",
            Some(at) if at <= now => "due",
            Some(_) => "later",
        };
        let (started, unknown) = (send.started_at.is_some(), send.unknown_at.is_some());
        let recently = send.started_at.is_some_and(|at| at + PAIR_INTERVAL > now);
        let (campaign, contact, status) = (campaign + 1, contact + 1, send.status);
        let (attempts, never) = (send.attempts, send.never_confirmed);
        let message = send.wa_message_id.as_deref().unwrap_or("-");
        let superseded = send.superseded.as_deref().unwrap_or("-");
        format!(
            "send {campaign} {contact} {status} started={started} recently={recently} unknown={unknown} \
             attempts={attempts} retry={retry} message={message} superseded={superseded} never={never}"
        )
    }

    fn campaign_lines(&self, at: usize) -> Vec<String> {
        let (row, name) = (self.campaign(at), at + 1);
        let campaign = &row.campaign;
        let (status, simulated, total) = (campaign.status, campaign.simulated, campaign.total_recipients);
        let paused = self.is_paused(at);
        let mut lines = vec![format!(
            "campaign {name} {status} paused={paused} simulated={simulated} total={total}"
        )];
        if let Some(entry) = &row.queue_entry {
            let (prepared, worker) = (entry.prepared, self.holder(at));
            let expired = worker.is_some() && entry.leased_until < self.tables.now;
            let worker = worker.map_or("-".to_owned(), |worker| (worker + 1).to_string());
            lines.push(format!(
                "queue {name} worker={worker} expired={expired} prepared={prepared}"
            ));
        }
        if let Some(counts) = row.counts {
            let SendCounts {
                total,
                pending,
                sent,
                delivered,
                read,
                failed,
            } = counts;
            lines.push(format!(
                "counters {name} {total} = {pending} {sent} {delivered} {read} {failed}"
            ));
        }
        lines.extend(self.sends_of(at).map(|(key, send)| self.send_line(key, send)));
        lines
    }

    /// The expected rows of the database, one line each.
    pub(super) fn lines(&self, model: &ModelFixture) -> Vec<String> {
        let mut lines: Vec<String> = (0..CAMPAIGNS.len()).flat_map(|at| self.campaign_lines(at)).collect();
        for (at, id) in model.accounts.iter().enumerate() {
            let account = &self.tables.accounts[id];
            let (sent, reserved, test_sends) = (account.sent, account.reserved, account.test_sends);
            lines.push(format!("usage {at} {sent} {reserved} {test_sends}"));
            let out = account.contacts.iter().filter(|(_, contact)| contact.opted_out);
            lines.extend(out.map(|(id, _)| format!("out {at} {}", index(id.0) + 1)));
            lines.extend(account.messages.keys().map(|message| format!("message {at} {message}")));
        }
        lines.sort_unstable();
        lines
    }
}
