//! Random steps of the model: those of clients, of workers that die, stall and lose their lease, of WhatsApp, and of the
//! clock.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use recado_domain::direct_messages::HoldReason;
use recado_domain::messaging::SendStatus;
use time::Duration;

use super::state::State;

/// The account of each queue. The last one has no number: its messages are simulated.
pub(super) const QUEUES: [usize; 3] = [0, 0, 1];

pub(super) const WORKERS: usize = 3;

/// The number of contacts of each account. Only the first one has a conversation.
pub(super) const CONTACTS: usize = 2;

#[derive(Clone, Copy, Debug)]
pub(super) struct NewMessage {
    pub(super) contact: usize,
    /// Otherwise it is a text.
    pub(super) is_template: bool,
    /// The time until it is due.
    pub(super) delay: Duration,
    /// The time from then until it expires.
    pub(super) term: Duration,
    pub(super) reference: Option<usize>,
}

/// How the call for a message ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Sent,
    SentWithoutId,
    SentWithWaId,
    Failed,
    /// The contact stopped marketing messages.
    Stopped,
    Unknown,
    Deferred(Duration),
    Throttled(Duration),
    Released,
}

/// Messages are numbered in the order of their inserts, including those that were refused.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Insert {
        queue: usize,
        monthly_limit: i64,
        messages: Vec<NewMessage>,
    },
    Cancel {
        account: usize,
        message: usize,
    },
    Take(usize),
    Due(usize, u32),
    Start {
        queue: usize,
        worker: usize,
        limit: u32,
        is_number_removed: bool,
    },
    Record(usize, Vec<(usize, Kind)>),
    Release(usize, usize),
    Hold(usize, usize, HoldReason, Duration),
    Abandon(usize, usize),
    FailUnknown(Duration, usize),
    StatusUpdate {
        account: usize,
        message: usize,
        /// Whether the update contains Recado's id of the message.
        has_id: bool,
        status: SendStatus,
        stopped: bool,
    },
    /// A contact of an account opts in.
    OptIn(usize, usize),
    PassTime(Duration),
}

fn queue() -> impl Strategy<Value = usize> + Clone {
    0..QUEUES.len()
}

fn short_or_long() -> impl Strategy<Value = Duration> + Clone {
    select(vec![Duration::ZERO, Duration::seconds(30), Duration::HOUR])
}

/// Mostly one of the preferred values, if there is one.
fn mostly<T: Clone + std::fmt::Debug + 'static>(preferred: Vec<T>, any: BoxedStrategy<T>) -> BoxedStrategy<T> {
    match preferred.is_empty() {
        true => any,
        false => prop_oneof![8 => select(preferred), 1 => any].boxed(),
    }
}

/// Mostly a queue with the worker that holds it.
fn holder(state: &State) -> BoxedStrategy<(usize, usize)> {
    let holders = (0..QUEUES.len()).filter_map(|queue| Some((queue, state.holder(queue)?)));
    mostly(holders.collect(), (queue(), 0..WORKERS).boxed())
}

/// Mostly a message that matches.
fn message(state: &State, matches: impl Fn(usize) -> bool) -> BoxedStrategy<usize> {
    let preferred = (0..state.next_message).filter(|message| matches(*message));
    mostly(preferred.collect(), (0..state.next_message.max(1)).boxed())
}

fn new_message() -> impl Strategy<Value = NewMessage> {
    let delay = select(vec![
        Duration::ZERO,
        Duration::ZERO,
        Duration::ZERO,
        Duration::seconds(30),
        Duration::hours(2),
    ]);
    let term = select(vec![Duration::seconds(90), Duration::DAY, Duration::DAY]);
    let reference = option::weighted(0.5, 0..6_usize);
    (0..CONTACTS, any::<bool>(), delay, term, reference).prop_map(|(contact, is_template, delay, term, reference)| {
        NewMessage {
            // Most texts are to the contact with a conversation.
            contact,
            is_template: is_template || contact > 0,
            delay,
            term,
            reference,
        }
    })
}

fn insert() -> impl Strategy<Value = Step> {
    let messages = prop::collection::vec(new_message(), 1..4);
    (queue(), 2..9_i64, messages).prop_map(|(queue, monthly_limit, messages)| Step::Insert {
        queue,
        monthly_limit,
        messages,
    })
}

fn kind() -> impl Strategy<Value = Kind> + Clone {
    prop_oneof![
        4 => Just(Kind::Sent),
        1 => Just(Kind::SentWithoutId),
        1 => Just(Kind::SentWithWaId),
        2 => Just(Kind::Failed),
        1 => Just(Kind::Stopped),
        2 => Just(Kind::Unknown),
        2 => short_or_long().prop_map(Kind::Deferred),
        2 => short_or_long().prop_map(Kind::Throttled),
        2 => Just(Kind::Released),
    ]
}

