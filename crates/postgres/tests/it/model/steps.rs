//! Random steps of the model: most are those of a correct worker, some violate the contract of the ports.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use recado_domain::campaigns::CampaignStatus;
use recado_domain::messaging::SendStatus;

use super::state::{CAMPAIGNS, CONTACTS_PER_ACCOUNT, Key, Kind, State, WORKERS};

/// The cause of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    Run,
    Template,
    Member,
}

/// A status update of a send.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) key: Key,
    /// The number of the send's attempt.
    pub(super) attempt: usize,
    /// Whether the update names the send, and not only the WhatsApp message.
    pub(super) named: bool,
    pub(super) status: SendStatus,
    /// Whether the error code says that the recipient stopped marketing messages.
    pub(super) stopped: bool,
}

pub(super) type Results = Vec<(usize, Kind)>;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Start {
        campaign: usize,
        worker: Option<usize>,
        expected: CampaignStatus,
    },
    EnqueueStart {
        campaign: usize,
        expected: CampaignStatus,
    },
    AbortStart(usize),
    Take(usize),
    Expire(usize),
    Claim {
        campaign: usize,
        worker: usize,
        after: Option<usize>,
        size: usize,
    },
    RecordAndStart {
        campaign: usize,
        worker: usize,
        results: Results,
        next: Vec<Key>,
    },
    Record {
        campaign: usize,
        results: Results,
    },
    Pause(usize, Pause),
    Resume(usize),
    Cancel(usize),
    /// A member edits or deletes a campaign that they still see as a draft.
    StaleEdit {
        campaign: usize,
        delete: bool,
    },
    Finish {
        campaign: usize,
    },
    Retry {
        campaign: usize,
        expected: CampaignStatus,
    },
    Release(usize, usize),
    Abandon(usize, usize),
    StatusUpdates(usize, Vec<Item>),
    FailUnknown,
    Consent {
        account: usize,
        contact: usize,
        out: bool,
    },
    Suspend {
        account: usize,
        suspended: bool,
    },
    ReserveTestSend(usize),
    ReleaseTestSend(usize),
    /// Makes waiting retries due and ends the time in which other runs must not send to the same contact.
    PassTime,
}

impl Step {
    /// The account whose monthly quota the step reserves from.
    pub(super) fn account(&self) -> Option<usize> {
        match self {
            Self::Start { campaign, .. } | Self::Retry { campaign, .. } => Some(CAMPAIGNS[*campaign]),
            Self::ReserveTestSend(account) => Some(*account),
            _ => None,
        }
    }
}

fn campaign() -> impl Strategy<Value = usize> {
    0..CAMPAIGNS.len()
}

fn worker() -> impl Strategy<Value = usize> {
    0..WORKERS
}

fn account() -> impl Strategy<Value = usize> {
    0..CONTACTS_PER_ACCOUNT.len()
}

/// Mostly the campaign's current status.
fn expected(state: &State, campaign: usize, wrong: CampaignStatus) -> BoxedStrategy<CampaignStatus> {
    let right = state.status(campaign);
    prop_oneof![6 => Just(right), 1 => Just(wrong)].boxed()
}

/// Mostly the worker that holds the run.
fn holder(state: &State, campaign: usize) -> BoxedStrategy<usize> {
    match state.holder(campaign) {
        Some(worker) => prop_oneof![7 => Just(worker), 1 => 0..WORKERS].boxed(),
        None => worker().boxed(),
    }
}

/// Mostly a campaign that meets the condition, if one does.
fn mostly(state: &State, condition: impl Fn(&State, usize) -> bool) -> BoxedStrategy<usize> {
    let matching: Vec<usize> = (0..CAMPAIGNS.len()).filter(|at| condition(state, *at)).collect();
    match matching.is_empty() {
        true => campaign().boxed(),
        false => prop_oneof![6 => select(matching), 1 => campaign()].boxed(),
    }
}

/// Mostly a campaign whose run a worker holds.
fn mostly_held(state: &State) -> BoxedStrategy<usize> {
    mostly(state, |state, at| state.holder(at).is_some())
}

/// Random results of some of these contacts.
fn results_of(contacts: Vec<usize>) -> BoxedStrategy<Results> {
    let count = contacts.len();
    let kind = prop_oneof![4 => Just(Kind::Sent), 5 => select(Kind::ALL.to_vec())];
    (subsequence(contacts, 0..=count), prop::collection::vec(kind, count))
        .prop_map(|(contacts, kinds)| contacts.into_iter().zip(kinds).collect())
        .boxed()
}

