//! Delivery of held events, with mocked ports.

use std::sync::Mutex;

use time::OffsetDateTime;
use time::macros::datetime;
use uuid::Uuid;

use super::*;
use crate::conversations::{InboundMessage, MockInboxStore, Sender};
use crate::shared::{MockCipher, MockIds, ProfileId, Sealed};
use crate::whatsapp::verification::{MockHeldMessageStore, MockNumberHolderStore, VerificationRecord};
use crate::whatsapp::{MockProfileStore, StoredProfile};

const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);
const SINCE: OffsetDateTime = datetime!(2026-02-28 12:00 UTC);
const ACCOUNT: AccountId = AccountId(Uuid::from_u128(1));
const PROFILE: ProfileId = ProfileId(Uuid::from_u128(2));

fn event(id: &str) -> InboundEvent {
    InboundEvent::Message(InboundMessage {
        wa_message_id: id.into(),
        sender: Sender {
            wa_id: Some("5511961234567".into()),
            user_id: None,
            name: None,
            ..Sender::default()
        },
        at: NOW,
        kind: "text".into(),
        text: Some("oi".into()),
        can_opt_out: true,
        answered_wa_id: None,
        referral: None,
        payload: serde_json::json!({}),
        caption: None,
        interactive: None,
        quoted: None,
        file: None,
    })
}

/// "Seals" by marking the text with its place.
fn cipher() -> MockCipher {
    let mut cipher = MockCipher::new();
    cipher
        .expect_seal()
        .returning(|text, context| Sealed(format!("{}|{}", context.row, text.expose_secret()).into_bytes()));
    cipher.expect_open().returning(|sealed, context| {
        let sealed = String::from_utf8(sealed.0.clone()).unwrap();
        let text = sealed.strip_prefix(&format!("{}|", context.row))?;
        Some(text.to_owned().into())
    });
    cipher
}

fn ids() -> MockIds {
    let mut ids = MockIds::new();
    ids.expect_next().returning(Uuid::now_v7);
    ids
}

/// Held events with the positions from 1.
fn held_events(count: i64) -> Vec<StoredHeldMessage> {
    let stores = HeldStores {
        holders: Arc::new(MockNumberHolderStore::new()),
        held: Arc::new(MockHeldMessageStore::new()),
        inbox: Arc::new(MockInboxStore::new()),
        profiles: Arc::new(MockProfileStore::new()),
    };
    let messages = HeldMessages::new(stores, Arc::new(cipher()), Arc::new(ids()));
    let stored = |seq: i64| {
        let HeldMessage { key, event } = messages.seal("1065", &event(&seq.to_string())).unwrap();
        StoredHeldMessage { seq, key, event }
    };
    (1..=count).map(stored).collect()
}

/// A profile that waits for held events, and the steps of a delivery to it.
struct Delivery {
    stored: StoredProfile,
    held: Vec<StoredHeldMessage>,
    /// The inbox cannot apply this message.
    poison: Option<&'static str>,
    outcome: ReceiveOutcome,
}

impl Delivery {
    fn new(count: i64) -> Self {
        let mut stored = StoredProfile::for_tests(PROFILE, NOW);
        stored.history.held_since = Some(SINCE);
        Self {
            stored,
            held: held_events(count),
            poison: None,
            outcome: ReceiveOutcome::Received,
        }
    }

