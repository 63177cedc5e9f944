//! The stores of direct messages. Their contacts and numbers are those of the campaigns.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use time::Duration;
use uuid::Uuid;

use super::bugs::SimulationBug;
use super::message_ledger::QueueHolder;
use super::stores::{Stores, Written};
use crate::callbacks::StatusUpdate;
use crate::campaigns::SendResult;
use crate::campaigns::in_memory::InMemoryContact;
use crate::direct_messages::in_memory::InMemoryMessage;
use crate::direct_messages::{
    CancelOutcome, ContactFacts, CreationFacts, CreationOutcome, CreationPlan, DepartureFacts, DirectMessage,
    DirectMessageQuery, DirectMessageQueue, DirectMessageStore, HoldReason, LeavingMessage, MessageRequest,
    NumberChoice, NumberQueue, QueueInputs, Requested, RequestedTemplate,
};
use crate::holds::HoldPolicy;
use crate::shared::{AccountId, Clock, ContactId, CursorPage, MessageId, ProfileId, StoreError};
use crate::templates::tests::approved_template;
use crate::whatsapp::StoredProfile;

impl Stores {
    /// The contacts of an account.
    fn contact_facts(&self, account: AccountId) -> BTreeMap<ContactId, ContactFacts> {
        let inbound = self.inbound.lock().unwrap();
        let runs = self.runs.tables();
        let contacts = runs.accounts[&account].contacts.iter().map(|(id, contact)| {
            let facts = ContactFacts {
                id: *id,
                recipient: contact.recipient.clone(),
                wa_id: None,
                wa_user_id: None,
                user_ids: HashMap::new(),
                opted_out: contact.opted_out,
                last_inbound_at: inbound.get(&(account, *id)).copied(),
                conversation_profile: None,
            };
            (*id, facts)
        });
        contacts.collect()
    }

    fn creation_facts(&self, account: AccountId, requests: &[MessageRequest]) -> CreationFacts {
        let contacts = self.contact_facts(account);
        let find = |to: &Requested| match to {
            Requested::Contact(id) => contacts.get(id).cloned(),
            Requested::Phone(phone) => {
                let mut all = contacts.values();
                all.find(|contact| contact.recipient.phone == phone.as_str()).cloned()
            }
            Requested::User(_) => None,
        };
        let template = approved_template("Oi!", &[]);
        let messages = self.messages();
        let references = requests.iter().filter_map(|request| request.client_reference.as_ref());
        let references = references.filter_map(|reference| {
            let row = messages.by_reference(account, reference)?;
            Some((reference.clone(), (row.message.clone(), row.request.clone())))
        });
        let numbers = self.runs.tables().accounts[&account].profiles.clone();
        CreationFacts {
            now: self.scheduler.now(),
            billing: self.entitlement(account),
            numbers: numbers
                .values()
                .map(|number| NumberChoice {
                    id: number.profile.id,
                    is_verified: number.is_verified(),
                })
                .collect(),
            contacts: requests
                .iter()
                .filter_map(|request| Some((request.to.clone(), find(&request.to)?)))
                .collect(),
            templates: HashMap::from([(RequestedTemplate::Id(template.id), template)]),
            references: references.collect(),
            removed: HashMap::new(),
        }
    }

    fn insert_messages(&self, account: AccountId, plan: &CreationPlan) -> CreationOutcome {
        let contacts = self.contact_facts(account);
        let exists = |phone: &str| contacts.values().any(|contact| contact.recipient.phone == phone);
        let new: Vec<InMemoryContact> = plan
            .contacts
            .iter()
            .map(|new| InMemoryContact {
                recipient: ContactFacts::of(new, &[]).recipient,
                opted_out: false,
            })
            .collect();
        let is_stale = new.iter().any(|contact| exists(&contact.recipient.phone));
        if is_stale && !self.has_bug(SimulationBug::ContactNotUnique) {
            return CreationOutcome::Changed;
        }
        let by_campaigns = {
            let account = &self.runs.tables().accounts[&account];
            account.used() - account.direct_messages
        };
        let mut messages = self.messages();
        let outcome = messages.insert(account, plan, |_| by_campaigns);
        if outcome == CreationOutcome::Inserted {
            let mut runs = self.runs.tables();
            let row = runs.accounts.get_mut(&account).unwrap();
            row.contacts.extend(plan.contacts.iter().map(|new| new.id).zip(new));
            for month in plan.quota.keys() {
                let used = by_campaigns + messages.used(account, *month);
                self.ledger().messages_accepted(used, plan.monthly_limit);
            }
            self.ledger().check_phones(&row.contacts);
        }
        outcome
    }

