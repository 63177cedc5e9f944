//! Processing of callbacks: each is stored first and applied at once. It is applied again later if a change arrived
//! before the message or template that it concerns.

mod inbound;
mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use time::Duration;

use self::progress::Progress;
use super::{
    CallbackChange, CallbackReader, CallbackReport, CallbackStore, HeldMessages, NamedRecipient, ReceivedInbound,
    StatusUpdate, StatusUpdateStore, StoredCallback, TemplateChange, TemplateUpdate, Unreadable,
};
use crate::campaigns::RunStore;
use crate::conversations::{InboundEvent, InboxStore};
use crate::messaging::MetaStatus;
use crate::shared::{AccountId, CallbackId, Clock, Ids, StoreError, WriteOutcome, retry_on_conflict};
use crate::templates::{
    Template, TemplateStore, apply_review, category_notifications, review_events, with_category_update,
};
use crate::whatsapp::Recent;
use crate::whatsapp::verification::{BusinessUpdates, NumberHolderStore};

/// The lease of a claimed callback. After it, another worker may claim the callback.
pub const PROCESSING_LEASE: Duration = Duration::seconds(30);

/// How often a callback with changes of unknown messages or templates is applied again (after 1, 2, 4, ... seconds).
/// After that it is deleted: the changes belong to another system.
const RETRIES: u32 = 6;

/// How often a review status of a draft is applied again. WhatsApp may report it before it answers the submission,
/// which makes the draft a pending template. A later one concerns content that has since changed.
const EARLY_RETRIES: u32 = 2;

/// How often a callback is claimed before it is set aside. With at most `LONGEST_BACKOFF` between two claims, that is
/// more than an hour.
pub const MAX_CLAIMS: u32 = 20;
const LONGEST_BACKOFF: Duration = Duration::minutes(5);

pub struct CallbackStores {
    pub callbacks: Arc<dyn CallbackStore>,
    pub status_updates: Arc<dyn StatusUpdateStore>,
    pub inbox: Arc<dyn InboxStore>,
    pub holders: Arc<dyn NumberHolderStore>,
    pub templates: Arc<dyn TemplateStore>,
    pub runs: Arc<dyn RunStore>,
}

/// Receives, stores and applies WhatsApp's callbacks.
pub struct Callbacks {
    stores: CallbackStores,
    held: HeldMessages,
    reader: Arc<dyn CallbackReader>,
    report: Arc<dyn CallbackReport>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    /// The numbers whose callbacks were noted lately.
    noted: Recent<String>,
    business_updates: Option<Arc<BusinessUpdates>>,
}