/// Mostly results of started sends without a result; sometimes of any started send.
fn results(state: &State, campaign: usize) -> BoxedStrategy<Results> {
    let started = state.sends_of(campaign).filter(|(_, send)| send.started_at.is_some());
    let unreported: Vec<usize> = started
        .clone()
        .filter(|(key, _)| state.history(*key).reported.is_none())
        .map(|((_, contact), _)| contact)
        .collect();
    let any_started: Vec<usize> = started.map(|((_, contact), _)| contact).collect();
    prop_oneof![4 => results_of(unreported), 1 => results_of(any_started)].boxed()
}

/// Successful results of random sends of the campaign; some of them usually never started.
fn results_of_any_send(state: &State, campaign: usize) -> BoxedStrategy<Results> {
    let contacts: Vec<usize> = state.sends_of(campaign).map(|((_, contact), _)| contact).collect();
    let count = contacts.len();
    subsequence(contacts, 0..=count)
        .prop_map(|contacts| contacts.into_iter().map(|contact| (contact, Kind::Sent)).collect())
        .boxed()
}

/// Mostly waiting sends of the campaign; sometimes any sends, even another campaign's.
fn next(state: &State, campaign: usize) -> BoxedStrategy<Vec<Key>> {
    let waiting = state.sends_of(campaign).filter(|(_, send)| send.waits());
    let waiting: Vec<Key> = waiting.map(|(key, _)| key).collect();
    let any_send = (0..CAMPAIGNS.len()).flat_map(|at| state.sends_of(at));
    let any_send: Vec<Key> = any_send.map(|(key, _)| key).collect();
    let some_of = |keys: Vec<Key>| {
        let count = keys.len();
        subsequence(keys, 0..=count).prop_shuffle()
    };
    prop_oneof![4 => some_of(waiting), 1 => some_of(any_send)].boxed()
}

fn record_and_start(state: &State) -> BoxedStrategy<Step> {
    let state = state.clone();
    mostly_held(&state)
        .prop_flat_map(move |campaign| {
            let (worker, next) = (holder(&state, campaign), next(&state, campaign));
            let results = prop_oneof![6 => results(&state, campaign), 1 => results_of_any_send(&state, campaign)];
            (worker, results, next).prop_map(move |(worker, results, next)| Step::RecordAndStart {
                campaign,
                worker,
                results,
                next,
            })
        })
        .boxed()
}

fn record(state: &State) -> BoxedStrategy<Step> {
    let state = state.clone();
    campaign()
        .prop_flat_map(move |campaign| {
            results(&state, campaign).prop_map(move |results| Step::Record { campaign, results })
        })
        .boxed()
}

fn claim(state: &State) -> BoxedStrategy<Step> {
    let state = state.clone();
    let after = prop::option::of(0..3_usize);
    (mostly_held(&state), after, 1..4_usize)
        .prop_flat_map(move |(campaign, after, size)| {
            holder(&state, campaign).prop_map(move |worker| Step::Claim {
                campaign,
                worker,
                after,
                size,
            })
        })
        .boxed()
}

/// Status updates of attempts, mostly of those that were started.
fn status_updates(state: &State) -> Option<BoxedStrategy<Step>> {
    let attempts_of = |account: usize, includes_unstarted: bool| {
        let campaigns = (0..CAMPAIGNS.len()).filter(move |at| CAMPAIGNS[*at] == account);
        let sends = campaigns.flat_map(|at| state.sends_of(at));
        let attempts = sends.flat_map(move |(key, _)| {
            let starts = state.history(key).starts;
            let first = usize::from(starts > 0 || !includes_unstarted);
            (first..=starts).map(move |attempt| (key, attempt))
        });
        attempts.collect::<Vec<(Key, usize)>>()
    };
    let accounts = 0..CONTACTS_PER_ACCOUNT.len();
    let started: Vec<Vec<(Key, usize)>> = accounts.clone().map(|at| attempts_of(at, false)).collect();
    let accounts: Vec<usize> = accounts.filter(|at| !started[*at].is_empty()).collect();
    if accounts.is_empty() {
        return None;
    }
    // Also attempts of the other account, which match nothing.
    let any_attempt: Vec<(Key, usize)> = (0..started.len()).flat_map(|at| attempts_of(at, true)).collect();
    let statuses = [
        SendStatus::Sent,
        SendStatus::Delivered,
        SendStatus::Read,
        SendStatus::Failed,
        SendStatus::Failed,
    ];
    let updates = select(accounts).prop_flat_map(move |account| {
        let item = (
            prop_oneof![9 => select(started[account].clone()), 1 => select(any_attempt.clone())],
            any::<bool>(),
            select(statuses.to_vec()),
            0..8_u8,
        );
        let item = item.prop_map(|((key, attempt), named, status, stopped)| Item {
            key,
            attempt,
            named,
            status,
            stopped: status == SendStatus::Failed && stopped == 0,
        });
        prop::collection::vec(item, 1..4).prop_map(move |items| Step::StatusUpdates(account, items))
    });
    Some(updates.boxed())
}

