//! Processing callbacks: stored first, applied at once, and again later where the news came before its subject.

use std::collections::BTreeMap;
use std::sync::Arc;

use time::Duration;

use super::{
    CallbackBody, CallbackStore, Delivery, DeliveryNews, DeliveryStore, Inbound, News, StoredCallback, TemplateChange,
    TemplateNews,
};
use crate::campaigns::RunStore;
use crate::conversations::{Arrival, InboundNews, InboxStore};
use crate::shared::{AccountId, CallbackId, Clock, Ids, StoreError, Write};
use crate::templates::{MetaStatus, Template, TemplateStore, verdict_events, with_verdict};

/// How long a worker may take for one callback before another one takes it over.
pub const PROCESSING_LEASE: Duration = Duration::seconds(30);

/// How often news without a subject is tried again (after 1, 2, 4, ... seconds) before it counts as foreign.
const RETRIES: u32 = 6;

/// How often a verdict on a draft is tried again: it may be faster than the answer to the submission it is on, which
/// makes the draft a pending one. Later it is on something that was changed since.
const EARLY_RETRIES: u32 = 2;

/// How often a template's verdict is tried when the template changes at the same time.
const VERDICT_ATTEMPTS: u32 = 3;

/// The use cases of callbacks.
pub struct Callbacks {
    callbacks: Arc<dyn CallbackStore>,
    deliveries: Arc<dyn DeliveryStore>,
    inbox: Arc<dyn InboxStore>,
    templates: Arc<dyn TemplateStore>,
    runs: Arc<dyn RunStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl Callbacks {
    pub fn new(
        callbacks: Arc<dyn CallbackStore>,
        deliveries: Arc<dyn DeliveryStore>,
        inbox: Arc<dyn InboxStore>,
        templates: Arc<dyn TemplateStore>,
        runs: Arc<dyn RunStore>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            callbacks,
            deliveries,
            inbox,
            templates,
            runs,
            clock,
            ids,
        }
    }

    /// Keeps a callback: once this returned, its news is not lost. The caller checked the signature, and goes on with
    /// [`Callbacks::process`].
    pub async fn receive(&self, body: &[u8]) -> Result<StoredCallback, StoreError> {
        let id = CallbackId::from(self.ids.next());
        self.callbacks.store(id, body, PROCESSING_LEASE).await?;
        Ok(StoredCallback {
            id,
            body: body.to_vec(),
            attempts: 0,
        })
    }