impl Callbacks {
    pub fn new(
        stores: CallbackStores,
        held: HeldMessages,
        reader: Arc<dyn CallbackReader>,
        report: Arc<dyn CallbackReport>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            stores,
            held,
            reader,
            report,
            clock,
            ids,
            noted: Recent::default(),
            business_updates: None,
        }
    }

    /// Also applies updates of numbers and business accounts. Default: they are skipped.
    #[must_use]
    pub fn with_business_updates(self, updates: Arc<BusinessUpdates>) -> Self {
        let business_updates = Some(updates);
        Self {
            business_updates,
            ..self
        }
    }

    /// Stores a callback durably and claims it for the caller, who has verified the signature and then calls
    /// [`Callbacks::process`].
    pub async fn receive(&self, body: &[u8]) -> Result<StoredCallback, StoreError> {
        let id = CallbackId::from(self.ids.next());
        self.stores.callbacks.store(id, body, PROCESSING_LEASE).await?;
        Ok(StoredCallback {
            id,
            body: body.to_vec(),
            attempts: 0,
            claims: 0,
        })
    }

    /// Claims and processes one due callback. Returns false if none is due.
    pub async fn process_next(&self) -> Result<bool, StoreError> {
        match self.stores.callbacks.claim(PROCESSING_LEASE).await? {
            Some(callback) => self.process(&callback).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Applies the changes of a callback, then deletes it. If a change concerns an unknown message or template, the
    /// callback is deferred. Every change is idempotent, so a crash between the steps is harmless. After an error the
    /// callback is retried with exponential backoff, and set aside after [`MAX_CLAIMS`] claims.
    pub async fn process(&self, callback: &StoredCallback) -> Result<(), StoreError> {
        // The callback is not applied again: the worker of its last claim did not finish, perhaps because of it.
        if callback.claims >= MAX_CLAIMS {
            let error = StoreError::Unavailable("the last attempt did not finish".into());
            return self.set_aside(callback.id, &error).await;
        }
        match self.apply(callback).await {
            Ok(complete) if complete || callback.attempts >= RETRIES => self.stores.callbacks.delete(callback.id).await,
            Ok(_) => {
                let delay = Duration::seconds(2_i64.saturating_pow(callback.attempts));
                self.stores.callbacks.defer(callback.id, delay).await
            }
            Err(error) if callback.claims + 1 >= MAX_CLAIMS => self.set_aside(callback.id, &error).await,
            Err(error) => {
                let delay = Duration::seconds(2_i64.saturating_pow(callback.claims)).min(LONGEST_BACKOFF);
                self.stores.callbacks.postpone(callback.id, delay).await?;
                Err(error)
            }
        }
    }

    async fn set_aside(&self, id: CallbackId, error: &StoreError) -> Result<(), StoreError> {
        self.stores.callbacks.set_aside(id).await?;
        self.report.set_aside(id, error);
        Ok(())
    }

    /// Parses the callback, and reports its unsupported parts on the first attempt.
    fn read(&self, callback: &StoredCallback) -> Vec<CallbackChange> {
        let body = self.reader.read(&callback.body);
        if callback.attempts == 0 && callback.claims == 0 {
            match &body {
                Ok(body) => body.unread.iter().for_each(|unread| self.report.unread(unread)),
                Err(Unreadable) => self.report.unreadable(callback.id),
            }
        }
        body.unwrap_or_default().changes
    }

    /// Applies every change, and continues after an item that cannot be applied. Returns whether each change found the
    /// message or template that it concerns.
    async fn apply(&self, callback: &StoredCallback) -> Result<bool, StoreError> {
        let may_be_early = callback.attempts < EARLY_RETRIES;
        let mut progress = Progress::new(callback.claims > 0);
        let mut by_number: BTreeMap<String, Vec<StatusUpdate>> = BTreeMap::new();
        let mut recipients_by_number: BTreeMap<String, Vec<NamedRecipient>> = BTreeMap::new();
        let mut inbound_by_number: BTreeMap<String, Vec<InboundEvent>> = BTreeMap::new();
        for item in self.read(callback) {
            match item {
                CallbackChange::Status(status) => {
                    if let Some(recipient) = NamedRecipient::of(&status) {
                        let number = status.phone_number_id.clone();
                        recipients_by_number.entry(number).or_default().push(recipient);
                    }
                    by_number.entry(status.phone_number_id).or_default().push(status.update);
                }
                CallbackChange::Inbound(ReceivedInbound { phone_number_id, event }) => {
                    inbound_by_number.entry(phone_number_id).or_default().push(event);
                }
                CallbackChange::Account(update) => {
                    if let Some(numbers) = &self.business_updates {
                        progress.note(numbers.apply(&update).await)?;
                    }
                }
                CallbackChange::Template(update) => {
                    let found = self.apply_template_update(&update, may_be_early).await;
                    progress.complete &= progress.note(found)?.unwrap_or(true);
                }
            }
        }
        let numbers = by_number.keys().chain(inbound_by_number.keys()).cloned().collect();
        for (number, events) in inbound_by_number {
            self.receive_inbound(&number, &events, &mut progress).await?;
        }
        for (number, updates) in by_number {
            progress.complete &= self.apply_status_updates(&number, updates, &mut progress).await?;
        }
        for (number, recipients) in recipients_by_number {
            self.learn_recipients(&number, &recipients, &mut progress).await?;
        }
        self.note_numbers(numbers, &mut progress).await?;
        progress.end()
    }

    /// Notes when WhatsApp last called back about these numbers.
    async fn note_numbers(&self, numbers: BTreeSet<String>, progress: &mut Progress) -> Result<(), StoreError> {
        for number in numbers {
            if self.noted.is_due(number.clone(), self.clock.now()) {
                progress.note(self.stores.holders.note_callback(&number).await)?;
            }
        }
        Ok(())
    }

    /// Applies the status updates of one number. If several accounts connected it, each is given the updates that the
    /// accounts before it did not match. A send belongs to one account, so no account sees updates of another.
    async fn apply_status_updates(
        &self,
        number: &str,
        mut updates: Vec<StatusUpdate>,
        progress: &mut Progress,
    ) -> Result<bool, StoreError> {
        // Former owners of the number too: a status matches by Recado's or WhatsApp's message id, never by the number.
        let accounts = self.stores.callbacks.accounts_that_had_number(number).await?;
        if accounts.is_empty() {
            return Ok(true);
        }
        for account in accounts {
            updates = self.apply_to_sends(account, updates, progress).await?;
            if updates.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Applies status updates to the account's messages as one batch; if that fails, one by one. Returns the updates
    /// that match no message of the account.
    async fn apply_to_sends(
        &self,
        account: AccountId,
        updates: Vec<StatusUpdate>,
        progress: &mut Progress,
    ) -> Result<Vec<StatusUpdate>, StoreError> {
        let applied = self.stores.status_updates.apply(account, &updates).await;
        if !progress.should_split(&applied, updates.len()) {
            let unmatched = progress.note(applied)?.unwrap_or_default();
            return Ok(unmatched
                .into_iter()
                .filter_map(|position| updates.get(position).cloned())
                .collect());
        }
        let mut unmatched = Vec::new();
        for item in updates {
            let applied = self
                .stores
                .status_updates
                .apply(account, std::slice::from_ref(&item))
                .await;
            if progress.note(applied)?.is_some_and(|positions| !positions.is_empty()) {
                unmatched.push(item);
            }
        }
        Ok(unmatched)
    }

    async fn apply_template_update(&self, update: &TemplateUpdate, may_be_early: bool) -> Result<bool, StoreError> {
        let holders = self.stores.holders.verified_of_business(&update.waba_id).await?;
        let accounts: BTreeSet<AccountId> = holders.into_iter().map(|holder| holder.account_id).collect();
        let mut found = accounts.is_empty();
        for account in accounts {
            found |= self.apply_to_account_template(account, update, may_be_early).await?;
        }
        Ok(found)
    }

    /// Returns whether the account has the template.
    async fn apply_to_account_template(
        &self,
        account: AccountId,
        update: &TemplateUpdate,
        may_be_early: bool,
    ) -> Result<bool, StoreError> {
        retry_on_conflict(async || {
            let Some(template) = self
                .stores
                .templates
                .find_by_meta_id(account, &update.meta_template_id)
                .await?
            else {
                return Ok(Some(false));
            };
            // Pauses first, even if the template itself does not change: an interrupted attempt repeats both steps.
            if let Some(reason) = stop_reason(&update.change) {
                self.stores.runs.pause_template(account, template.id, reason).await?;
            }
            let is_review = matches!(update.change, TemplateChange::Review(_));
            if is_review && template.meta_status == MetaStatus::Draft {
                return Ok(Some(!may_be_early));
            }
            let Some(changed) = with_update(&template, &update.change, self.clock.now()) else {
                return Ok(Some(true));
            };
            let mut events = review_events(&template, &changed);
            events.extend(category_notifications(&template, &changed));
            Ok(
                match self.stores.templates.update(&changed, &template, &events).await? {
                    WriteOutcome::Done => Some(true),
                    WriteOutcome::Missing => Some(false),
                    WriteOutcome::Stale(_) => None,
                },
            )
        })
        .await
    }
}

/// Why campaigns that use the template must pause, or none.
fn stop_reason(change: &TemplateChange) -> Option<&'static str> {
    match change {
        TemplateChange::Review(review) => review.status.pause_reason(),
        TemplateChange::Quality(_) | TemplateChange::Category(_) => None,
    }
}

/// The template with the change applied, or none if nothing changes.
fn with_update(template: &Template, change: &TemplateChange, now: time::OffsetDateTime) -> Option<Template> {
    let changed = match change {
        TemplateChange::Review(review) => return apply_review(template, review.clone(), now),
        TemplateChange::Quality(score) => Template {
            quality_score: Some(score.clone()),
            ..template.clone()
        },
        TemplateChange::Category(update) => with_category_update(template, update),
    };
    (changed != *template).then_some(Template {
        updated_at: now,
        ..changed
    })
}

#[cfg(test)]
mod tests;
