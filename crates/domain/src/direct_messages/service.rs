//! The use cases of direct messages: make one or many, read, list and cancel.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;
use time::Date;

use super::creation::is_within_key;
use super::{
    CancelOutcome, CreationFacts, CreationOutcome, CreationPlan, Decision, DirectMessage, DirectMessageQuery,
    DirectMessageStore, ItemError, MessageInput, MessageRequest, NewContact, NewDirectMessage, Refusal, RemovedMessage,
    RequestedContent, decide, requested_template,
};
use crate::shared::{
    Conflict, CursorPage, FieldErrors, Ids, KeyScope, MessageId, RouteScope, ScopeArea, ScopeVerb, StoreError, Tenant,
    redacted_debug,
};
use crate::whatsapp::{ContentFileError, ContentFiles};

/// How often an insert is decided again after a concurrent change.
const INSERT_ATTEMPTS: u32 = 10;

/// Why a use case failed.
#[derive(Debug, Error)]
pub enum DirectMessageError {
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error("the scopes of the API key do not cover this message")]
    Forbidden,
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another request has the reference; the id of its message.
    #[error("Another message has this client_reference (details.id); use a new reference, or repeat the same request")]
    ReferenceTaken(MessageId),
    #[error("the message has left already, or has ended")]
    AlreadyLeft,
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for DirectMessageError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}

impl From<ItemError> for DirectMessageError {
    fn from(error: ItemError) -> Self {
        match error {
            ItemError::Invalid(errors) => Self::Invalid(errors),
            ItemError::Forbidden => Self::Forbidden,
            ItemError::Refused(refusal) => Self::Refused(refusal),
            ItemError::ReferenceTaken(id) => Self::ReferenceTaken(id),
        }
    }
}

/// The message of a request.
#[derive(Clone, PartialEq)]
pub enum Created {
    New(DirectMessage),
    /// An earlier request asked the same with the same reference.
    Repeated(DirectMessage),
    /// The same, and the message was removed since.
    Removed(RemovedMessage),
}

redacted_debug!(
    enum Created {
        New,
        Repeated,
        Removed,
    }
);

/// How one item of a batch ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Done(Box<Created>),
    /// An earlier item of the batch asked the same; the message of that item.
    Repeats(MessageId),
    Refused(ItemError),
}

/// An item of a batch: a checked request, or why it is not one.
pub type BatchItem = Result<MessageInput, FieldErrors>;

/// The outcomes of a batch, one an item, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch(pub Vec<Outcome>);

/// The use cases of direct messages.
pub struct DirectMessages {
    store: Arc<dyn DirectMessageStore>,
    files: ContentFiles,
    ids: Arc<dyn Ids>,
}

impl DirectMessages {
    pub fn new(store: Arc<dyn DirectMessageStore>, files: ContentFiles, ids: Arc<dyn Ids>) -> Self {
        Self { store, files, ids }
    }

    /// Makes one message, or finds that of an equal earlier request with its reference.
    pub async fn create(&self, tenant: &Tenant, input: MessageInput) -> Result<Created, DirectMessageError> {
        // The key is checked before the fields, as the role is.
        if !is_within_key(tenant, &input) {
            return Err(ItemError::Forbidden.into());
        }
        let request = MessageRequest::parse(input)?;
        let outcomes = self.create_all(tenant, &[Ok(request)]).await?;
        match outcomes.into_iter().next() {
            Some(Outcome::Done(created)) => Ok(*created),
            Some(Outcome::Refused(error)) => Err(error.into()),
            Some(Outcome::Repeats(_)) | None => Err(DirectMessageError::NotFound),
        }
    }

    /// Makes the messages of a batch. A bad item refuses itself alone; all others commit together.
    pub async fn create_batch(&self, tenant: &Tenant, items: Vec<BatchItem>) -> Result<Batch, DirectMessageError> {
        let parsed = items.into_iter().map(|item| item.and_then(MessageRequest::parse));
        let requests: Vec<_> = parsed.map(|item| item.map_err(ItemError::from)).collect();
        self.create_all(tenant, &requests).await.map(Batch)
    }

