//! The state of the model: campaigns, sends, queue entries and quota. It is small enough to read as a whole.

use std::collections::{BTreeMap, BTreeSet};

use recado_domain::campaigns::{CampaignRefusal, CampaignStatus, RunReport, SendCounts, StartOutcome};
use recado_domain::messaging::SendStatus;
use recado_domain::shared::WriteOutcome;

/// The account of each campaign. Both campaigns of the first account use the same number.
pub(super) const CAMPAIGNS: [usize; 3] = [0, 0, 1];

/// The number of contacts per account.
pub(super) const CONTACTS_PER_ACCOUNT: [usize; 2] = [3, 2];

pub(super) const WORKERS: usize = 2;

/// Identifies a send by its campaign and its contact within the campaign's account.
pub(super) type Key = (usize, usize);

/// When a waiting send may start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// It has no retry time: it starts in the order of contacts.
    Never,
    /// Now, before all sends without a retry time.
    Due,
    Later,
}

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
    Released,
}

impl Kind {
    pub(super) const ALL: [Self; 9] = [
        Self::Sent,
        Self::SentWithoutId,
        Self::SentWithWaId,
        Self::Failed,
        Self::Stopped,
        Self::Unknown,
        Self::DeferredNow,
        Self::DeferredLong,
        Self::Released,
    ];

    /// Whether `record_and_start` writes the result in its single statement.
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Self::Sent | Self::SentWithoutId)
    }

    /// Whether WhatsApp certainly did not process the send, so that it waits again.
    pub(super) fn puts_back(self) -> bool {
        matches!(self, Self::DeferredNow | Self::DeferredLong | Self::Released)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Send {
    pub(super) status: SendStatus,
    pub(super) started: bool,
    /// Whether other runs of the number must not send to the contact yet.
    pub(super) recently: bool,
    pub(super) unknown: bool,
    pub(super) attempts: u32,
    pub(super) retry: Retry,
    pub(super) message: Option<String>,
    pub(super) superseded: Option<String>,
    pub(super) never_confirmed: bool,
    /// Whether it failed because the recipient stopped marketing messages.
    pub(super) stopped: bool,
    /// The number of starts.
    pub(super) starts: usize,
    /// The number of starts before the latest retry reset the send.
    pub(super) earlier: usize,
    /// The attempts that may have reached WhatsApp.
    pub(super) possible: BTreeSet<usize>,
    /// The recorded result of the latest attempt.
    pub(super) reported: Option<Kind>,
}

impl Send {
    pub(super) fn new() -> Self {
        Self {
            status: SendStatus::Pending,
            started: false,
            recently: false,
            unknown: false,
            attempts: 0,
            retry: Retry::Never,
            message: None,
            superseded: None,
            never_confirmed: false,
            stopped: false,
            starts: 0,
            earlier: 0,
            possible: BTreeSet::new(),
            reported: None,
        }
    }

    pub(super) fn waits(&self) -> bool {
        self.status == SendStatus::Pending && !self.started
    }

    /// The expected row of the database.
    fn row(&self, (campaign, contact): Key) -> String {
        let Self {
            status,
            started,
            unknown,
            attempts,
            never_confirmed,
            ..
        } = self;
        let retry = match self.retry {
            Retry::Never => "-",
            Retry::Due => "due",
            Retry::Later => "later",
        };
        let (campaign, contact, recently) = (campaign + 1, contact + 1, *started && self.recently);
        let message = self.message.as_deref().unwrap_or("-");
        let superseded = self.superseded.as_deref().unwrap_or("-");
        format!(
            "send {campaign} {contact} {status} started={started} recently={recently} unknown={unknown} \
             attempts={attempts} retry={retry} message={message} superseded={superseded} never={never_confirmed}"
        )
    }

    pub(super) fn is_open(&self) -> bool {
        self.status == SendStatus::Pending && self.started
    }
}

#[derive(Clone, Debug)]
pub(super) struct QueueEntry {
    pub(super) worker: Option<usize>,
    pub(super) expired: bool,
    pub(super) prepared: bool,
    /// The time of `State::clock` since which it waits.
    pub(super) order: usize,
    /// Whether the run is a retry.
    pub(super) retry: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Campaign {
    pub(super) status: CampaignStatus,
    pub(super) paused: bool,
    pub(super) simulated: bool,
    pub(super) total: usize,
    /// Whether the run sends from the account's number.
    pub(super) has_number: bool,
    /// Whether any run of the campaign has started.
    pub(super) begun: bool,
    pub(super) queue_entry: Option<QueueEntry>,
}

#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) suspended: bool,
    pub(super) limit: i64,
    pub(super) test_sends: i64,
    /// The number of messages reported as sent after their reservation was released.
    pub(super) surplus: i64,
    /// The contacts that opted out.
    pub(super) out: BTreeSet<usize>,
    /// The stored WhatsApp message ids.
    pub(super) messages: BTreeMap<String, Key>,
}

/// The outcome that the store must return for the last step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    Nothing,
    Start(StartOutcome),
    Write(WriteOutcome<CampaignStatus>),
    Taken(Option<usize>),
    /// `size` sends: first contacts of `due` in any order, then contacts of `fresh` in this order.
    Claimed {
        due: BTreeSet<usize>,
        fresh: Vec<usize>,
        size: usize,
        /// Sends that became due before the claim's position may be left to a later claim.
        goes_on: bool,
    },
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

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) campaigns: Vec<Campaign>,
    pub(super) accounts: Vec<Account>,
    pub(super) sends: BTreeMap<Key, Send>,
    /// Whether the second account has no number, so that its runs are simulated.
    pub(super) simulates: bool,
    pub(super) clock: usize,
    pub(super) outcome: StepOutcome,
}

