//! Inbound events: which profiles receive them, when they are held, and the order of both.

use std::collections::VecDeque;

use serde_json::json;

use super::*;
use crate::conversations::{InboundMessage, Sender};

use VerificationState::{Failed, Pending, Verified};

const PAIR: [&str; 2] = ["a", "b"];

fn messages() -> StoredCallback {
    let message = |id: &str| {
        CallbackChange::Inbound(ReceivedInbound {
            phone_number_id: "1065".into(),
            event: InboundEvent::Message(InboundMessage {
                wa_message_id: id.into(),
                sender: Sender {
                    wa_id: Some("5511961234567".into()),
                    ..Sender::default()
                },
                at: datetime!(2026-03-01 11:00 UTC),
                kind: "text".into(),
                text: Some("Oi".into()),
                can_opt_out: true,
                answered_wa_id: None,
                referral: None,
                payload: json!({}),
                caption: None,
                interactive: None,
                quoted: None,
                file: None,
            }),
        })
    };
    callback(0, PAIR.map(message).into())
}

/// A store of callbacks that records when one is deferred.
fn callback_store(step: impl Fn(String) + Send + 'static) -> MockCallbackStore {
    let mut store = MockCallbackStore::new();
    store.expect_delete().returning(|_| Ok(()));
    store.expect_postpone().returning(|_, _| Ok(()));
    store.expect_defer().returning(move |_, _| {
        step("defer".into());
        Ok(())
    });
    store
}

/// What happens to a callback of two messages, and what was done in which order.
struct Scenario {
    /// The profiles of the number at each time that they are read.
    holders: Vec<Vec<(AccountId, VerificationState)>>,
    /// The answers of the inbox, in the order of the calls.
    answers: Vec<Result<ReceiveOutcome, StoreError>>,
}

impl Scenario {
    /// The steps of processing the callback: `read`, `give <account>`, `hold <given>`.
    async fn steps(self) -> Vec<String> {
        let steps = Arc::new(Mutex::new(Vec::new()));
        let record = |steps: &Arc<Mutex<Vec<String>>>| {
            let steps = steps.clone();
            move |step: String| steps.lock().unwrap().push(step)
        };
        let mut holders = noted(MockNumberHolderStore::new());
        let (step, mut reads) = (record(&steps), VecDeque::from(self.holders));
        holders
            .expect_holders_of_number()
            .withf(|number| number == "1065")
            .returning(move |_| {
                step("read".into());
                let holders = reads.pop_front().unwrap();
                Ok(holders
                    .into_iter()
                    .map(|(account, state)| holder(account, state))
                    .collect())
            });
        let mut inbox = MockInboxStore::new();
        let (step, mut answers) = (record(&steps), VecDeque::from(self.answers));
        inbox
            .expect_receive()
            .withf(|_, number, items| {
                let ids: BTreeSet<Uuid> = items
                    .iter()
                    .flat_map(|item| [item.contact_id.0, item.conversation_id.0, item.message_id.0])
                    .collect();
                let in_order = items.iter().zip(PAIR).all(
                    |(item, id)| matches!(&item.event, InboundEvent::Message(message) if message.wa_message_id == id),
                );
                number == "1065" && ids.len() == 6 && in_order
            })
            .returning(move |account, _, _| {
                step(format!("give {}", account.0.as_u128()));
                answers.pop_front().unwrap()
            });
        let mut held = MockHeldMessageStore::new();
        let step = record(&steps);
        held.expect_hold()
            .withf(|number, messages, _| {
                let keys: BTreeSet<_> = messages.iter().map(|message| message.key.clone()).collect();
                number == "1065" && keys.len() == 2 && keys.iter().all(|key| key.len() == 32)
            })
            .returning(move |_, _, given| {
                step(format!("hold {given}"));
                Ok(())
            });
        let store = callback_store(record(&steps));
        let stores = CallbackStores {
            callbacks: Arc::new(store),
            status_updates: Arc::new(MockStatusUpdateStore::new()),
            inbox: Arc::new(inbox),
            holders: Arc::new(holders),
            templates: Arc::new(MockTemplateStore::new()),
            runs: Arc::new(MockRunStore::new()),
        };
        let callbacks = build(stores, held, MockCallbackReport::new());
        let processed = callbacks.process(&messages()).await;
        let mut steps = std::mem::take(&mut *steps.lock().unwrap());
        if processed.is_err() {
            steps.push("error".into());
        }
        steps
    }
}

const RECEIVED: Result<ReceiveOutcome, StoreError> = Ok(ReceiveOutcome::Received);