fn start(state: &State) -> BoxedStrategy<Step> {
    let state = state.clone();
    let unprepared =
        |state: &State, at: usize| state.status(at) == CampaignStatus::Draft || state.is_prepared(at) == Some(false);
    (mostly(&state, unprepared), worker_or_none())
        .prop_flat_map(move |(campaign, worker)| {
            expected(&state, campaign, CampaignStatus::Scheduled).prop_map(move |expected| Step::Start {
                campaign,
                worker,
                expected,
            })
        })
        .boxed()
}

fn retry(state: &State) -> BoxedStrategy<Step> {
    let state = state.clone();
    mostly(&state, State::is_finished)
        .prop_flat_map(move |campaign| {
            expected(&state, campaign, CampaignStatus::Completed)
                .prop_map(move |expected| Step::Retry { campaign, expected })
        })
        .boxed()
}

/// Steps of members, contacts, administrators and the clock.
fn external_step() -> BoxedStrategy<Step> {
    let contact = account().prop_flat_map(|account| (Just(account), 0..CONTACTS_PER_ACCOUNT[account], any::<bool>()));
    let pause = select(vec![Pause::Run, Pause::Template, Pause::Member]);
    prop_oneof![
        2 => (campaign(), pause).prop_map(|(campaign, pause)| Step::Pause(campaign, pause)),
        3 => campaign().prop_map(Step::Resume),
        1 => campaign().prop_map(Step::Cancel),
        1 => (campaign(), any::<bool>()).prop_map(|(campaign, delete)| Step::StaleEdit { campaign, delete }),
        2 => Just(Step::FailUnknown),
        1 => contact.prop_map(|(account, contact, out)| Step::Consent { account, contact, out }),
        4 => (account(), any::<bool>()).prop_map(|(account, suspended)| Step::Suspend { account, suspended }),
        1 => account().prop_map(Step::ReserveTestSend),
        1 => account().prop_map(Step::ReleaseTestSend),
        2 => Just(Step::PassTime),
    ]
    .boxed()
}

/// Claims, lost leases and releases of runs.
fn lease_step(state: &State) -> BoxedStrategy<Step> {
    let step_of_holder = |make: fn(usize, usize) -> Step| {
        let state = state.clone();
        mostly_held(&state)
            .prop_flat_map(move |campaign| holder(&state, campaign).prop_map(move |worker| make(campaign, worker)))
    };
    prop_oneof![
        4 => worker().prop_map(Step::Take),
        2 => mostly_held(state).prop_map(Step::Expire),
        1 => step_of_holder(Step::Release),
        1 => step_of_holder(Step::Abandon),
        1 => campaign().prop_map(Step::AbortStart),
    ]
    .boxed()
}

/// A step that advances a campaign, or removes what blocks it.
fn progress(state: &State) -> BoxedStrategy<Step> {
    let state = state.clone();
    campaign()
        .prop_flat_map(move |campaign| progress_of(&state, campaign))
        .boxed()
}

fn progress_of(state: &State, campaign: usize) -> BoxedStrategy<Step> {
    let account = CAMPAIGNS[campaign];
    let allow = Step::Suspend {
        account,
        suspended: false,
    };
    let step = next_step(state, campaign);
    // A worker may not have noticed yet that its run is paused or its account suspended.
    match (state.account(campaign).suspended, state.is_paused(campaign)) {
        (true, _) => prop_oneof![Just(allow), step].boxed(),
        (false, true) => prop_oneof![Just(Step::Resume(campaign)), step].boxed(),
        (false, false) => step,
    }
}