/// The WhatsApp id of an attempt's message.
pub(super) fn message_of((campaign, contact): Key, attempt: usize) -> String {
    format!("m{campaign}{contact}-{attempt}")
}

/// The refusal of a campaign in another status.
pub(super) fn refused(status: CampaignStatus, command: recado_domain::campaigns::Command) -> StepOutcome {
    StepOutcome::Start(StartOutcome::Refused(CampaignRefusal::Status { status, command }))
}

impl State {
    pub(super) fn new(limit: i64, simulates: bool) -> Self {
        let campaign = Campaign {
            status: CampaignStatus::Draft,
            paused: false,
            simulated: false,
            total: 0,
            has_number: false,
            begun: false,
            queue_entry: None,
        };
        let account = |limit| Account {
            suspended: false,
            limit,
            test_sends: 0,
            surplus: 0,
            out: BTreeSet::new(),
            messages: BTreeMap::new(),
        };
        Self {
            campaigns: vec![campaign; CAMPAIGNS.len()],
            accounts: vec![account(limit), account(100)],
            sends: BTreeMap::new(),
            simulates,
            clock: 0,
            outcome: StepOutcome::Nothing,
        }
    }

    pub(super) fn tick(&mut self) -> usize {
        self.clock += 1;
        self.clock
    }

    pub(super) fn account(&self, campaign: usize) -> &Account {
        &self.accounts[CAMPAIGNS[campaign]]
    }

    /// The sends of a campaign, in the order of their contacts.
    pub(super) fn sends_of(&self, campaign: usize) -> impl Iterator<Item = (Key, &Send)> + Clone {
        self.sends
            .range((campaign, 0)..(campaign + 1, 0))
            .map(|(key, send)| (*key, send))
    }

    pub(super) fn holder(&self, campaign: usize) -> Option<usize> {
        self.campaigns[campaign].queue_entry.as_ref()?.worker
    }

    pub(super) fn is_held_by(&self, campaign: usize, worker: usize) -> bool {
        self.holder(campaign) == Some(worker)
    }

    pub(super) fn goes_on(&self, campaign: usize) -> bool {
        let stored = &self.campaigns[campaign];
        stored.status == CampaignStatus::Sending && !stored.paused && !self.account(campaign).suspended
    }

    pub(super) fn is_finished(&self, campaign: usize) -> bool {
        use CampaignStatus::{Completed, Partial, Sent};
        matches!(self.campaigns[campaign].status, Sent | Completed | Partial)
    }

