//! Processing of callbacks, with mocked ports.

use std::sync::Mutex;

use time::macros::datetime;
use uuid::Uuid;

use super::super::{
    CallbackPayload, HeldStores, MockCallbackReport, MockCallbackStore, MockStatusUpdateStore, ReceivedStatus, Unread,
};
use super::*;
use crate::campaigns::MockRunStore;
use crate::conversations::{MockInboxStore, ReceiveOutcome};
use crate::messaging::{Category, SendStatus};
use crate::shared::{Event, MockCipher, MockClock, MockIds, NotificationKind, Sealed, WRITE_ATTEMPTS};
use crate::templates::tests::approved_template;
use crate::templates::{CategoryUpdate, MockTemplateStore, Review};
use crate::whatsapp::MockProfileStore;
use crate::whatsapp::verification::{MockHeldMessageStore, MockNumberHolderStore, NumberHolder, VerificationState};

const A: AccountId = AccountId(Uuid::from_u128(1));
const B: AccountId = AccountId(Uuid::from_u128(2));

/// The payloads of all callbacks of the tests. A callback's body is the position of its payload.
static PAYLOADS: Mutex<Vec<CallbackPayload>> = Mutex::new(Vec::new());

struct PayloadReader;

impl CallbackReader for PayloadReader {
    fn read(&self, body: &[u8]) -> Result<CallbackPayload, Unreadable> {
        let position: usize = std::str::from_utf8(body).unwrap().parse().map_err(|_| Unreadable)?;
        Ok(PAYLOADS.lock().unwrap()[position].clone())
    }
}

fn callback_with(attempts: u32, payload: CallbackPayload) -> StoredCallback {
    let mut payloads = PAYLOADS.lock().unwrap();
    payloads.push(payload);
    StoredCallback {
        id: CallbackId(Uuid::nil()),
        body: (payloads.len() - 1).to_string().into_bytes(),
        attempts,
        claims: 0,
    }
}

fn callback(attempts: u32, changes: Vec<CallbackChange>) -> StoredCallback {
    let unread = vec![];
    callback_with(attempts, CallbackPayload { changes, unread })
}

fn template_change(change: TemplateChange) -> CallbackChange {
    CallbackChange::Template(TemplateUpdate {
        waba_id: "102".into(),
        meta_template_id: "77".into(),
        change,
    })
}

fn template_callback(attempts: u32, change: TemplateChange) -> StoredCallback {
    callback(attempts, vec![template_change(change)])
}

fn review(status: MetaStatus) -> TemplateChange {
    let reason = (status == MetaStatus::Rejected).then(|| "SCAM".into());
    TemplateChange::Review(Review::new(status, reason))
}

fn status_change(message_id: &str) -> CallbackChange {
    CallbackChange::Status(ReceivedStatus {
        phone_number_id: "1065".into(),
        recipient: None,
        update: StatusUpdate {
            send_id: None,
            message_id: message_id.into(),
            status: SendStatus::Read,
            at: datetime!(2026-03-01 11:00 UTC),
            error_code: None,
            error_message: None,
            pricing: None,
        },
    })
}

fn statuses(attempts: u32) -> StoredCallback {
    callback(attempts, vec![status_change("a"), status_change("b")])
}

fn callbacks(
    store: MockCallbackStore,
    status_updates: MockStatusUpdateStore,
    templates: MockTemplateStore,
) -> Callbacks {
    callbacks_with_stores(
        store,
        status_updates,
        MockInboxStore::new(),
        templates,
        MockRunStore::new(),
    )
}

fn callbacks_with_stores(
    store: MockCallbackStore,
    status_updates: MockStatusUpdateStore,
    inbox: MockInboxStore,
    templates: MockTemplateStore,
    runs: MockRunStore,
) -> Callbacks {
    let mut report = MockCallbackReport::new();
    report.expect_unread().returning(|_| ());
    report.expect_unreadable().returning(|_| ());
    callbacks_with_report(store, status_updates, inbox, templates, runs, report)
}

