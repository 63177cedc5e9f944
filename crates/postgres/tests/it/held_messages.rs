//! Inbound messages of a number that two accounts have entered: who receives them, and when.

use std::sync::Arc;

use recado_domain::callbacks::{HeldMessages, HeldStores};
use recado_domain::conversations::{InboundEvent, InboxStore, ReceiveOutcome};
use recado_domain::shared::{AccountId, Cipher, Ids, ProfileId, SealContext, Sealed};
use recado_domain::whatsapp::verification::{NumberHolderStore as _, VerificationRecord};
use recado_domain::whatsapp::{ProfileStore, StoredProfile};
use recado_postgres::{PgHeldMessages, PgProfiles, PgVerifications};
use secrecy::{ExposeSecret as _, SecretString};
use time::Duration;
use uuid::Uuid;

use crate::conversations::{inbound_items, message, sender};
use crate::support::{DbFixture, NOW, id};
use crate::whatsapp::profile;

const NUMBER: &str = "111";

/// Marks a text with its place.
struct FakeCipher;

impl Cipher for FakeCipher {
    fn seal(&self, secret: &SecretString, context: &SealContext) -> Sealed {
        Sealed(format!("{}|{}", context.row, secret.expose_secret()).into_bytes())
    }

    fn open(&self, sealed: &Sealed, context: &SealContext) -> Option<SecretString> {
        let sealed = String::from_utf8(sealed.0.clone()).unwrap();
        let text = sealed.strip_prefix(&format!("{}|", context.row))?;
        Some(text.to_owned().into())
    }
}

struct RandomIds;

impl Ids for RandomIds {
    fn next(&self) -> Uuid {
        id()
    }
}

fn held_messages(fixture: &DbFixture) -> HeldMessages {
    let stores = HeldStores {
        holders: Arc::new(verifications(fixture)),
        held: Arc::new(PgHeldMessages::new(fixture.owner.clone())),
        inbox: Arc::new(crate::conversations::inbox(fixture)),
        profiles: Arc::new(PgProfiles::new(fixture.tenants.clone())),
    };
    HeldMessages::new(stores, Arc::new(FakeCipher), Arc::new(RandomIds))
}

fn verifications(fixture: &DbFixture) -> PgVerifications {
    PgVerifications::new(fixture.tenants.clone(), fixture.owner.clone())
}

/// Connects the number to the account: not verified, and waiting for messages since a minute ago.
async fn connect_unverified(fixture: &DbFixture, account: AccountId) -> ProfileId {
    let mut stored: StoredProfile = profile(NUMBER);
    let record = VerificationRecord::new(NOW);
    stored.profile.verification = record.verification;
    stored.history = record.history;
    PgProfiles::new(fixture.tenants.clone())
        .insert(account, &stored, &[])
        .await
        .unwrap();
    let id = stored.profile.id;
    fixture
        .sql(&format!(
            "UPDATE whatsapp_profiles SET held_since = now() - interval '1 minute' WHERE id = '{id}'"
        ))
        .await;
    id
}

async fn verify(fixture: &DbFixture, id: ProfileId) {
    fixture
        .sql(&format!(
            "UPDATE whatsapp_profiles SET verification_state = 'verified' WHERE id = '{id}'"
        ))
        .await;
}

/// A message of an hour before `NOW`.
fn event(wamid: &str) -> InboundEvent {
    message(wamid, sender("5511961234567"), "oi", -60)
}

/// WhatsApp's ids and the times of the account's messages.
async fn messages(fixture: &DbFixture, account: AccountId) -> String {
    let query = format!(
        "SELECT coalesce(string_agg(wa_message_id || ' ' || floor(extract(epoch FROM created_at))::bigint, ', '
           ORDER BY wa_message_id), '') FROM messages WHERE account_id = '{account}'"
    );
    fixture.text(&query).await.unwrap()
}

#[tokio::test]
async fn only_the_verified_account_receives_and_the_other_one_later_once() {
    let fixture = DbFixture::new().await;
    let (mine, other) = (fixture.account, fixture.another_account().await);
    let my_profile = connect_unverified(&fixture, mine).await;
    let other_profile = connect_unverified(&fixture, other).await;
    verify(&fixture, my_profile).await;
    let held = held_messages(&fixture);
    // Messages of an hour ago keep their times.
    let at = NOW - Duration::HOUR;
    let events = [event("in1"), event("in2")];
    let items = inbound_items(events.to_vec());
    let inbox = crate::conversations::inbox(&fixture);
    let receive = async |account| inbox.receive(account, NUMBER, &items).await.unwrap();
    assert_eq!(receive(mine).await, ReceiveOutcome::Received);
    assert_eq!(receive(other).await, ReceiveOutcome::NotVerified);
    assert_eq!(
        inbox.receive(other, "999", &items).await.unwrap(),
        ReceiveOutcome::NoNumber
    );
    for _ in 0..2 {
        held.hold(NUMBER, &events, true).await.unwrap();
    }
    let expected = format!("in1 {0}, in2 {0}", at.unix_timestamp());
    // The verified account waited too. It gets nothing twice.
    for _ in 0..2 {
        assert!(!held.deliver().await.unwrap());
        assert_eq!(messages(&fixture, mine).await, expected);
        assert_eq!(messages(&fixture, other).await, "");
    }
    verify(&fixture, other_profile).await;
    for _ in 0..2 {
        held.deliver().await.unwrap();
        assert_eq!(messages(&fixture, other).await, expected);
        assert_eq!(messages(&fixture, mine).await, expected);
    }
    assert_eq!(verifications(&fixture).waiting_for_held(10).await.unwrap(), []);
    let noted = "SELECT count(*) FROM whatsapp_profiles WHERE last_inbound_at IS NOT NULL";
    assert_eq!(fixture.number(noted).await, 2);
    assert_eq!(
        fixture.number("SELECT count(*) FROM conversations").await,
        2,
        "one in each account"
    );
}

#[tokio::test]
async fn profile_gets_nothing_from_before_it_was_made() {
    let fixture = DbFixture::new().await;
    connect_unverified(&fixture, fixture.another_account().await).await;
    let held = held_messages(&fixture);
    held.hold(NUMBER, &[event("in1")], false).await.unwrap();
    fixture
        .sql("UPDATE whatsapp_held_messages SET received_at = now() - interval '1 hour'")
        .await;
    let later = connect_unverified(&fixture, fixture.account).await;
    verify(&fixture, later).await;
    held.deliver().await.unwrap();
    assert_eq!(messages(&fixture, fixture.account).await, "");
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM whatsapp_held_messages WHERE given")
            .await,
        0
    );
}

#[tokio::test]
async fn purge_counts_what_nobody_was_given() {
    let fixture = DbFixture::new().await;
    let id = connect_unverified(&fixture, fixture.account).await;
    let held = held_messages(&fixture);
    held.hold(NUMBER, &[event("in1")], false).await.unwrap();
    verify(&fixture, id).await;
    held.deliver().await.unwrap();
    held.hold(NUMBER, &[event("in2"), event("in3")], false).await.unwrap();
    let purge = async || held.purge(10).await.unwrap();
    assert_eq!(purge().await.removed, 0);
    fixture
        .sql("UPDATE whatsapp_held_messages SET received_at = now() - interval '169 hours'")
        .await;
    let purged = purge().await;
    assert_eq!((purged.removed, purged.unclaimed), (3, 2));
}
