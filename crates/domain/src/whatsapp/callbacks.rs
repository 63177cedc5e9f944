//! Processing callbacks: stored first, applied at once, and again later where the news came before its subject.

use std::collections::BTreeMap;
use std::sync::Arc;

use time::Duration;

use serde_json::json;

use super::{
    CallbackBody, CallbackStore, Delivery, DeliveryNews, DeliveryStore, Inbound, News, StoredCallback, TemplateChange,
    TemplateNews,
};
use crate::campaigns::RunStore;
use crate::conversations::{Arrival, InboundNews, InboxStore};
use crate::shared::{AccountId, CallbackId, Clock, Event, Ids, Notification, NotificationKind, StoreError, Write};
use crate::templates::{MetaStatus, Template, TemplateCommand, TemplateStore, transition};

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
            let events = told(&template, &changed);
            match self.templates.update(&changed, template.meta_status, &events).await? {
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
        TemplateChange::Verdict { status, .. } => match status {
            MetaStatus::Paused => Some("the platform has paused the template"),
            MetaStatus::Disabled => Some("the platform has disabled the template"),
            MetaStatus::Draft | MetaStatus::Pending | MetaStatus::Approved | MetaStatus::Rejected => None,
        },
        TemplateChange::Quality(_) | TemplateChange::Category(_) => None,
    }
}

/// The template after news of it; none when they change nothing.
fn after(template: &Template, change: &TemplateChange, now: time::OffsetDateTime) -> Option<Template> {
    let changed = match change {
        TemplateChange::Verdict { status, reason } => Template {
            meta_status: transition(template.meta_status, TemplateCommand::Verdict(*status)).ok()?,
            rejection_reason: reason.clone(),
            ..template.clone()
        },
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

/// What people are told of a template that cannot be sent any more, or never could.
fn told(before: &Template, after: &Template) -> Vec<Event> {
    let (title, message) = match after.meta_status {
        status if status == before.meta_status => return vec![],
        MetaStatus::Draft | MetaStatus::Pending | MetaStatus::Approved => return vec![],
        MetaStatus::Rejected => {
            let reason = after.rejection_reason.as_deref().unwrap_or("no reason given");
            (
                "Template rejected",
                format!("The messaging platform refused it: {reason}."),
            )
        }
        MetaStatus::Paused => ("Template paused", "The messaging platform has paused it.".to_owned()),
        MetaStatus::Disabled => (
            "Template disabled",
            "The messaging platform has disabled it.".to_owned(),
        ),
    };
    vec![Event::Notification(Notification {
        kind: NotificationKind::Warning,
        title: format!("{title}: {}", after.name),
        message,
        data: json!({ "template_id": after.id, "meta_status": after.meta_status, "reason": after.rejection_reason }),
    })]
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::{MockCallbackStore, MockDeliveryStore};
    use super::*;
    use crate::campaigns::MockRunStore;
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
        wired(store, deliveries, MockInboxStore::new(), templates, MockRunStore::new())
    }

    fn wired(
        store: MockCallbackStore,
        deliveries: MockDeliveryStore,
        inbox: MockInboxStore,
        templates: MockTemplateStore,
        runs: MockRunStore,
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
            Arc::new(runs),
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
        let callbacks = wired(
            store,
            MockDeliveryStore::new(),
            inbox,
            MockTemplateStore::new(),
            MockRunStore::new(),
        );
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

    /// What is written of an approved template after news of it, and why its campaigns pause.
    async fn follows(field: &str, value: &serde_json::Value) -> (Option<Template>, Vec<Event>, Option<String>) {
        let mut store = MockCallbackStore::new();
        store.expect_accounts_of_business().returning(|_| Ok(vec![A]));
        store.expect_forget().times(1).returning(|_| Ok(()));
        let mut templates = MockTemplateStore::new();
        templates
            .expect_find_by_meta_id()
            .returning(|_, _| Ok(Some(approved_template("Oi", &[]))));
        let written = Arc::new(std::sync::Mutex::new((None, vec![], None)));
        let kept = written.clone();
        templates.expect_update().returning(move |template, _, events| {
            let mut kept = kept.lock().unwrap();
            (kept.0, kept.1) = (Some(template.clone()), events.to_vec());
            Ok(Write::Done)
        });
        let mut runs = MockRunStore::new();
        let kept = written.clone();
        runs.expect_pause_template().returning(move |_, _, reason| {
            kept.lock().unwrap().2 = Some(reason.to_owned());
            Ok(())
        });
        wired(store, MockDeliveryStore::new(), MockInboxStore::new(), templates, runs)
            .process(&callback(0, field, value))
            .await
            .unwrap();
        written.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn a_stopped_template_pauses_its_campaigns_and_is_told() {
        let status = "message_template_status_update";
        for (event, status_after) in [("PAUSED", MetaStatus::Paused), ("DISABLED", MetaStatus::Disabled)] {
            let news = json!({ "event": event, "message_template_id": 77 });
            let (template, events, paused) = follows(status, &news).await;
            assert_eq!(template.unwrap().meta_status, status_after);
            assert!(matches!(&events[..], [Event::Notification(n)] if n.kind == NotificationKind::Warning));
            assert_eq!(
                paused.unwrap(),
                format!("the platform has {} the template", event.to_lowercase())
            );
        }
        let rejected = json!({ "event": "REJECTED", "message_template_id": 77, "reason": "SCAM" });
        let (_, events, paused) = follows(status, &rejected).await;
        assert!(
            matches!(&events[..], [Event::Notification(n)] if n.message.contains("SCAM")),
            "{events:?}"
        );
        assert_eq!(paused, None);
        for same in ["APPROVED", "REINSTATED", "FLAGGED"] {
            let news = json!({ "event": same, "message_template_id": 77 });
            assert_eq!(follows(status, &news).await, (None, vec![], None), "{same}");
        }
    }

    #[tokio::test]
    async fn quality_and_category_are_kept() {
        let quality = json!({ "message_template_id": 77, "new_quality_score": "YELLOW" });
        let (template, events, paused) = follows("message_template_quality_update", &quality).await;
        let template = template.unwrap();
        assert_eq!(template.quality_score.as_deref(), Some("YELLOW"));
        assert_eq!(
            (template.meta_status, events, paused),
            (MetaStatus::Approved, vec![], None)
        );
        let category = json!({ "message_template_id": 77, "new_category": "UTILITY" });
        let (template, ..) = follows("template_category_update", &category).await;
        assert_eq!(template.unwrap().category, crate::templates::Category::Utility);
    }

    #[tokio::test]
    async fn a_verdict_on_a_draft_may_be_early_and_counts_as_old_later() {
        for (attempts, deferred) in [(0, 1), (1, 1), (2, 0)] {
            let mut store = MockCallbackStore::new();
            store.expect_accounts_of_business().returning(|_| Ok(vec![A]));
            store.expect_defer().times(deferred).returning(|_, _| Ok(()));
            store.expect_forget().times(1 - deferred).returning(|_| Ok(()));
            let mut templates = MockTemplateStore::new();
            templates.expect_find_by_meta_id().returning(|_, _| {
                Ok(Some(Template {
                    meta_status: MetaStatus::Draft,
                    ..approved_template("Oi", &[])
                }))
            });
            let news = json!({ "event": "APPROVED", "message_template_id": 77 });
            let callback = callback(attempts, "message_template_status_update", &news);
            let callbacks = callbacks(store, MockDeliveryStore::new(), templates);
            callbacks.process(&callback).await.unwrap();
        }
    }
}