#[tokio::test]
async fn every_verified_profile_receives_the_messages_in_order() {
    let scenario = Scenario {
        holders: vec![vec![(A, Verified), (B, Verified)]],
        answers: vec![RECEIVED, RECEIVED],
    };
    assert_eq!(scenario.steps().await, ["read", "give 1", "give 2"]);
}

#[tokio::test]
async fn change_that_comes_before_its_message_is_applied_again() {
    let scenario = Scenario {
        holders: vec![vec![(A, Verified), (B, Verified)]],
        answers: vec![Ok(ReceiveOutcome::ReceivedEarly), RECEIVED],
    };
    assert_eq!(scenario.steps().await, ["read", "give 1", "give 2", "defer"]);
}

#[tokio::test]
async fn number_without_profiles_holds_nothing() {
    let scenario = Scenario {
        holders: vec![vec![]],
        answers: vec![],
    };
    assert_eq!(scenario.steps().await, ["read"]);
}

#[tokio::test]
async fn messages_are_held_beside_what_verified_profiles_receive() {
    for state in [Pending, Failed] {
        let holders = vec![(A, Verified), (B, state)];
        let scenario = Scenario {
            holders: vec![holders.clone(), holders],
            answers: vec![RECEIVED],
        };
        assert_eq!(scenario.steps().await, ["read", "give 1", "hold true", "read"]);
        let alone = Scenario {
            holders: vec![vec![(B, state)]; 2],
            answers: vec![],
        };
        assert_eq!(alone.steps().await, ["read", "hold false", "read"]);
    }
}

#[tokio::test]
async fn profile_that_is_verified_before_the_messages_are_held_receives_them() {
    let scenario = Scenario {
        holders: vec![vec![(A, Pending), (B, Pending)], vec![(A, Pending), (B, Verified)]],
        answers: vec![RECEIVED],
    };
    let steps = scenario.steps().await;
    assert_eq!(steps, ["read", "hold false", "read", "give 2", "hold true"]);
    // A verified profile that received the messages is not given them twice.
    let scenario = Scenario {
        holders: vec![vec![(A, Verified), (B, Pending)], vec![(A, Verified), (B, Verified)]],
        answers: vec![RECEIVED, RECEIVED],
    };
    let steps = scenario.steps().await;
    assert_eq!(steps, ["read", "give 1", "hold true", "read", "give 2"]);
}

#[tokio::test]
async fn profile_that_stops_being_verified_before_it_receives_has_the_messages_held() {
    let scenario = Scenario {
        holders: vec![vec![(A, Verified)], vec![(A, Failed)]],
        answers: vec![Ok(ReceiveOutcome::NotVerified)],
    };
    assert_eq!(scenario.steps().await, ["read", "give 1", "hold false", "read"]);
    let again = Scenario {
        holders: vec![vec![(A, Verified)], vec![(A, Verified)]],
        answers: vec![Ok(ReceiveOutcome::NotVerified), RECEIVED],
    };
    let steps = again.steps().await;
    assert_eq!(steps, ["read", "give 1", "hold false", "read", "give 1", "hold true"]);
    let gone = Scenario {
        holders: vec![vec![(A, Verified)]],
        answers: vec![Ok(ReceiveOutcome::NoNumber)],
    };
    assert_eq!(gone.steps().await, ["read", "give 1"]);
}

#[tokio::test]
async fn unavailable_store_ends_the_attempt_before_anything_is_held() {
    let scenario = Scenario {
        holders: vec![vec![(A, Verified), (B, Pending)]],
        answers: vec![Err(StoreError::Unavailable("away".into()))],
    };
    assert_eq!(scenario.steps().await, ["read", "give 1", "error"]);
}

#[tokio::test]
async fn template_updates_reach_only_accounts_with_a_verified_number() {
    let mut store = MockCallbackStore::new();
    store.expect_delete().times(1).returning(|_| Ok(()));
    let mut templates = MockTemplateStore::new();
    templates
        .expect_find_by_meta_id()
        .times(1)
        .withf(|account, _| *account == A)
        .returning(|_, _| Ok(None));
    let mut holders = MockNumberHolderStore::new();
    // Two numbers of one account.
    holders
        .expect_verified_of_business()
        .returning(|_| Ok(vec![holder(A, Verified), holder(A, Verified)]));
    let stores = CallbackStores {
        callbacks: Arc::new(store),
        status_updates: Arc::new(MockStatusUpdateStore::new()),
        inbox: Arc::new(MockInboxStore::new()),
        holders: Arc::new(holders),
        templates: Arc::new(templates),
        runs: Arc::new(MockRunStore::new()),
    };
    let last = template_callback(RETRIES, review(MetaStatus::Approved));
    build(stores, MockHeldMessageStore::new(), MockCallbackReport::new())
        .process(&last)
        .await
        .unwrap();
}