    /// Processes one callback that is due, if there is one.
    pub async fn process_next(&self) -> Result<bool, StoreError> {
        match self.callbacks.claim(PROCESSING_LEASE).await? {
            Some(callback) => self.process(&callback).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Applies a callback's news, then forgets it; defers it where some news has no subject yet. Applying twice changes
    /// nothing, so a crash in the middle is harmless.
    pub async fn process(&self, callback: &StoredCallback) -> Result<(), StoreError> {
        let news = CallbackBody::read(&callback.body).unwrap_or_default().news;
        let complete = self.apply(news, callback.attempts < EARLY_RETRIES).await?;
        if complete || callback.attempts >= RETRIES {
            self.callbacks.forget(callback.id).await
        } else {
            let delay = Duration::seconds(2_i64.saturating_pow(callback.attempts));
            self.callbacks.defer(callback.id, delay).await
        }
    }

    /// Whether all news found its subject.
    async fn apply(&self, news: Vec<News>, may_be_early: bool) -> Result<bool, StoreError> {
        let mut by_number: BTreeMap<String, Vec<DeliveryNews>> = BTreeMap::new();
        let mut inbound: BTreeMap<String, Vec<InboundNews>> = BTreeMap::new();
        let mut complete = true;
        for item in news {
            match item {
                News::Delivery(Delivery { phone_number_id, news }) => {
                    by_number.entry(phone_number_id).or_default().push(news);
                }
                News::Inbound(Inbound { phone_number_id, news }) => {
                    inbound.entry(phone_number_id).or_default().push(news);
                }
                News::Template(news) => complete &= self.apply_to_template(&news, may_be_early).await?,
            }
        }
        for (number, news) in inbound {
            self.take_in(&number, &news).await?;
        }
        for (number, news) in by_number {
            complete &= self.apply_deliveries(&number, news).await?;
        }
        Ok(complete)
    }

    /// Whoever writes to a number writes to every account that connected it.
    async fn take_in(&self, number: &str, news: &[InboundNews]) -> Result<(), StoreError> {
        for account in self.callbacks.accounts_of_number(number).await? {
            let arrival = |news: &InboundNews| Arrival {
                news: news.clone(),
                contact_id: self.ids.next().into(),
                conversation_id: self.ids.next().into(),
                message_id: self.ids.next().into(),
            };
            let arrivals: Vec<Arrival> = news.iter().map(arrival).collect();
            self.inbox.receive(account, number, &arrivals).await?;
        }
        Ok(())
    }

    /// A number is usually one account's. Where several connected it, each is offered what the others had not: a send
    /// belongs to one account, so nobody's news reaches anybody else.
    async fn apply_deliveries(&self, number: &str, mut news: Vec<DeliveryNews>) -> Result<bool, StoreError> {
        // Also those that disconnected it since: a status is matched by our id or the platform's, never by the number.
        let accounts = self.callbacks.accounts_that_had_number(number).await?;
        if accounts.is_empty() {
            return Ok(true);
        }
        for account in accounts {
            let unmatched = self.deliveries.apply(account, &news).await?;
            news = unmatched
                .into_iter()
                .filter_map(|position| news.get(position).cloned())
                .collect();
            if news.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn apply_to_template(&self, news: &TemplateNews, may_be_early: bool) -> Result<bool, StoreError> {
        let accounts = self.callbacks.accounts_of_business(&news.waba_id).await?;
        let mut found = accounts.is_empty();
        for account in accounts {
            found |= self.apply_to_template_of(account, news, may_be_early).await?;
        }
        Ok(found)
    }

    /// Whether the account has the template.
    async fn apply_to_template_of(
        &self,
        account: AccountId,
        news: &TemplateNews,
        may_be_early: bool,
    ) -> Result<bool, StoreError> {
        for _ in 0..VERDICT_ATTEMPTS {
            let Some(template) = self.templates.find_by_meta_id(account, &news.meta_template_id).await? else {
                return Ok(false);
            };
            // First, and also where nothing else changes: whoever was interrupted between the two does both again.
            if let Some(reason) = stops(&news.change) {
                self.runs.pause_template(account, template.id, reason).await?;
            }
            let is_verdict = matches!(news.change, TemplateChange::Verdict { .. });
            if is_verdict && template.meta_status == MetaStatus::Draft {
                return Ok(!may_be_early);
            }
            let Some(changed) = after(&template, &news.change, self.clock.now()) else {
                return Ok(true);
            };
            let events = verdict_events(&template, &changed);
            match self.templates.update(&changed, &template, &events).await? {
                Write::Done => return Ok(true),
                Write::Missing => return Ok(false),
                Write::Stale(_) => {}
            }
        }
        Ok(false)
    }
}

/// Why campaigns with the template cannot go on; none when they can.
fn stops(change: &TemplateChange) -> Option<&'static str> {
    match change {
        TemplateChange::Verdict { status, .. } => status.stops(),
        TemplateChange::Quality(_) | TemplateChange::Category(_) => None,
    }
}

/// The template after news of it; none when they change nothing.
fn after(template: &Template, change: &TemplateChange, now: time::OffsetDateTime) -> Option<Template> {
    let changed = match change {
        TemplateChange::Verdict { status, reason } => return with_verdict(template, *status, reason.clone(), now),
        TemplateChange::Quality(score) => Template {
            quality_score: Some(score.clone()),
            ..template.clone()
        },
        // What is a draft again says itself what it is for.
        TemplateChange::Category(_) if template.meta_status == MetaStatus::Draft => return None,
        TemplateChange::Category(category) => Template {
            category: *category,
            ..template.clone()
        },
    };
    (changed != *template).then_some(Template {
        updated_at: now,
        ..changed
    })
}

#[cfg(test)]
mod tests;
