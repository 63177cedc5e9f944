//! The state of a history: the in-memory store, with the contacts and templates of its caller.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use recado_domain::campaigns::{Recipient, SendResult};
use recado_domain::direct_messages::in_memory::{InMemoryMessage, MessageTables, PlantedMessageBug};
use recado_domain::direct_messages::{
    CancelOutcome, ContactFacts, ContentKind, CreationOutcome, CreationPlan, DepartureFacts, DirectMessage,
    DirectStatus, LeavingMessage, NewDirectMessage, NumberQueue, RequestedContent, RequestedTemplate,
};
use recado_domain::holds::HoldPolicy;
use recado_domain::messaging::MessageContent;
use recado_domain::shared::{AccountId, MessageId, UserId};
use recado_domain::templates::Template;
use serde_json::{Map, json};
use time::macros::datetime;
use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

use super::steps::{CONTACTS, Kind, NewMessage, QUEUES, Step};
use crate::error_codes::STOPPED_MARKETING;
use crate::histories::{index, number};
use crate::support::LEASE;

/// The start of a history, an hour before a month ends. It is later than the real time, which is the default of some
/// columns.
pub(super) const START: OffsetDateTime = datetime!(2099-03-31 23:00 UTC);

/// The duration of a step. The microsecond makes every time unique that is a whole number of seconds from `now()`, so
/// that the order of the queues is defined.
const STEP_TIME: Duration = Duration::microseconds(1_000_001);

pub(super) fn accounts() -> [AccountId; 2] {
    [1, 2].map(|number| AccountId(Uuid::from_u128(number << 64)))
}

pub(super) fn queue_of(queue: usize) -> NumberQueue {
    NumberQueue {
        account_id: accounts()[QUEUES[queue]],
        profile_id: (queue < 2).then(|| number(queue).into()),
    }
}

/// The id of an account's contact, and of its conversation.
pub(super) fn contact_id(account: usize, contact: usize) -> Uuid {
    number(account * CONTACTS + contact)
}

pub(super) fn phone(account: usize, contact: usize) -> String {
    format!("+551190000000{account}{contact}")
}

/// WhatsApp's id of a message.
pub(super) fn wa_message_id(message: usize) -> String {
    format!("m{message}")
}

