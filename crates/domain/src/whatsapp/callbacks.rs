//! Processing callbacks: stored first, applied at once, and again later where the news came before its subject.

use std::collections::BTreeMap;
use std::sync::Arc;

use time::Duration;

use super::{
    CallbackBody, CallbackStore, Delivery, DeliveryNews, DeliveryStore, Inbound, News, StoredCallback, TemplateNews,
};
use crate::conversations::{Arrival, InboundNews, InboxStore};
use crate::shared::{AccountId, CallbackId, Clock, Ids, StoreError, Write};
use crate::templates::{MetaStatus, Template, TemplateCommand, TemplateStore, transition};

/// How long a worker may take for one callback before another one takes it over.
pub const PROCESSING_LEASE: Duration = Duration::seconds(30);

/// How often news without a subject is tried again (after 1, 2, 4, ... seconds) before it counts as foreign.
const RETRIES: u32 = 6;

/// How often a template's verdict is tried when the template changes at the same time.
const VERDICT_ATTEMPTS: u32 = 3;

/// The use cases of callbacks.
pub struct Callbacks {
    callbacks: Arc<dyn CallbackStore>,
    deliveries: Arc<dyn DeliveryStore>,
    inbox: Arc<dyn InboxStore>,
    templates: Arc<dyn TemplateStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl Callbacks {
    pub fn new(
        callbacks: Arc<dyn CallbackStore>,
        deliveries: Arc<dyn DeliveryStore>,
        inbox: Arc<dyn InboxStore>,
        templates: Arc<dyn TemplateStore>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            callbacks,
            deliveries,
            inbox,
            templates,
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
        let complete = self.apply(news).await?;
        if complete || callback.attempts >= RETRIES {
            self.callbacks.forget(callback.id).await
        } else {
            let delay = Duration::seconds(2_i64.saturating_pow(callback.attempts));
            self.callbacks.defer(callback.id, delay).await
        }
    }

    /// Whether all news found its subject.
    async fn apply(&self, news: Vec<News>) -> Result<bool, StoreError> {
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
                News::Template(news) => complete &= self.apply_verdict(&news).await?,
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
        let accounts = self.callbacks.accounts_of_number(number).await?;
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

    async fn apply_verdict(&self, news: &TemplateNews) -> Result<bool, StoreError> {
        let accounts = self.callbacks.accounts_of_business(&news.waba_id).await?;
        let mut found = accounts.is_empty();
        for account in accounts {
            found |= self.apply_verdict_in(account, news).await?;
        }
        Ok(found)
    }

    /// Whether the account has the template.
    async fn apply_verdict_in(&self, account: AccountId, news: &TemplateNews) -> Result<bool, StoreError> {
        for _ in 0..VERDICT_ATTEMPTS {
            let Some(template) = self.templates.find_by_meta_id(account, &news.meta_template_id).await? else {
                return Ok(false);
            };
            let Some(judged) = judge(&template, news.verdict, news.reason.clone(), self.clock.now()) else {
                return Ok(true);
            };
            match self.templates.update(&judged, template.meta_status, &[]).await? {
                Write::Done => return Ok(true),
                Write::Missing => return Ok(false),
                Write::Stale(_) => {}
            }
        }
        Ok(false)
    }
}

/// The template after a verdict; none when it changes nothing.
fn judge(
    template: &Template,
    verdict: MetaStatus,
    reason: Option<String>,
    now: time::OffsetDateTime,
) -> Option<Template> {
    let meta_status = transition(template.meta_status, TemplateCommand::Verdict(verdict)).ok()?;
    let same = meta_status == template.meta_status && reason == template.rejection_reason;
    (!same).then(|| Template {
        meta_status,
        rejection_reason: reason,
        updated_at: now,
        ..template.clone()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::{MockCallbackStore, MockDeliveryStore};
    use super::*;
    use crate::conversations::MockInboxStore;
    use crate::shared::{MockClock, MockIds};
    use crate::templates::MockTemplateStore;
    use crate::templates::tests::approved_template;

    const A: AccountId = AccountId(Uuid::from_u128(1));
    const B: AccountId = AccountId(Uuid::from_u128(2));

    fn callback(attempts: u32, field: &str, value: &serde_json::Value) -> StoredCallback {
        let body = json!({ "entry": [{ "id": "102", "changes": [{ "field": field, "value": value }] }] });
        StoredCallback {
            id: CallbackId(Uuid::nil()),
            body: body.to_string().into_bytes(),
            attempts,
        }
    }

    fn statuses(attempts: u32) -> StoredCallback {
        let status = |id: &str| json!({ "id": id, "status": "read", "timestamp": "1" });
        callback(
            attempts,
            "messages",
            &json!({ "metadata": { "phone_number_id": "1065" },
            "statuses": [status("a"), status("b")] }),
        )
    }

    fn callbacks(store: MockCallbackStore, deliveries: MockDeliveryStore, templates: MockTemplateStore) -> Callbacks {
        with_inbox(store, deliveries, MockInboxStore::new(), templates)
    }

    fn with_inbox(
        store: MockCallbackStore,
        deliveries: MockDeliveryStore,
        inbox: MockInboxStore,
        templates: MockTemplateStore,
    ) -> Callbacks {
        let mut ids = MockIds::new();
        let mut next = 0;
        ids.expect_next().returning(move || {
            next += 1;
            Uuid::from_u128(next)
        });
        let mut clock = MockClock::new();
        clock.expect_now().return_const(datetime!(2026-03-01 12:00 UTC));
        Callbacks::new(
            Arc::new(store),
            Arc::new(deliveries),
            Arc::new(inbox),
            Arc::new(templates),
            Arc::new(clock),
            Arc::new(ids),
        )
    }

    #[tokio::test]
    async fn each_account_of_a_number_sees_only_what_the_others_had_not() {
        let mut store = MockCallbackStore::new();
        store.expect_accounts_of_number().returning(|_| Ok(vec![A, B]));
        store.expect_forget().times(1).returning(|_| Ok(()));
        let mut deliveries = MockDeliveryStore::new();
        deliveries
            .expect_apply()
            .times(1)
            .withf(|a, news| *a == A && news.len() == 2)
            .returning(|_, _| Ok(vec![1]));
        deliveries
            .expect_apply()
            .times(1)
            .withf(|a, news| *a == B && news.len() == 1 && news[0].message_id == "b")
            .returning(|_, _| Ok(vec![]));
        callbacks(store, deliveries, MockTemplateStore::new())
            .process(&statuses(0))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_message_reaches_every_account_of_its_number_in_order() {
        let message = |id: &str| json!({ "from": "5511961234567", "id": id, "timestamp": "1", "type": "text", "text": { "body": "Oi" } });
        let told = callback(
            0,
            "messages",
            &json!({ "metadata": { "phone_number_id": "1065" }, "messages": [message("a"), message("b")] }),
        );
        let mut store = MockCallbackStore::new();
        store.expect_accounts_of_number().returning(|_| Ok(vec![A, B]));
        store.expect_forget().times(1).returning(|_| Ok(()));
        let mut inbox = MockInboxStore::new();
        for account in [A, B] {
            inbox
                .expect_receive()
                .times(1)
                .withf(move |a, number, arrivals| {
                    let ids: std::collections::BTreeSet<Uuid> = arrivals
                        .iter()
                        .flat_map(|one| [one.contact_id.0, one.conversation_id.0, one.message_id.0])
                        .collect();
                    let told = arrivals
                        .iter()
                        .map(|one| matches!(&one.news, InboundNews::Message(message) if message.wa_message_id == "a"));
                    *a == account && number == "1065" && ids.len() == 6 && told.eq([true, false])
                })
                .returning(|_, _, _| Ok(()));
        }
        let callbacks = with_inbox(store, MockDeliveryStore::new(), inbox, MockTemplateStore::new());
        callbacks.process(&told).await.unwrap();
    }

    #[tokio::test]
    async fn news_without_a_subject_waits_and_is_forgotten_in_the_end() {
        for (attempts, deferred, forgotten) in [(0, 1, 0), (3, 1, 0), (6, 0, 1)] {
            let mut store = MockCallbackStore::new();
            store.expect_accounts_of_number().returning(|_| Ok(vec![A]));
            let delay = Duration::seconds(2_i64.pow(attempts));
            store
                .expect_defer()
                .times(deferred)
                .withf(move |_, d| *d == delay)
                .returning(|_, _| Ok(()));
            store.expect_forget().times(forgotten).returning(|_| Ok(()));
            let mut deliveries = MockDeliveryStore::new();
            deliveries.expect_apply().returning(|_, _| Ok(vec![0, 1]));
            callbacks(store, deliveries, MockTemplateStore::new())
                .process(&statuses(attempts))
                .await
                .unwrap();
        }
    }

    #[tokio::test]
    async fn a_foreign_number_and_a_broken_body_are_forgotten() {
        let mut store = MockCallbackStore::new();
        store.expect_accounts_of_number().returning(|_| Ok(vec![]));
        store.expect_forget().times(2).returning(|_| Ok(()));
        let callbacks = callbacks(store, MockDeliveryStore::new(), MockTemplateStore::new());
        callbacks.process(&statuses(0)).await.unwrap();
        let broken = StoredCallback {
            body: b"{".to_vec(),
            ..statuses(0)
        };
        callbacks.process(&broken).await.unwrap();
    }

    #[tokio::test]
    async fn a_verdict_reaches_the_template_also_when_it_changes_meanwhile() {
        let mut store = MockCallbackStore::new();
        store
            .expect_accounts_of_business()
            .withf(|waba| waba == "102")
            .returning(|_| Ok(vec![A]));
        store.expect_forget().times(1).returning(|_| Ok(()));
        let mut templates = MockTemplateStore::new();
        let pending = Template {
            meta_status: MetaStatus::Pending,
            ..approved_template("Oi", &[])
        };
        templates
            .expect_find_by_meta_id()
            .times(2)
            .returning(move |_, _| Ok(Some(pending.clone())));
        templates
            .expect_update()
            .times(1)
            .returning(|_, _, _| Ok(Write::Stale(MetaStatus::Paused)));
        templates
            .expect_update()
            .times(1)
            .withf(|t, expected, _| {
                t.meta_status == MetaStatus::Rejected
                    && t.rejection_reason.as_deref() == Some("SCAM")
                    && *expected == MetaStatus::Pending
            })
            .returning(|_, _, _| Ok(Write::Done));
        let news = json!({ "event": "REJECTED", "message_template_id": 9, "reason": "SCAM" });
        let callback = callback(0, "message_template_status_update", &news);
        callbacks(store, MockDeliveryStore::new(), templates)
            .process(&callback)
            .await
            .unwrap();
    }
}