    pub(super) fn counts(&self, campaign: usize) -> SendCounts {
        let count = |status| {
            let matching = self.sends_of(campaign).filter(|(_, send)| send.status == status);
            i64::try_from(matching.count()).unwrap()
        };
        SendCounts {
            total: i64::try_from(self.sends_of(campaign).count()).unwrap(),
            pending: count(SendStatus::Pending),
            sent: count(SendStatus::Sent),
            delivered: count(SendStatus::Delivered),
            read: count(SendStatus::Read),
            failed: count(SendStatus::Failed),
        }
    }

    /// The report of the campaign's run.
    pub(super) fn report(&self, campaign: usize) -> RunReport {
        let (counts, stored) = (self.counts(campaign), &self.campaigns[campaign]);
        RunReport {
            total: counts.total,
            sent: counts.accepted(),
            failed: match stored.status {
                CampaignStatus::Completed | CampaignStatus::Partial | CampaignStatus::Sent => {
                    counts.total - counts.accepted()
                }
                _ => counts.failed,
            },
            simulated: stored.simulated,
            status: stored.status,
            paused: stored.paused,
        }
    }

    /// The month's sent messages, and those reserved for sends that may still start or be accepted.
    pub(super) fn usage(&self, account: usize) -> (i64, i64) {
        let (mut sent, mut reserved) = (0, 0);
        for (key, send) in self.sends.iter().filter(|(key, _)| CAMPAIGNS[key.0] == account) {
            match send.status {
                SendStatus::Sent | SendStatus::Delivered | SendStatus::Read => sent += 1,
                SendStatus::Pending | SendStatus::Failed => reserved += i64::from(self.holds_reservation(*key)),
            }
        }
        (sent, reserved)
    }

    /// Whether the month's quota holds a reservation for the send.
    pub(super) fn holds_reservation(&self, key: Key) -> bool {
        let sending = self.campaigns[key.0].status == CampaignStatus::Sending;
        self.sends[&key].is_open() || sending && self.sends[&key].waits()
    }

    /// Whether another run of the same number recently sent to this contact.
    pub(super) fn has_concurrent_run(&self, (campaign, contact): Key) -> bool {
        let of_same_number = |at: &usize| {
            let (own, other) = (&self.campaigns[campaign], &self.campaigns[*at]);
            *at != campaign
                && CAMPAIGNS[*at] == CAMPAIGNS[campaign]
                && own.has_number
                && other.has_number
                && other.queue_entry.is_some()
        };
        let mut concurrent_runs = (0..CAMPAIGNS.len()).filter(of_same_number);
        concurrent_runs.any(|at| {
            let send = self.sends.get(&(at, contact));
            send.is_some_and(|send| send.started && send.recently)
        })
    }

    pub(super) fn used(&self, account: usize) -> i64 {
        let (sent, reserved) = self.usage(account);
        sent + reserved + self.accounts[account].test_sends
    }

    /// The expected rows of the database, one line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (at, stored) in self.campaigns.iter().enumerate() {
            let Campaign {
                status,
                paused,
                simulated,
                total,
                ..
            } = stored;
            let name = at + 1;
            lines.push(format!(
                "campaign {name} {status} paused={paused} simulated={simulated} total={total}"
            ));
            if let Some(QueueEntry {
                worker,
                expired,
                prepared,
                ..
            }) = &stored.queue_entry
            {
                let worker = worker.map_or("-".to_owned(), |worker| (worker + 1).to_string());
                lines.push(format!(
                    "queue {name} worker={worker} expired={expired} prepared={prepared}"
                ));
            }
            if stored.begun {
                let SendCounts {
                    total,
                    pending,
                    sent,
                    delivered,
                    read,
                    failed,
                } = self.counts(at);
                lines.push(format!(
                    "counters {name} {total} = {pending} {sent} {delivered} {read} {failed}"
                ));
            }
        }
        lines.extend(self.sends.iter().map(|(key, send)| send.row(*key)));
        for (at, account) in self.accounts.iter().enumerate() {
            let (sent, reserved) = self.usage(at);
            lines.push(format!("usage {at} {sent} {reserved} {}", account.test_sends));
            lines.extend(account.out.iter().map(|contact| format!("out {at} {}", contact + 1)));
            lines.extend(account.messages.keys().map(|message| format!("message {at} {message}")));
        }
        lines.sort_unstable();
        lines
    }
}