    async fn create_all(
        &self,
        tenant: &Tenant,
        items: &[Result<MessageRequest, ItemError>],
    ) -> Result<Vec<Outcome>, DirectMessageError> {
        let requests: Vec<MessageRequest> = items.iter().filter_map(|item| item.clone().ok()).collect();
        let account = tenant.account_id;
        let (mut left, mut known) = (BTreeMap::new(), None);
        for _ in 0..INSERT_ATTEMPTS {
            let facts = self.store.facts(account, &requests).await?;
            let unready = match known.take() {
                Some(unready) => unready,
                None => self.unready_files(tenant, items, &facts).await?,
            };
            let drafted = self.draft(tenant, items, facts, &left, &unready);
            if drafted.plan.messages.is_empty() {
                return Ok(drafted.outcomes);
            }
            match self.store.insert(account, &drafted.plan).await? {
                CreationOutcome::Inserted => return Ok(drafted.outcomes),
                CreationOutcome::Changed => {}
                CreationOutcome::QuotaExceeded { month, left: of_month } => {
                    left.insert(month, of_month);
                }
            }
            known = Some(unready);
        }
        Err(Conflict.into())
    }

    /// The errors of the items whose file cannot be sent, by position.
    async fn unready_files(
        &self,
        tenant: &Tenant,
        items: &[Result<MessageRequest, ItemError>],
        facts: &CreationFacts,
    ) -> Result<HashMap<usize, FieldErrors>, StoreError> {
        let mut unready = HashMap::new();
        for (position, item) in items.iter().enumerate() {
            let Ok(MessageRequest { content, .. }) = item else {
                continue;
            };
            match self.find_file(tenant, content, facts).await {
                Ok(()) => {}
                Err(ContentFileError::Invalid(errors)) => drop(unready.insert(position, errors)),
                Err(ContentFileError::Store(error)) => return Err(error),
            }
        }
        Ok(unready)
    }

