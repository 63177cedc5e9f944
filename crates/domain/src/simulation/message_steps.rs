//! Steps of clients who make and cancel direct messages, of their contacts, and of the workers that send them.

use std::sync::Arc;

use serde_json::Value;
use time::Duration;

use super::executor::TaskInfo;
use super::steps::{Simulation, tenant};
use super::stores::Stores;
use crate::direct_messages::{
    Created, DirectMessage, DirectStatus, MessageInput, MessageRequest, MessageTemplateInput, Outcome, RecipientInput,
    RemovedMessage,
};
use crate::messaging::ContentInput;
use crate::shared::{AccountId, Clock, ContactId, MessageId};
use crate::templates::tests::approved_template;

/// The references that the clients of an account use.
const REFERENCES: usize = 12;

/// The phones of an account that belong to no contact at first.
const NEW_PHONES: usize = 2;

/// A client's request, as its response is checked.
struct ClientRequest {
    account: AccountId,
    reference: Option<String>,
    canonical: Value,
}

impl ClientRequest {
    fn of(account: AccountId, input: &MessageInput) -> Self {
        let request = MessageRequest::parse(input.clone()).unwrap();
        Self {
            account,
            reference: request.client_reference.clone(),
            canonical: request.canonical(),
        }
    }

    fn check(&self, stores: &Stores, id: MessageId) {
        let mut ledger = stores.ledger();
        ledger.message_responded(id, self.account, self.reference.as_ref(), &self.canonical);
    }
}

fn id_of(created: &Created) -> MessageId {
    let (Created::New(DirectMessage { id, .. })
    | Created::Repeated(DirectMessage { id, .. })
    | Created::Removed(RemovedMessage { id, .. })) = created;
    *id
}

impl Simulation {
    pub(super) fn message_step(&mut self) -> String {
        let account = self.scheduler.pick(&self.accounts).unwrap();
        match self.scheduler.below(20) {
            0..6 => {
                let input = self.message_input(account);
                // A client that got no response repeats its request.
                let times = if self.scheduler.percent(30) { 2 } else { 1 };
                (0..times).for_each(|_| self.create_message(account, input.clone()));
                let reference = input.client_reference;
                format!("create a message of account {account}, {times} times: {reference:?}")
            }
            6..10 => {
                let count = 3 + self.scheduler.below(6);
                let inputs = (0..count).map(|_| self.message_input(account)).collect();
                self.create_batch(account, inputs);
                format!("create {count} messages of account {account}")
            }
            10..15 => self.cancel_message(),
            15..18 => self.messenger_step(),
            _ => {
                let messages = self.stores.messages();
                let waiting = messages.messages.values().filter(|row| row.account_id == account);
                let waiting = waiting.filter(|row| row.message.status == DirectStatus::Pending);
                let waiting: Vec<ContactId> = waiting.map(|row| row.message.contact_id).collect();
                drop(messages);
                let Some(contact) = self.scheduler.pick(&waiting) else {
                    return "no contact has a waiting message".into();
                };
                let mut tables = self.stores.runs.tables();
                let row = tables
                    .accounts
                    .get_mut(&account)
                    .unwrap()
                    .contacts
                    .get_mut(&contact)
                    .unwrap();
                row.opted_out = !row.opted_out;
                format!("contact {contact} of account {account} opted out: {}", row.opted_out)
            }
        }
    }

    /// Kills a messenger that holds a queue, or stalls it, perhaps beyond its lease.
    fn messenger_step(&mut self) -> String {
        let holding = self.stores.ledger().messengers();
        let tasks = self
            .executor
            .tasks()
            .into_iter()
            .filter(|task| holding.contains(&task.id));
        let tasks: Vec<TaskInfo> = tasks.collect();
        let Some(TaskInfo { id, server, .. }) = self.scheduler.pick(&tasks) else {
            return "no messenger holds a queue".into();
        };
        if self.scheduler.percent(25) {
            self.executor.kill(id);
            return format!("kill messenger {id} of server {server}");
        }
        let time = Duration::seconds(i64::try_from(25 + self.scheduler.below(40)).unwrap());
        self.executor.stall(id, time);
        format!("stall messenger {id} of server {server} for {time}")
    }