    /// The steps: `give <first>..<last>`, `mark <first>..<last>`, `end`; and the result.
    async fn run(self) -> (Vec<String>, Result<bool, StoreError>) {
        let steps = Arc::new(Mutex::new(Vec::new()));
        let record = || {
            let steps = steps.clone();
            move |step: String| steps.lock().unwrap().push(step)
        };
        let mut holders = MockNumberHolderStore::new();
        holders.expect_waiting_for_held().times(1).returning(|_| {
            Ok(vec![ProfileKey {
                account_id: ACCOUNT,
                profile_id: PROFILE,
            }])
        });
        let step = record();
        holders
            .expect_end_hold()
            .withf(|account, profile, since| (*account, *profile, *since) == (ACCOUNT, PROFILE, SINCE))
            .returning(move |_, _, _| {
                step("end".into());
                Ok(())
            });
        let mut held = MockHeldMessageStore::new();
        let all = self.held;
        held.expect_held_since()
            .withf(|number, since, _, limit| (number, *since, *limit) == ("1065", SINCE, PAGE))
            .returning(move |_, _, after, limit| {
                let page = all.iter().filter(|message| message.seq > after).cloned();
                Ok(page.take(usize::try_from(limit).unwrap()).collect())
            });
        let step = record();
        held.expect_mark_given().returning(move |_, seqs| {
            step(format!("mark {}..{}", seqs[0], seqs[seqs.len() - 1]));
            Ok(())
        });
        let mut inbox = MockInboxStore::new();
        let (step, poison, outcome) = (record(), self.poison, self.outcome);
        inbox.expect_receive().returning(move |account, number, items| {
            assert_eq!((account, number), (ACCOUNT, "1065"));
            let ids: Vec<String> = items
                .iter()
                .map(|item| match &item.event {
                    InboundEvent::Message(message) => message.wa_message_id.clone(),
                    other => panic!("{other:?}"),
                })
                .collect();
            step(format!("give {}..{}", ids[0], ids[ids.len() - 1]));
            match poison {
                Some(poison) if ids.iter().any(|id| id == poison) => Err(StoreError::Corrupt("poison".into())),
                _ => Ok(outcome),
            }
        });
        let mut profiles = MockProfileStore::new();
        let stored = self.stored;
        profiles
            .expect_find()
            .times(1)
            .returning(move |_, _| Ok(Some(stored.clone())));
        let stores = HeldStores {
            holders: Arc::new(holders),
            held: Arc::new(held),
            inbox: Arc::new(inbox),
            profiles: Arc::new(profiles),
        };
        let result = HeldMessages::new(stores, Arc::new(cipher()), Arc::new(ids()))
            .deliver()
            .await;
        let steps = std::mem::take(&mut *steps.lock().unwrap());
        (steps, result)
    }
}

#[tokio::test]
async fn held_events_are_given_in_pages_before_the_wait_ends() {
    let (steps, result) = Delivery::new(101).run().await;
    let expected = ["give 1..100", "mark 1..100", "give 101..101", "mark 101..101", "end"];
    assert_eq!(steps, expected);
    assert!(!result.unwrap());
    let (steps, _) = Delivery::new(0).run().await;
    assert_eq!(steps, ["end"]);
}

#[tokio::test]
async fn event_that_cannot_be_given_does_not_block_others_and_stays_held() {
    let mut delivery = Delivery::new(3);
    delivery.poison = Some("2");
    let (steps, result) = delivery.run().await;
    let expected = [
        "give 1..3",
        "give 1..1",
        "mark 1..1",
        "give 2..2",
        "give 3..3",
        "mark 3..3",
    ];
    assert_eq!(steps, expected);
    assert!(matches!(result, Err(StoreError::Corrupt(_))), "{result:?}");
    // Nor one that cannot be opened, because it was sealed for another place.
    let mut delivery = Delivery::new(3);
    delivery.held[1].key = vec![0];
    let (steps, result) = delivery.run().await;
    assert_eq!(steps, ["give 1..3", "mark 1..3"]);
    assert!(matches!(result, Err(StoreError::Corrupt(_))), "{result:?}");
}

#[tokio::test]
async fn unverified_profile_is_given_nothing_and_waits_on() {
    let mut delivery = Delivery::new(1);
    delivery.stored.profile.verification = VerificationRecord::new(NOW).verification;
    assert_eq!(delivery.run().await.0, [""; 0]);
    // It stopped being verified after it was read.
    let mut delivery = Delivery::new(101);
    delivery.outcome = ReceiveOutcome::NotVerified;
    let (steps, result) = delivery.run().await;
    assert_eq!(steps, ["give 1..100"]);
    assert!(!result.unwrap());
}

#[test]
fn key_is_one_per_message_and_number() {
    let keys = [
        key("1065", &event("a"), "json"),
        key("1065", &event("a"), "other json"),
        key("1065", &event("b"), "json"),
        key("1066", &event("a"), "json"),
    ];
    assert_eq!(keys[0], keys[1]);
    let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), 3);
    let preference = |at| InboundEvent::Preference {
        sender: Sender {
            wa_id: None,
            user_id: Some("BR.1".into()),
            name: None,
            ..Sender::default()
        },
        opted_in: false,
        at,
    };
    let hash = |event: &InboundEvent| key("1065", event, &serde_json::to_string(event).unwrap());
    assert_ne!(hash(&preference(NOW)), hash(&preference(SINCE)));
}