    /// Whether the file of the content can be sent. An unknown template has no file.
    async fn find_file(
        &self,
        tenant: &Tenant,
        content: &RequestedContent,
        facts: &CreationFacts,
    ) -> Result<(), ContentFileError> {
        let account = tenant.account_id;
        match content {
            RequestedContent::FreeForm(content) => self.files.find(account, content).await.map(drop),
            RequestedContent::Template { values, .. } => {
                let template = requested_template(content, facts).ok().flatten();
                match (values.header_media, template) {
                    (Some(id), Some(template)) => {
                        let found = self.files.find_header(account, id, template.header_type);
                        found.await.map(drop)
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// Decides on all items, in order: the quota of a month is given to the first ones.
    fn draft(
        &self,
        tenant: &Tenant,
        items: &[Result<MessageRequest, ItemError>],
        facts: CreationFacts,
        left: &BTreeMap<Date, i64>,
        unready: &HashMap<usize, FieldErrors>,
    ) -> Draft {
        let mut draft = Draft::new(facts, left.clone());
        for (position, item) in items.iter().enumerate() {
            let outcome = match item {
                Err(error) => Outcome::Refused(error.clone()),
                Ok(request) => draft.add(tenant, request, unready.get(&position), self.ids.as_ref()),
            };
            draft.outcomes.push(outcome);
        }
        draft
    }

    /// A message. A key that only triggers templates sees its own messages.
    pub async fn get(&self, tenant: &Tenant, id: MessageId) -> Result<DirectMessage, DirectMessageError> {
        let found = self.store.find(tenant.account_id, id).await?;
        found
            .filter(|message| may_read(tenant, message))
            .ok_or(DirectMessageError::NotFound)
    }

    /// Newest first.
    pub async fn list(
        &self,
        tenant: &Tenant,
        query: &DirectMessageQuery,
    ) -> Result<CursorPage<DirectMessage>, DirectMessageError> {
        Ok(self.store.list(tenant.account_id, query).await?)
    }

    /// Cancels a message that has not left.
    pub async fn cancel(&self, tenant: &Tenant, id: MessageId) -> Result<DirectMessage, DirectMessageError> {
        match self.store.cancel(tenant.account_id, id).await? {
            CancelOutcome::Cancelled(message) => Ok(*message),
            CancelOutcome::AlreadyLeft => Err(DirectMessageError::AlreadyLeft),
            CancelOutcome::Missing => Err(DirectMessageError::NotFound),
        }
    }
}

/// Whether the caller may read all messages of the account. A key that only triggers templates may not.
fn reads_all(tenant: &Tenant) -> bool {
    let reads = RouteScope::new(ScopeArea::Messages, ScopeVerb::Read);
    reads.is_some_and(|scope| tenant.has_scope(scope))
}

fn may_read(tenant: &Tenant, message: &DirectMessage) -> bool {
    let Some(key) = &tenant.api_key else { return true };
    if reads_all(tenant) {
        return true;
    }
    let template = message.template.as_ref().map(|template| KeyScope::Trigger(template.id));
    message.api_key_id == Some(key.id) && template.is_some_and(|scope| key.scopes.has(scope))
}

/// Whether an equal request gets the earlier message. A key without `messages:read` gets those that it made.
fn may_repeat(tenant: &Tenant, message: &DirectMessage) -> bool {
    let own = tenant
        .api_key
        .as_ref()
        .is_some_and(|key| message.api_key_id == Some(key.id));
    own || may_read(tenant, message)
}

/// The decisions on a batch so far.
struct Draft {
    facts: CreationFacts,
    /// The messages that a month has left, where that is known.
    left: BTreeMap<Date, i64>,
    /// The references of the batch's new messages, with their requests.
    references: HashMap<String, (MessageId, Value)>,
    plan: CreationPlan,
    outcomes: Vec<Outcome>,
}

impl Draft {
    fn new(facts: CreationFacts, left: BTreeMap<Date, i64>) -> Self {
        let plan = CreationPlan {
            contacts: vec![],
            messages: vec![],
            quota: BTreeMap::new(),
            monthly_limit: facts.billing.messages_per_month(facts.now).unwrap_or(0),
            now: facts.now,
        };
        Self {
            facts,
            left,
            references: HashMap::new(),
            plan,
            outcomes: vec![],
        }
    }

    /// `unready`: why the file of the request cannot be sent. It does not matter for a repetition.
    fn add(
        &mut self,
        tenant: &Tenant,
        request: &MessageRequest,
        unready: Option<&FieldErrors>,
        ids: &dyn Ids,
    ) -> Outcome {
        let reference = request.client_reference.as_ref();
        if let Some((id, earlier)) = reference.and_then(|reference| self.references.get(reference)) {
            return match *earlier == request.canonical() {
                true => Outcome::Repeats(*id),
                false => Outcome::Refused(ItemError::ReferenceTaken(*id)),
            };
        }
        match decide(tenant, request, &self.facts, &|| ids.next()) {
            Decision::Bad(error) => Outcome::Refused(error),
            Decision::Repeated(message) if !may_repeat(tenant, &message) => {
                Outcome::Refused(ItemError::ReferenceTaken(message.id))
            }
            Decision::Repeated(message) => Outcome::Done(Box::new(Created::Repeated(*message))),
            Decision::Removed(removed) if !reads_all(tenant) => Outcome::Refused(ItemError::ReferenceTaken(removed.id)),
            Decision::Removed(removed) => Outcome::Done(Box::new(Created::Removed(removed))),
            Decision::New(..) if unready.is_some() => Outcome::Refused(unready.cloned().unwrap_or_default().into()),
            Decision::New(new, contact) => match self.reserve(new.quota_month) {
                Err(refusal) => Outcome::Refused(refusal.into()),
                Ok(()) => self.accept(request, *new, contact),
            },
        }
    }

    /// Takes one message of the month.
    fn reserve(&mut self, month: Option<Date>) -> Result<(), Refusal> {
        let Some(month) = month else { return Ok(()) };
        if let Some(left) = self.left.get_mut(&month) {
            if *left <= 0 {
                let limit = self.plan.monthly_limit;
                return Err(Refusal::MonthLimit { limit });
            }
            *left -= 1;
        }
        *self.plan.quota.entry(month).or_default() += 1;
        Ok(())
    }

    fn accept(&mut self, request: &MessageRequest, new: NewDirectMessage, contact: Option<NewContact>) -> Outcome {
        let message = new.message.clone();
        if let Some(reference) = &request.client_reference {
            self.references
                .insert(reference.clone(), (message.id, new.request.clone()));
        }
        if let Some(contact) = contact {
            // The next item for the same person finds this contact.
            let known = super::ContactFacts::of(&contact, &self.facts.numbers);
            self.facts.contacts.insert(request.to.clone(), known);
            self.plan.contacts.push(contact);
        }
        self.plan.messages.push(new);
        Outcome::Done(Box::new(Created::New(message)))
    }
}
