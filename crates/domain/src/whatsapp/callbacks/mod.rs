//! Processing callbacks: stored first, applied at once, and again later where the news came before its subject.

mod progress;

use std::collections::BTreeMap;
use std::sync::Arc;

use time::Duration;

use self::progress::Progress;
use super::callback_payload::Unreadable;
use super::{
    CallbackChange, CallbackPayload, CallbackReport, CallbackStore, ReceivedInbound, ReceivedStatus, StatusUpdate,
    StatusUpdateStore, StoredCallback, TemplateChange, TemplateUpdate,
};
use crate::campaigns::RunStore;
use crate::conversations::{InboundEvent, InboundItem, InboxStore};
use crate::shared::{AccountId, CallbackId, Clock, Ids, StoreError, WriteOutcome};
use crate::templates::{
    MetaStatus, Template, TemplateStore, apply_review, category_notifications, review_events, with_category_update,
};

/// How long a worker may take for one callback before another one takes it over.
pub const PROCESSING_LEASE: Duration = Duration::seconds(30);

/// How often news without a subject is tried again (after 1, 2, 4, ... seconds) before it counts as foreign.
const RETRIES: u32 = 6;

/// How often a review of a draft is tried again: it may be faster than the answer to the submission it is on, which
/// makes the draft a pending one. Later it is on something that was changed since.
const EARLY_RETRIES: u32 = 2;

/// How often a template's review is tried when the template changes at the same time.
const REVIEW_ATTEMPTS: u32 = 3;

/// How often a callback is claimed, with up to `LONGEST_BACKOFF` between, before it is set aside: more than an hour.
pub const MAX_CLAIMS: u32 = 20;
const LONGEST_BACKOFF: Duration = Duration::minutes(5);

/// What callbacks are stored in, and what they change.
pub struct CallbackStores {
    pub callbacks: Arc<dyn CallbackStore>,
    pub status_updates: Arc<dyn StatusUpdateStore>,
    pub inbox: Arc<dyn InboxStore>,
    pub templates: Arc<dyn TemplateStore>,
    pub runs: Arc<dyn RunStore>,
}

/// The use cases of callbacks.
pub struct Callbacks {
    stores: CallbackStores,
    report: Arc<dyn CallbackReport>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl Callbacks {
    pub fn new(
        stores: CallbackStores,
        report: Arc<dyn CallbackReport>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            stores,
            report,
            clock,
            ids,
        }
    }

    /// Keeps a callback: once this returned, its news is not lost. The caller checked the signature, and goes on with
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