    fn contact_of(&self, account: AccountId) -> ContactId {
        let runs = self.stores.runs.tables();
        let ids: Vec<ContactId> = runs.accounts[&account].contacts.keys().copied().collect();
        self.scheduler.pick(&ids).unwrap()
    }

    /// A new request, or one of the account's earlier ones.
    fn message_input(&mut self, account: AccountId) -> MessageInput {
        if self.scheduler.percent(25)
            && let Some((_, input)) = self
                .scheduler
                .pick(&self.requests)
                .filter(|(other, _)| *other == account)
        {
            return input;
        }
        let now = self.scheduler.now();
        let to = self.recipient_of(account);
        let template = MessageTemplateInput {
            id: Some(approved_template("Oi!", &[]).id),
            ..MessageTemplateInput::default()
        };
        let is_template = self.scheduler.percent(70);
        if let Some(contact) = to.contact_id.filter(|_| !is_template && self.scheduler.percent(80)) {
            self.stores.inbound.lock().unwrap().insert((account, contact), now);
        }
        let seconds = |seconds: usize| Duration::seconds(i64::try_from(seconds).unwrap());
        let wait = self.scheduler.pick(&[0, 0, 0, 0, 5, 3_600]).unwrap();
        let term = self.scheduler.pick(&[20, 600, 1_800]).unwrap();
        let number = self.scheduler.below(REFERENCES);
        let input = MessageInput {
            to: Some(to),
            template: is_template.then_some(template),
            content: if is_template {
                ContentInput::default()
            } else {
                ContentInput::text("Oi")
            },
            profile_id: None,
            send_at: (wait > 0).then(|| now + seconds(wait)),
            expires_at: Some(now + seconds(wait + term)),
            client_reference: self.scheduler.percent(60).then(|| format!("r{number}")),
        };
        self.requests.push((account, input.clone()));
        input
    }

    fn recipient_of(&self, account: AccountId) -> RecipientInput {
        let number = self.scheduler.below(NEW_PHONES);
        let contact = self.contact_of(account);
        let runs = self.stores.runs.tables();
        let phone = match self.scheduler.below(10) {
            0..6 => None,
            6..8 => Some(runs.accounts[&account].contacts[&contact].recipient.phone.clone()),
            _ => Some(format!("+55219{number:08}")),
        };
        RecipientInput {
            contact_id: phone.is_none().then_some(contact),
            phone,
            ..RecipientInput::default()
        }
    }

    fn create_message(&mut self, account: AccountId, input: MessageInput) {
        let (messages, stores) = (self.use_cases.messages.clone(), self.stores.clone());
        self.command(async move {
            let request = ClientRequest::of(account, &input);
            if let Ok(created) = messages.create(&tenant(account), input).await {
                request.check(&stores, id_of(&created));
            }
        });
    }

    fn create_batch(&mut self, account: AccountId, inputs: Vec<MessageInput>) {
        let (messages, stores): (_, Arc<Stores>) = (self.use_cases.messages.clone(), self.stores.clone());
        self.command(async move {
            let requests: Vec<_> = inputs.iter().map(|input| ClientRequest::of(account, input)).collect();
            let items = inputs.into_iter().map(Ok).collect();
            let Ok(batch) = messages.create_batch(&tenant(account), items).await else {
                return;
            };
            for (request, outcome) in requests.iter().zip(&batch.0) {
                match outcome {
                    Outcome::Done(created) => request.check(&stores, id_of(created)),
                    Outcome::Repeats(id) => request.check(&stores, *id),
                    Outcome::Refused(_) => {}
                }
            }
        });
    }

    fn cancel_message(&mut self) -> String {
        let tables = self.stores.messages();
        let rows = tables.messages.iter();
        let rows = rows.filter(|(_, row)| row.message.status == DirectStatus::Pending || self.scheduler.percent(10));
        let ids: Vec<_> = rows.map(|(id, row)| (row.account_id, *id)).collect();
        drop(tables);
        let Some((account, id)) = self.scheduler.pick(&ids) else {
            return "no message to cancel".into();
        };
        let (messages, stores) = (self.use_cases.messages.clone(), self.stores.clone());
        self.command(async move {
            if messages.cancel(&tenant(account), id).await.is_ok() {
                stores.ledger().cancel_responded(id);
            }
        });
        format!("cancel message {id}")
    }
}