    fn start_messages(
        &self,
        queue: NumberQueue,
        worker: Uuid,
        limit: u32,
        lease: Duration,
        is_number_removed: bool,
    ) -> Option<Vec<LeavingMessage>> {
        let now = self.scheduler.now();
        let contacts = self.contact_facts(queue.account_id);
        let has_plan = self.entitlement(queue.account_id).messages_per_month(now).is_some();
        let facts = |row: &InMemoryMessage| DepartureFacts {
            id: row.message.id,
            content: row.content.clone(),
            contact: contacts
                .get(&row.message.contact_id)
                .cloned()
                .map(|contact| ContactFacts {
                    opted_out: contact.opted_out && !self.has_bug(SimulationBug::MessageOptOutIgnored),
                    ..contact
                }),
            template: row.content.template_key().map(|_| approved_template("Oi!", &[])),
            has_plan,
            number: queue.profile_id,
            is_number_removed,
            expires_at: row.message.expires_at,
            send_at: row.message.send_at,
            held_by: None,
            time_zone: None,
            person: row.message.contact_id,
            attempts: row.attempts,
            now,
        };
        let mut policy = HoldPolicy::off(now);
        let started = self.messages().start(queue, worker, limit, lease, facts, &mut policy)?;
        let starter = self.queue_holder(worker, lease);
        self.ledger().messages_started(queue, starter, now, &started, &contacts);
        Some(started)
    }

    /// The running task as the holder of a queue.
    fn queue_holder(&self, worker: Uuid, lease: Duration) -> QueueHolder {
        QueueHolder {
            worker,
            task: self.scheduler.running(),
            leased_until: self.scheduler.now() + lease,
        }
    }

    /// Applies a status update to a direct message. False: it matches none.
    pub(super) fn apply_to_message(&self, account: AccountId, update: &StatusUpdate) -> bool {
        let id = update.send_id.map(|id| MessageId(id.0));
        let (message, code) = (&update.message_id, update.error_code);
        let is_matched = self.messages().apply_status(account, id, message, update.status, code);
        self.commit(Written::Messages);
        is_matched
    }
}

#[async_trait]
impl DirectMessageStore for Stores {
    async fn facts(&self, account: AccountId, requests: &[MessageRequest]) -> Result<CreationFacts, StoreError> {
        self.call("message facts", async { Ok(self.creation_facts(account, requests)) })
            .await
    }

    async fn insert(&self, account: AccountId, plan: &CreationPlan) -> Result<CreationOutcome, StoreError> {
        let insert = async { Ok(self.insert_messages(account, plan)) };
        self.write("insert messages", Written::Messages, insert).await
    }

    async fn find(&self, _: AccountId, _: MessageId) -> Result<Option<DirectMessage>, StoreError> {
        unreachable!("a simulation reads no message")
    }

    async fn list(&self, _: AccountId, _: &DirectMessageQuery) -> Result<CursorPage<DirectMessage>, StoreError> {
        unreachable!("a simulation lists no messages")
    }

    async fn cancel(&self, account: AccountId, id: MessageId) -> Result<CancelOutcome, StoreError> {
        let cancel = async { Ok(self.messages().cancel(account, id)) };
        self.write("cancel message", Written::Messages, cancel).await
    }
}