/// The next step of a campaign that nothing blocks.
fn next_step(state: &State, campaign: usize) -> BoxedStrategy<Step> {
    let expected = state.status(campaign);
    let waiting = state.sends_of(campaign).filter(|(_, send)| send.waits());
    let next: Vec<Key> = waiting.map(|(key, _)| key).collect();
    let unreported = state
        .sends_of(campaign)
        .filter(|(key, send)| send.started_at.is_some() && state.history(*key).reported.is_none());
    let unreported: Vec<usize> = unreported.map(|((_, contact), _)| contact).collect();
    let prepared = state.is_prepared(campaign) == Some(true);
    match (expected, state.holder(campaign)) {
        (CampaignStatus::Completed | CampaignStatus::Partial, _) => Just(Step::Retry { campaign, expected }).boxed(),
        (CampaignStatus::Sending, None) if prepared => worker().prop_map(Step::Take).boxed(),
        (CampaignStatus::Sending, Some(_)) if prepared && next.is_empty() && unreported.is_empty() => {
            Just(Step::Finish { campaign }).boxed()
        }
        (CampaignStatus::Sending, Some(worker)) if prepared => results_of(unreported)
            .prop_map(move |results| Step::RecordAndStart {
                campaign,
                worker,
                results,
                next: next.clone(),
            })
            .boxed(),
        _ => worker_or_none()
            .prop_map(move |worker| Step::Start {
                campaign,
                worker,
                expected,
            })
            .boxed(),
    }
}

fn worker_or_none() -> impl Strategy<Value = Option<usize>> {
    prop::option::of(worker())
}

pub(super) fn any_step(state: &State) -> BoxedStrategy<Step> {
    let expected = state.clone();
    let enqueue_start = campaign().prop_flat_map(move |campaign| {
        self::expected(&expected, campaign, CampaignStatus::Scheduled)
            .prop_map(move |expected| Step::EnqueueStart { campaign, expected })
    });
    let finish = mostly_held(state).prop_map(|campaign| Step::Finish { campaign });
    let updates = status_updates(state).unwrap_or_else(|| record_and_start(state));
    prop_oneof![
        16 => progress(state),
        2 => start(state),
        2 => enqueue_start,
        9 => record_and_start(state),
        4 => record(state),
        3 => claim(state),
        9 => updates,
        3 => finish,
        4 => retry(state),
        6 => lease_step(state),
        8 => external_step(),
    ]
    .boxed()
}

/// Whether a step meets the contract of the ports.
pub(super) fn is_allowed(state: &State, step: &Step) -> bool {
    use CampaignStatus::{Completed, Draft, Partial, Scheduled, Sending};
    match step {
        Step::Start { campaign, expected, .. } => {
            // A paused run is prepared only after it resumes.
            let paused = state.is_paused(*campaign);
            matches!(expected, Draft | Scheduled) || *expected == Sending && !paused
        }
        Step::EnqueueStart { expected, .. } => matches!(expected, Draft | Scheduled),
        Step::Retry { expected, .. } => matches!(expected, Completed | Partial),
        Step::Expire(campaign) => state.holder(*campaign).is_some(),
        Step::RecordAndStart {
            campaign,
            results,
            next,
            ..
        } => {
            let results_allowed = results.iter().all(|(contact, kind)| {
                let key = (*campaign, *contact);
                state.send(key).is_some() && (kind.is_plain() || is_started(state, key))
            });
            results_allowed && next.iter().all(|key| state.send(*key).is_some())
        }
        Step::Record { campaign, results } => results
            .iter()
            .all(|(contact, _)| is_started(state, (*campaign, *contact))),
        Step::StaleEdit { campaign, .. } => state.status(*campaign) != Draft,
        Step::Finish { campaign } => state.is_prepared(*campaign) != Some(false),
        Step::Release(campaign, worker) => {
            let mut sends = state.sends_of(*campaign);
            !state.is_held_by(*campaign, *worker)
                || !sends.any(|(key, send)| send.is_open() && state.history(key).reported.is_none())
        }
        Step::StatusUpdates(_, items) => items.iter().all(|item| state.send(item.key).is_some()),
        _ => true,
    }
}

fn is_started(state: &State, key: Key) -> bool {
    state.send(key).is_some_and(|send| send.started_at.is_some())
}