/// Results of messages of one queue, mostly of those in flight.
fn record(state: &State) -> BoxedStrategy<Step> {
    let of_queue = |queue: usize, open: bool| -> Vec<usize> {
        let all = 0..state.next_message;
        all.filter(|message| state.is_in_queue(*message, queue) && (!open || state.is_open(*message)))
            .collect()
    };
    let open = (0..QUEUES.len()).map(|queue| (8, queue, of_queue(queue, true)));
    let any = (0..QUEUES.len()).map(|queue| (1, queue, of_queue(queue, false)));
    let choices = open.chain(any).filter(|(_, _, messages)| !messages.is_empty());
    let choices = choices.map(|(weight, queue, messages)| {
        let count = messages.len();
        let results = (subsequence(messages, 1..=count), prop::collection::vec(kind(), count));
        let step =
            results.prop_map(move |(messages, kinds)| Step::Record(queue, messages.into_iter().zip(kinds).collect()));
        (weight, step.boxed())
    });
    let choices: Vec<_> = choices.collect();
    match choices.is_empty() {
        true => insert().boxed(),
        false => proptest::strategy::Union::new_weighted(choices).boxed(),
    }
}

fn status_update(state: &State) -> impl Strategy<Value = Step> + use<> {
    let statuses = select(vec![
        SendStatus::Sent,
        SendStatus::Delivered,
        SendStatus::Read,
        SendStatus::Failed,
    ]);
    let message = message(state, |message| state.is_started(message));
    (
        prop::bool::weighted(0.1),
        message,
        any::<bool>(),
        statuses,
        prop::bool::weighted(0.1),
        state_accounts(state),
    )
        .prop_map(
            |(foreign, message, has_id, status, stopped, accounts)| Step::StatusUpdate {
                account: accounts
                    .get(message)
                    .map_or(0, |account| if foreign { 1 - account } else { *account }),
                message,
                has_id,
                status,
                stopped: stopped && status == SendStatus::Failed,
            },
        )
}

/// The account of each message.
fn state_accounts(state: &State) -> Just<Vec<usize>> {
    Just(
        (0..state.next_message)
            .map(|message| state.account_of(message))
            .collect(),
    )
}

fn cancel(state: &State) -> impl Strategy<Value = Step> + use<> {
    let message = message(state, |message| state.is_pending(message));
    (prop::bool::weighted(0.1), message, state_accounts(state)).prop_map(|(foreign, message, accounts)| Step::Cancel {
        account: accounts
            .get(message)
            .map_or(0, |account| if foreign { 1 - account } else { *account }),
        message,
    })
}

fn start(state: &State) -> impl Strategy<Value = Step> + use<> {
    (holder(state), 1..4_u32, prop::bool::weighted(0.05)).prop_map(|((queue, worker), limit, is_number_removed)| {
        Step::Start {
            queue,
            worker,
            limit,
            is_number_removed,
        }
    })
}

pub(super) fn any_step(state: &State) -> BoxedStrategy<Step> {
    let times = select(vec![
        Duration::seconds(10),
        Duration::seconds(31),
        Duration::seconds(61),
        Duration::HOUR,
        Duration::hours(25),
    ]);
    let reason = select(vec![HoldReason::Number, HoldReason::Suspended]);
    let ttl = select(vec![Duration::ZERO, Duration::seconds(30), Duration::HOUR]);
    prop_oneof![
        6 => insert(),
        2 => cancel(state),
        6 => (0..WORKERS).prop_map(Step::Take),
        1 => (queue(), 1..4_u32).prop_map(|(queue, limit)| Step::Due(queue, limit)),
        7 => start(state),
        7 => record(state),
        3 => holder(state).prop_map(|(queue, worker)| Step::Release(queue, worker)),
        2 => (holder(state), reason, short_or_long())
            .prop_map(|((queue, worker), reason, delay)| Step::Hold(queue, worker, reason, delay)),
        1 => holder(state).prop_map(|(queue, worker)| Step::Abandon(queue, worker)),
        1 => (ttl, select(vec![1, 2, 100])).prop_map(|(ttl, limit)| Step::FailUnknown(ttl, limit)),
        3 => status_update(state),
        1 => (0..2_usize, 0..CONTACTS).prop_map(|(account, contact)| Step::OptIn(account, contact)),
        4 => times.prop_map(Step::PassTime),
    ]
    .boxed()
}

/// Which of the messages that were started at the same time fail first is open.
pub(super) fn is_allowed(state: &State, step: &Step) -> bool {
    let Step::FailUnknown(_, limit) = step else { return true };
    let mut starts = state.open_starts();
    starts.sort_unstable();
    let cut = starts.get(limit - 1).zip(starts.get(*limit));
    cut.is_none_or(|(last, next)| last != next)
}