fn wa_id(contact: Uuid) -> String {
    format!("5511{}", index(contact))
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StepOutcome {
    Nothing,
    Inserted(CreationOutcome),
    Cancelled(Result<(MessageId, DirectStatus, OffsetDateTime), &'static str>),
    Taken(Option<NumberQueue>),
    Count(u64),
    Started(Option<Vec<LeavingMessage>>),
    IsMatched(bool),
}

impl From<CancelOutcome> for StepOutcome {
    fn from(outcome: CancelOutcome) -> Self {
        Self::Cancelled(match outcome {
            CancelOutcome::Cancelled(message) => Ok((message.id, message.status, message.updated_at)),
            CancelOutcome::AlreadyLeft => Err("already left"),
            CancelOutcome::Missing => Err("missing"),
        })
    }
}

/// What the store's caller stores of a contact.
#[derive(Clone, Debug, Default)]
struct StoredContact {
    opted_out: bool,
    wa_id: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) tables: MessageTables,
    contacts: BTreeMap<Uuid, StoredContact>,
    /// The template of each account.
    templates: Rc<[Template; 2]>,
    /// The number of the next message.
    pub(super) next_message: usize,
    /// The outcome of the last step.
    pub(super) outcome: StepOutcome,
}

impl State {
    /// `bug`: the planted bug of the in-memory store.
    pub(super) fn new(templates: Rc<[Template; 2]>, bug: Option<PlantedMessageBug>) -> Self {
        let mut tables = MessageTables::new(START);
        tables.bug = bug;
        let mut contacts = BTreeMap::new();
        for (at, account) in accounts().into_iter().enumerate() {
            let conversation = contact_id(at, 0);
            tables
                .conversations
                .insert((account, conversation.into()), conversation.into());
            contacts.extend((0..CONTACTS).map(|contact| (contact_id(at, contact), StoredContact::default())));
        }
        Self {
            tables,
            contacts,
            templates,
            next_message: 0,
            outcome: StepOutcome::Nothing,
        }
    }

    fn row(&self, message: usize) -> Option<&InMemoryMessage> {
        self.tables.messages.get(&number(message).into())
    }

    pub(super) fn is_pending(&self, message: usize) -> bool {
        self.row(message)
            .is_some_and(|row| row.message.status == DirectStatus::Pending)
    }

    pub(super) fn is_started(&self, message: usize) -> bool {
        self.row(message).is_some_and(|row| row.message.started_at.is_some())
    }

    pub(super) fn is_open(&self, message: usize) -> bool {
        self.row(message).is_some_and(InMemoryMessage::is_open)
    }

    pub(super) fn is_in_queue(&self, message: usize, queue: usize) -> bool {
        let queue = queue_of(queue);
        self.row(message)
            .is_some_and(|row| (row.account_id, row.message.profile_id) == (queue.account_id, queue.profile_id))
    }

    /// The first account for a message that was refused.
    pub(super) fn account_of(&self, message: usize) -> usize {
        usize::from(self.row(message).is_some_and(|row| row.account_id == accounts()[1]))
    }

    /// The worker that holds a queue, by a lease that may have expired.
    pub(super) fn holder(&self, queue: usize) -> Option<usize> {
        let row = self.tables.queues.get(&queue_of(queue))?;
        row.worker.map(index)
    }

    /// When each message was started whose outcome is not known.
    pub(super) fn open_starts(&self) -> Vec<Option<OffsetDateTime>> {
        let open = self.tables.messages.values().filter(|row| row.is_open());
        open.map(|row| row.message.started_at).collect()
    }

    /// The state in which a step begins: time has passed, and what no store of messages performs has happened.
    pub(super) fn begin(&self, step: &Step) -> Self {
        let mut state = self.clone();
        state.tables.now += STEP_TIME;
        state.tables.events.clear();
        match step {
            Step::PassTime(time) => state.tables.now += *time,
            Step::OptIn(account, contact) => state.contact(contact_id(*account, *contact)).opted_out = false,
            _ => {}
        }
        state
    }

    fn contact(&mut self, id: Uuid) -> &mut StoredContact {
        self.contacts.entry(id).or_default()
    }

    /// The state after the step.
    pub(super) fn after(&self, step: &Step) -> Self {
        let mut state = self.begin(step);
        state.outcome = state.run(step);
        state
    }

    fn run(&mut self, step: &Step) -> StepOutcome {
        match step {
            Step::Insert { queue, messages, .. } => {
                let plan = self.plan_of(step);
                self.next_message += messages.len();
                let account = queue_of(*queue).account_id;
                StepOutcome::Inserted(self.tables.insert(account, &plan, |_| 0))
            }
            Step::Cancel { account, message } => {
                self.tables.cancel(accounts()[*account], number(*message).into()).into()
            }
            Step::Take(worker) => StepOutcome::Taken(self.tables.take(number(*worker), LEASE)),
            Step::Due(queue, limit) => StepOutcome::Count(self.tables.due(queue_of(*queue), *limit).into()),
            Step::Start {
                queue,
                worker,
                limit,
                is_number_removed,
            } => {
                let (queue, mut tables) = (queue_of(*queue), self.tables.clone());
                let facts = |row: &InMemoryMessage| self.departure_facts(row, *is_number_removed);
                let mut policy = HoldPolicy::off(self.tables.now);
                let started = tables.start(queue, number(*worker), *limit, LEASE, facts, &mut policy);
                self.tables = tables;
                StepOutcome::Started(started)
            }
            Step::Record(queue, results) => {
                let send_results = self.results(results);
                self.tables.record(queue_of(*queue), &send_results);
                self.change_contacts(results);
                StepOutcome::Nothing
            }
            Step::FailUnknown(ttl, limit) => StepOutcome::Count(self.tables.fail_unknown(*ttl, *limit)),
            Step::StatusUpdate { .. } => self.apply_status(step),
            other => {
                self.leave_queue(other);
                StepOutcome::Nothing
            }
        }
    }

    fn leave_queue(&mut self, step: &Step) {
        match step {
            Step::Release(queue, worker) => self.tables.release(queue_of(*queue), number(*worker), None),
            Step::Hold(queue, worker, reason, delay) => {
                self.tables
                    .release(queue_of(*queue), number(*worker), Some((*reason, *delay)));
            }
            Step::Abandon(queue, worker) => self.tables.abandon(queue_of(*queue), number(*worker)),
            _ => {}
        }
    }

    fn apply_status(&mut self, step: &Step) -> StepOutcome {
        let Step::StatusUpdate {
            account,
            message,
            has_id,
            status,
            stopped,
        } = step
        else {
            return StepOutcome::Nothing;
        };
        let (id, code) = (number(*message).into(), stopped.then_some(STOPPED_MARKETING));
        let wa_message_id = wa_message_id(*message);
        let account_id = accounts()[*account];
        let is_matched = self
            .tables
            .apply_status(account_id, has_id.then_some(id), &wa_message_id, *status, code);
        let contact = self.row(*message).map(|row| row.message.contact_id.0);
        if let Some(contact) = contact.filter(|_| is_matched && *stopped) {
            self.contact(contact).opted_out = true;
        }
        StepOutcome::IsMatched(is_matched)
    }

    /// What the results change in the contacts.
    fn change_contacts(&mut self, results: &[(usize, Kind)]) {
        for (message, kind) in results {
            let contact = self.row(*message).map(|row| row.message.contact_id.0);
            let Some(contact) = contact else { continue };
            match kind {
                Kind::Stopped => self.contact(contact).opted_out = true,
                Kind::SentWithWaId => self.contact(contact).wa_id = Some(wa_id(contact)),
                _ => {}
            }
        }
    }

    /// What the in-memory store inserts, and the store in PostgreSQL.
    pub(super) fn plan_of(&self, step: &Step) -> CreationPlan {
        let mut plan = CreationPlan {
            contacts: vec![],
            messages: vec![],
            quota: BTreeMap::new(),
            monthly_limit: 0,
            now: self.tables.now,
        };
        let Step::Insert {
            queue,
            monthly_limit,
            messages,
        } = step
        else {
            return plan;
        };
        plan.monthly_limit = *monthly_limit;
        for (at, new) in messages.iter().enumerate() {
            // The use case answers repeated references of one batch itself.
            let is_repeated = messages[..at].iter().any(|earlier| earlier.reference == new.reference);
            let reference = new.reference.filter(|_| !is_repeated);
            let new = self.new_message(self.next_message + at, *queue, *new, reference);
            if let Some(month) = new.quota_month {
                *plan.quota.entry(month).or_default() += 1;
            }
            plan.messages.push(new);
        }
        plan
    }

    fn new_message(&self, id: usize, queue: usize, new: NewMessage, reference: Option<usize>) -> NewDirectMessage {
        let (now, send_at) = (self.tables.now, self.tables.now + new.delay);
        let (account, profile_id) = (QUEUES[queue], queue_of(queue).profile_id);
        let template = &self.templates[account];
        let content = match new.is_template {
            true => RequestedContent::Template {
                key: RequestedTemplate::Id(template.id),
                variables: Default::default(),
                values: Default::default(),
            },
            false => RequestedContent::FreeForm(MessageContent::Text("Oi!".into())),
        };
        let message = DirectMessage {
            id: number(id).into(),
            contact_id: contact_id(account, new.contact).into(),
            phone: None,
            wa_user_id: None,
            profile_id,
            kind: if new.is_template {
                ContentKind::Template
            } else {
                ContentKind::Text
            },
            template: None,
            status: DirectStatus::Pending,
            started_at: None,
            is_unknown: false,
            hold_reason: None,
            retry_at: None,
            send_at,
            expires_at: send_at + new.term,
            sent_at: None,
            client_reference: reference.map(|reference| format!("r{reference}")),
            wa_message_id: None,
            error_code: None,
            error_message: None,
            failure_class: None,
            retry_after: None,
            pricing: None,
            address: None,
            conversation_id: None,
            created_by: UserId(number(0)),
            api_key_id: None,
            created_at: now,
            updated_at: now,
            now,
        };
        NewDirectMessage {
            message,
            request: json!({ "content": content }),
            template_id: new.is_template.then_some(template.id),
            media_id: None,
            quota_month: new.is_template.then(|| month_of(send_at)),
        }
    }

    /// The results in the type of the port.
    pub(super) fn results(&self, results: &[(usize, Kind)]) -> Vec<(MessageId, SendResult)> {
        let results = results.iter();
        results
            .map(|(message, kind)| (number(*message).into(), self.result(*message, *kind)))
            .collect()
    }

    fn result(&self, message: usize, kind: Kind) -> SendResult {
        let sent = |message_id, wa_id| SendResult::Sent { message_id, wa_id };
        let failed = |code| SendResult::Failed {
            code: Some(code),
            message: "refused".into(),
        };
        match kind {
            Kind::Sent => sent(Some(wa_message_id(message)), None),
            Kind::SentWithoutId => sent(None, None),
            Kind::SentWithWaId => {
                let contact = self.row(message).map(|row| row.message.contact_id.0);
                sent(Some(wa_message_id(message)), contact.map(wa_id))
            }
            Kind::Failed => failed(131_000),
            Kind::Stopped => failed(STOPPED_MARKETING),
            Kind::Unknown => SendResult::Unknown,
            Kind::Deferred(delay) => SendResult::Deferred { delay },
            Kind::Throttled(delay) => SendResult::Throttled { delay },
            Kind::Released => SendResult::Released,
        }
    }

    fn departure_facts(&self, row: &InMemoryMessage, is_number_removed: bool) -> DepartureFacts {
        let account = usize::from(row.account_id == accounts()[1]);
        let id = row.message.contact_id.0;
        let contact = index(id) - account * CONTACTS;
        let stored = &self.contacts[&id];
        DepartureFacts {
            id: row.message.id,
            content: row.content.clone(),
            contact: Some(ContactFacts {
                id: id.into(),
                recipient: Recipient {
                    name: "Ana".into(),
                    phone: phone(account, contact),
                    user_id: None,
                    email: None,
                    attributes: Map::new(),
                },
                wa_id: stored.wa_id.clone(),
                wa_user_id: None,
                user_ids: HashMap::new(),
                opted_out: stored.opted_out,
                last_inbound_at: (contact == 0).then_some(START),
                conversation_profile: None,
            }),
            template: row.content.template_key().map(|_| self.templates[account].clone()),
            has_plan: true,
            number: row.message.profile_id,
            is_number_removed,
            expires_at: row.message.expires_at,
            send_at: row.message.send_at,
            held_by: None,
            time_zone: None,
            person: row.message.contact_id,
            attempts: row.attempts,
            now: self.tables.now,
        }
    }
}

fn month_of(at: OffsetDateTime) -> Date {
    at.date().replace_day(1).unwrap()
}