fn callbacks_with_report(
    store: MockCallbackStore,
    status_updates: MockStatusUpdateStore,
    inbox: MockInboxStore,
    templates: MockTemplateStore,
    runs: MockRunStore,
    report: MockCallbackReport,
) -> Callbacks {
    let mut holders = MockNumberHolderStore::new();
    holders
        .expect_verified_of_business()
        .withf(|waba| waba == "102")
        .returning(|_| Ok(vec![holder(A, VerificationState::Verified)]));
    let stores = CallbackStores {
        callbacks: Arc::new(store),
        status_updates: Arc::new(status_updates),
        inbox: Arc::new(inbox),
        holders: Arc::new(noted(holders)),
        templates: Arc::new(templates),
        runs: Arc::new(runs),
    };
    build(stores, MockHeldMessageStore::new(), report)
}

/// Number holders that note every callback.
fn noted(mut holders: MockNumberHolderStore) -> MockNumberHolderStore {
    holders
        .expect_note_callback()
        .withf(|number| number == "1065")
        .returning(|_| Ok(()));
    holders
}

fn holder(account: AccountId, state: VerificationState) -> NumberHolder {
    NumberHolder {
        account_id: account,
        profile_id: account.0.into(),
        state,
    }
}

fn build(stores: CallbackStores, held: MockHeldMessageStore, report: MockCallbackReport) -> Callbacks {
    let mut ids = MockIds::new();
    let mut next = 0;
    ids.expect_next().returning(move || {
        next += 1;
        Uuid::from_u128(next)
    });
    let ids = Arc::new(ids);
    let mut clock = MockClock::new();
    clock.expect_now().return_const(datetime!(2026-03-01 12:00 UTC));
    let mut cipher = MockCipher::new();
    cipher.expect_seal().returning(|_, _| Sealed(vec![1]));
    let held_stores = HeldStores {
        holders: stores.holders.clone(),
        held: Arc::new(held),
        inbox: stores.inbox.clone(),
        profiles: Arc::new(MockProfileStore::new()),
    };
    let held = HeldMessages::new(held_stores, Arc::new(cipher), ids.clone());
    Callbacks::new(
        stores,
        held,
        Arc::new(PayloadReader),
        Arc::new(report),
        Arc::new(clock),
        ids,
    )
}

#[tokio::test]
async fn next_account_gets_only_unmatched_status_updates() {
    let mut store = MockCallbackStore::new();
    store.expect_accounts_that_had_number().returning(|_| Ok(vec![A, B]));
    store.expect_delete().times(1).returning(|_| Ok(()));
    let mut status_updates = MockStatusUpdateStore::new();
    status_updates
        .expect_apply()
        .times(1)
        .withf(|a, updates| *a == A && updates.len() == 2)
        .returning(|_, _| Ok(vec![1]));
    status_updates
        .expect_apply()
        .times(1)
        .withf(|a, updates| *a == B && updates.len() == 1 && updates[0].message_id == "b")
        .returning(|_, _| Ok(vec![]));
    callbacks(store, status_updates, MockTemplateStore::new())
        .process(&statuses(0))
        .await
        .unwrap();
}