#[async_trait]
impl DirectMessageQueue for Stores {
    async fn take(&self, worker: Uuid, lease: Duration) -> Result<Option<NumberQueue>, StoreError> {
        self.call("take message queue", async {
            let taken = self.messages().take(worker, lease);
            if let Some(queue) = taken {
                let holder = self.queue_holder(worker, lease);
                self.ledger().queue_taken(queue, holder, self.scheduler.now());
                self.commit(Written::Messages);
            }
            Ok(taken)
        })
        .await
    }

    async fn inputs(&self, queue: NumberQueue) -> Result<Option<QueueInputs>, StoreError> {
        self.call("queue inputs", async {
            let runs = self.runs.tables();
            let account = &runs.accounts[&queue.account_id];
            let profile = queue.profile_id.and_then(|id| account.profiles.get(&id));
            let number = |number: &StoredProfile| NumberChoice {
                id: number.profile.id,
                is_verified: number.is_verified(),
            };
            let mut numbers: Vec<_> = account.profiles.values().map(number).collect();
            numbers.sort_by_key(|number| (!number.is_verified, number.id));
            Ok(Some(QueueInputs {
                profile: profile.cloned(),
                is_active: !account.suspended,
                held: self.messages().held(queue),
                successor: numbers.first().copied().filter(|_| queue.profile_id.is_none()),
            }))
        })
        .await
    }

    async fn due(&self, queue: NumberQueue, limit: u32) -> Result<u32, StoreError> {
        self.call("due messages", async { Ok(self.messages().due(queue, limit)) })
            .await
    }

    async fn start(
        &self,
        queue: NumberQueue,
        worker: Uuid,
        limit: u32,
        lease: Duration,
        is_number_removed: bool,
    ) -> Result<Option<Vec<LeavingMessage>>, StoreError> {
        let start = async { Ok(self.start_messages(queue, worker, limit, lease, is_number_removed)) };
        self.write("start messages", Written::Messages, start).await
    }

    async fn record(&self, queue: NumberQueue, results: &[(MessageId, SendResult)]) -> Result<(), StoreError> {
        let record = async {
            self.messages().record(queue, results);
            Ok(())
        };
        self.write("record messages", Written::Messages, record).await
    }

    async fn release(&self, queue: NumberQueue, worker: Uuid) -> Result<(), StoreError> {
        self.leave_queue("release message queue", queue, worker, |stores| {
            stores.messages().release(queue, worker, None);
        })
        .await
    }

    async fn hand_over(&self, queue: NumberQueue, worker: Uuid, number: ProfileId) -> Result<(), StoreError> {
        self.leave_queue("hand message queue over", queue, worker, |stores| {
            stores.messages().hand_over(queue, worker, number);
        })
        .await
    }

    async fn hold(
        &self,
        queue: NumberQueue,
        worker: Uuid,
        reason: HoldReason,
        delay: Duration,
    ) -> Result<(), StoreError> {
        self.leave_queue("hold message queue", queue, worker, |stores| {
            stores.messages().release(queue, worker, Some((reason, delay)));
        })
        .await
    }

    async fn abandon(&self, queue: NumberQueue, worker: Uuid) -> Result<(), StoreError> {
        self.leave_queue("abandon message queue", queue, worker, |stores| {
            stores.messages().abandon(queue, worker);
        })
        .await
    }

    async fn release_holds(&self, _: i64) -> Result<u64, StoreError> {
        unreachable!("no settings of a simulation change")
    }

    async fn fail_unknown(&self, ttl: Duration, limit: i64) -> Result<u64, StoreError> {
        let limit = usize::try_from(limit).unwrap();
        let fail = async { Ok(self.messages().fail_unknown(ttl, limit)) };
        self.write("fail unknown messages", Written::Messages, fail).await
    }
}

impl Stores {
    /// A call by which a worker gives a queue back.
    async fn leave_queue(
        &self,
        label: &'static str,
        queue: NumberQueue,
        worker: Uuid,
        leave: impl Fn(&Self) + Send + Sync,
    ) -> Result<(), StoreError> {
        self.write(label, Written::Messages, async {
            leave(self);
            self.ledger().queue_left(queue, worker);
            Ok(())
        })
        .await
    }
}