    /// Processes one callback that is due, if there is one.
    pub async fn process_next(&self) -> Result<bool, StoreError> {
        match self.stores.callbacks.claim(PROCESSING_LEASE).await? {
            Some(callback) => self.process(&callback).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Applies a callback's news, then forgets it; defers it where some news has no subject yet. Applying twice changes
    /// nothing, so a crash in the middle is harmless. What cannot be applied is tried again with exponential backoff, and
    /// set aside after [`MAX_CLAIMS`].
    pub async fn process(&self, callback: &StoredCallback) -> Result<(), StoreError> {
        // Not even tried: whoever tried it last did not come back.
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

    /// What the callback says; what of it is not read is counted, the first time.
    fn read(&self, callback: &StoredCallback) -> Vec<CallbackChange> {
        let body = CallbackPayload::read(&callback.body);
        if callback.attempts == 0 && callback.claims == 0 {
            match &body {
                Ok(body) => body.unread.iter().for_each(|unread| self.report.unread(unread)),
                Err(Unreadable) => self.report.unreadable(callback.id),
            }
        }
        body.unwrap_or_default().changes
    }

    /// Whether all news found its subject. One item that cannot be applied holds up no other.
    async fn apply(&self, callback: &StoredCallback) -> Result<bool, StoreError> {
        let may_be_early = callback.attempts < EARLY_RETRIES;
        let mut progress = Progress::new(callback.claims > 0);
        let mut by_number: BTreeMap<String, Vec<StatusUpdate>> = BTreeMap::new();
        let mut inbound_by_number: BTreeMap<String, Vec<InboundEvent>> = BTreeMap::new();
        for item in self.read(callback) {
            match item {
                CallbackChange::Status(ReceivedStatus {
                    phone_number_id,
                    update,
                }) => {
                    by_number.entry(phone_number_id).or_default().push(update);
                }
                CallbackChange::Inbound(ReceivedInbound { phone_number_id, event }) => {
                    inbound_by_number.entry(phone_number_id).or_default().push(event);
                }
                CallbackChange::Template(update) => {
                    let found = self.apply_template_update(&update, may_be_early).await;
                    progress.complete &= progress.note(found)?.unwrap_or(true);
                }
            }
        }
        for (number, events) in inbound_by_number {
            self.receive_inbound(&number, &events, &mut progress).await?;
        }
        for (number, updates) in by_number {
            progress.complete &= self.apply_status_updates(&number, updates, &mut progress).await?;
        }
        progress.end()
    }

    /// Stores the events in every account that has connected the number.
    async fn receive_inbound(
        &self,
        number: &str,
        events: &[InboundEvent],
        progress: &mut Progress,
    ) -> Result<(), StoreError> {
        for account in self.stores.callbacks.accounts_of_number(number).await? {
            let item = |event: &InboundEvent| InboundItem {
                event: event.clone(),
                contact_id: self.ids.next().into(),
                conversation_id: self.ids.next().into(),
                message_id: self.ids.next().into(),
            };
            let items: Vec<InboundItem> = events.iter().map(item).collect();
            let received = self.stores.inbox.receive(account, number, &items).await;
            if !progress.should_split(&received, items.len()) {
                progress.note(received)?;
                continue;
            }
            for item in items {
                let received = self.stores.inbox.receive(account, number, &[item]).await;
                progress.note(received)?;
            }
        }
        Ok(())
    }

    /// A number is usually one account's. Where several connected it, each is offered what the others had not: a send
    /// belongs to one account, so nobody's news reaches anybody else.
    async fn apply_status_updates(
        &self,
        number: &str,
        mut updates: Vec<StatusUpdate>,
        progress: &mut Progress,
    ) -> Result<bool, StoreError> {
        // Also those that disconnected it since: a status is matched by our id or the platform's, never by the number.
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

    /// Applies statuses to the account's messages: at once, or, where that fails, each by itself. Those of no message of
    /// the account are left.
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
        let accounts = self.stores.callbacks.accounts_of_business(&update.waba_id).await?;
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
        for _ in 0..REVIEW_ATTEMPTS {
            let Some(template) = self
                .stores
                .templates
                .find_by_meta_id(account, &update.meta_template_id)
                .await?
            else {
                return Ok(false);
            };
            // Pauses first, even if the template itself does not change: an interrupted attempt repeats both steps.
            if let Some(reason) = stop_reason(&update.change) {
                self.stores.runs.pause_template(account, template.id, reason).await?;
            }
            let is_review = matches!(update.change, TemplateChange::Review { .. });
            if is_review && template.meta_status == MetaStatus::Draft {
                return Ok(!may_be_early);
            }
            let Some(changed) = with_update(&template, &update.change, self.clock.now()) else {
                return Ok(true);
            };
            let mut events = review_events(&template, &changed);
            events.extend(category_notifications(&template, &changed));
            match self.stores.templates.update(&changed, &template, &events).await? {
                WriteOutcome::Done => return Ok(true),
                WriteOutcome::Missing => return Ok(false),
                WriteOutcome::Stale(_) => {}
            }
        }
        Ok(false)
    }
}

/// Why campaigns that use the template must pause, or none.
fn stop_reason(change: &TemplateChange) -> Option<&'static str> {
    match change {
        TemplateChange::Review { status, .. } => status.pause_reason(),
        TemplateChange::Quality(_) | TemplateChange::Category(_) => None,
    }
}

/// The template with the change applied, or none if nothing changes.
fn with_update(template: &Template, change: &TemplateChange, now: time::OffsetDateTime) -> Option<Template> {
    let changed = match change {
        TemplateChange::Review { status, reason } => return apply_review(template, *status, reason.clone(), now),
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