#[tokio::test]
async fn unmatched_callback_is_deferred_then_deleted() {
    for (attempts, deferred, deleted) in [(0, 1, 0), (3, 1, 0), (6, 0, 1)] {
        let mut store = MockCallbackStore::new();
        store.expect_accounts_that_had_number().returning(|_| Ok(vec![A]));
        let delay = Duration::seconds(2_i64.pow(attempts));
        store
            .expect_defer()
            .times(deferred)
            .withf(move |_, d| *d == delay)
            .returning(|_, _| Ok(()));
        store.expect_delete().times(deleted).returning(|_| Ok(()));
        let mut status_updates = MockStatusUpdateStore::new();
        status_updates.expect_apply().returning(|_, _| Ok(vec![0, 1]));
        callbacks(store, status_updates, MockTemplateStore::new())
            .process(&statuses(attempts))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn callback_of_unknown_number_or_broken_body_is_deleted() {
    let mut store = MockCallbackStore::new();
    store.expect_accounts_that_had_number().returning(|_| Ok(vec![]));
    store.expect_delete().times(2).returning(|_| Ok(()));
    let callbacks = callbacks(store, MockStatusUpdateStore::new(), MockTemplateStore::new());
    callbacks.process(&statuses(0)).await.unwrap();
    let broken = StoredCallback {
        body: b"{".to_vec(),
        ..statuses(0)
    };
    callbacks.process(&broken).await.unwrap();
}

fn corrupt() -> StoreError {
    StoreError::Corrupt("x".into())
}

#[tokio::test]
async fn failing_item_does_not_block_other_items() {
    let mut store = MockCallbackStore::new();
    store.expect_accounts_that_had_number().returning(|_| Ok(vec![A]));
    store
        .expect_postpone()
        .times(1)
        .withf(|_, delay| *delay == Duration::seconds(8))
        .returning(|_, _| Ok(()));
    let mut status_updates = MockStatusUpdateStore::new();
    status_updates
        .expect_apply()
        .times(2)
        .withf(|_, updates| updates.iter().any(|item| item.message_id == "a"))
        .returning(|_, _| Err(corrupt()));
    status_updates
        .expect_apply()
        .times(1)
        .withf(|_, updates| updates.len() == 1 && updates[0].message_id == "b")
        .returning(|_, _| Ok(vec![]));
    let failed = StoredCallback {
        claims: 3,
        ..statuses(0)
    };
    callbacks(store, status_updates, MockTemplateStore::new())
        .process(&failed)
        .await
        .unwrap_err();
}

#[tokio::test]
async fn unavailable_store_ends_the_first_attempt_at_once() {
    for (claims, calls) in [(0, 1), (1, 3)] {
        let mut store = MockCallbackStore::new();
        store.expect_accounts_that_had_number().returning(|_| Ok(vec![A]));
        store.expect_postpone().times(1).returning(|_, _| Ok(()));
        let mut status_updates = MockStatusUpdateStore::new();
        status_updates
            .expect_apply()
            .times(calls)
            .returning(|_, _| Err(StoreError::Unavailable("away".into())));
        let callback = StoredCallback { claims, ..statuses(0) };
        let callbacks = callbacks(store, status_updates, MockTemplateStore::new());
        callbacks.process(&callback).await.unwrap_err();
    }
}

#[tokio::test]
async fn contended_template_does_not_delay_other_items() {
    let mut store = MockCallbackStore::new();
    store.expect_accounts_that_had_number().returning(|_| Ok(vec![A]));
    store.expect_postpone().times(1).returning(|_, _| Ok(()));
    let mut templates = MockTemplateStore::new();
    templates
        .expect_find_by_meta_id()
        .returning(|_, _| Ok(Some(approved_template("Oi", &[]))));
    templates
        .expect_update()
        .times(WRITE_ATTEMPTS)
        .returning(|_, _, _| Ok(WriteOutcome::Stale(MetaStatus::Approved)));
    let mut status_updates = MockStatusUpdateStore::new();
    status_updates.expect_apply().times(1).returning(|_, _| Ok(vec![]));
    let changes = vec![template_change(review(MetaStatus::Rejected)), status_change("a")];
    let error = callbacks(store, status_updates, templates)
        .process(&callback(0, changes))
        .await;
    assert!(error.unwrap_err().is_conflict());
}

#[tokio::test]
async fn callback_that_always_fails_is_set_aside() {
    for (claims, applied) in [(MAX_CLAIMS - 1, 3), (MAX_CLAIMS, 0)] {
        let mut store = MockCallbackStore::new();
        store.expect_accounts_that_had_number().returning(|_| Ok(vec![A]));
        store.expect_set_aside().times(1).returning(|_| Ok(()));
        let mut status_updates = MockStatusUpdateStore::new();
        status_updates
            .expect_apply()
            .times(applied)
            .returning(|_, _| Err(corrupt()));
        let mut report = MockCallbackReport::new();
        report
            .expect_set_aside()
            .times(1)
            .withf(move |_, error| matches!(error, StoreError::Corrupt(_)) == (applied > 0))
            .returning(|_, _| ());
        let callbacks = callbacks_with_report(
            store,
            status_updates,
            MockInboxStore::new(),
            MockTemplateStore::new(),
            MockRunStore::new(),
            report,
        );
        let callback = StoredCallback { claims, ..statuses(0) };
        callbacks.process(&callback).await.unwrap();
    }
}

#[tokio::test]
async fn unsupported_fields_are_reported_once() {
    let flows = CallbackPayload {
        unread: vec![Unread {
            field: "flows".into(),
            kind: None,
        }],
        ..CallbackPayload::default()
    };
    for (attempts, claims, counted) in [(0, 0, 1), (1, 0, 0), (0, 1, 0)] {
        let mut store = MockCallbackStore::new();
        store.expect_delete().times(2).returning(|_| Ok(()));
        let mut report = MockCallbackReport::new();
        report
            .expect_unread()
            .times(counted)
            .withf(|unread| unread.field == "flows" && unread.kind.is_none())
            .returning(|_| ());
        report.expect_unreadable().times(counted).returning(|_| ());
        let callbacks = callbacks_with_report(
            store,
            MockStatusUpdateStore::new(),
            MockInboxStore::new(),
            MockTemplateStore::new(),
            MockRunStore::new(),
            report,
        );
        let unsupported = StoredCallback {
            claims,
            ..callback_with(attempts, flows.clone())
        };
        callbacks.process(&unsupported).await.unwrap();
        let broken = StoredCallback {
            body: b"{".to_vec(),
            ..unsupported
        };
        callbacks.process(&broken).await.unwrap();
    }
}

#[tokio::test]
async fn review_is_applied_again_after_concurrent_change() {
    let mut store = MockCallbackStore::new();
    store.expect_delete().times(1).returning(|_| Ok(()));
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
        .returning(|_, _, _| Ok(WriteOutcome::Stale(MetaStatus::Paused)));
    templates
        .expect_update()
        .times(1)
        .withf(|t, expected, _| {
            t.meta_status == MetaStatus::Rejected
                && t.rejection_reason.as_deref() == Some("SCAM")
                && expected.meta_status == MetaStatus::Pending
        })
        .returning(|_, _, _| Ok(WriteOutcome::Done));
    let callback = template_callback(0, review(MetaStatus::Rejected));
    let callbacks = callbacks(store, MockStatusUpdateStore::new(), templates);
    callbacks.process(&callback).await.unwrap();
}

/// The template as written after an update of an approved template, the emitted events, and the reason of the
/// campaigns' pause.
async fn apply_template_update(change: TemplateChange) -> (Option<Template>, Vec<Event>, Option<String>) {
    let mut store = MockCallbackStore::new();
    store.expect_delete().times(1).returning(|_| Ok(()));
    let mut templates = MockTemplateStore::new();
    templates
        .expect_find_by_meta_id()
        .returning(|_, _| Ok(Some(approved_template("Oi", &[]))));
    let written = Arc::new(Mutex::new((None, vec![], None)));
    let recorder = written.clone();
    templates.expect_update().returning(move |template, _, events| {
        let mut recorded = recorder.lock().unwrap();
        (recorded.0, recorded.1) = (Some(template.clone()), events.to_vec());
        Ok(WriteOutcome::Done)
    });
    let mut runs = MockRunStore::new();
    let recorder = written.clone();
    runs.expect_pause_template().returning(move |_, _, reason| {
        recorder.lock().unwrap().2 = Some(reason.to_owned());
        Ok(())
    });
    callbacks_with_stores(
        store,
        MockStatusUpdateStore::new(),
        MockInboxStore::new(),
        templates,
        runs,
    )
    .process(&template_callback(0, change))
    .await
    .unwrap();
    written.lock().unwrap().clone()
}

#[tokio::test]
async fn stopped_template_pauses_campaigns_and_notifies() {
    for status in [MetaStatus::Paused, MetaStatus::Disabled] {
        let (template, events, paused) = apply_template_update(review(status)).await;
        assert_eq!(template.unwrap().meta_status, status);
        assert!(matches!(&events[..], [Event::Notification(n)] if n.kind == NotificationKind::Warning));
        assert_eq!(paused.unwrap(), format!("WhatsApp has {status} the template"));
    }
    let (_, events, paused) = apply_template_update(review(MetaStatus::Rejected)).await;
    assert!(
        matches!(&events[..], [Event::Notification(n)] if n.message.contains("SCAM")),
        "{events:?}"
    );
    assert_eq!(paused, None);
    let same = apply_template_update(review(MetaStatus::Approved)).await;
    assert_eq!(same, (None, vec![], None));
}

#[tokio::test]
async fn quality_and_category_updates_are_stored() {
    let (template, events, paused) = apply_template_update(TemplateChange::Quality("YELLOW".into())).await;
    let template = template.unwrap();
    assert_eq!(template.quality_score.as_deref(), Some("YELLOW"));
    assert_eq!(
        (template.meta_status, events, paused),
        (MetaStatus::Approved, vec![], None)
    );
    let utility = TemplateChange::Category(CategoryUpdate::Changed(Category::Utility));
    let (template, ..) = apply_template_update(utility).await;
    assert_eq!(template.unwrap().category, Category::Utility);
}

mod drafts;
mod inbound;
mod recipients;
