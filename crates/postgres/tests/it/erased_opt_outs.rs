//! Opt-outs of erased people: every write that adds a number or id to a contact finds them.

use std::sync::Arc;

use recado_domain::contacts::{ContactChange, ContactDraft, ContactStore as _, ContactUpsert, ImportRow, Phone};
use recado_domain::conversations::{InboxStore as _, Sender};
use recado_domain::shared::{ContactId, UpdateOutcome};
use recado_postgres::{ErasedOptOuts, PgContacts};
use time::OffsetDateTime;

use crate::conversations::{connected, inbound_items, inbox, message, sender};
use crate::erasures::FakeHasher;
use crate::support::{DbFixture, id};

/// The number and the id of an erased person who had opted out.
const PHONE: &str = "+5511961234567";
const USER_ID: &str = "BR.eva";

const OTHER_PHONE: &str = "+5511900000009";
const OTHER_ID: &str = "BR.bia";

impl DbFixture {
    fn people(&self) -> PgContacts {
        PgContacts::new(self.tenants.clone()).with_erased_opt_outs(opt_outs())
    }

    async fn add_erased_opt_outs(&self) {
        for identifier in [PHONE.trim_start_matches('+'), USER_ID] {
            let hash = hex::encode(format!("1:{identifier}"));
            self.sql(&format!(
                "INSERT INTO erased_opt_outs (account_id, hash, created_at)
                 VALUES ('{}', '\\x{hash}', now() - interval '1 hour')",
                self.account
            ))
            .await;
        }
    }

    async fn has_opted_out(&self, contact: ContactId) -> bool {
        let query = format!(
            "SELECT (opted_out_at IS NOT NULL)::text FROM contacts WHERE id = '{}'",
            contact.0
        );
        self.text(&query).await.as_deref() == Some("true")
    }

    async fn contact_with(&self, phone: Option<&str>, user_id: Option<&str>) -> ContactId {
        let created = self
            .people()
            .insert(
                self.account,
                id().into(),
                &draft(phone, user_id),
                &[],
                OffsetDateTime::now_utc(),
            )
            .await
            .unwrap();
        assert!(!self.has_opted_out(created.id).await || phone == Some(PHONE));
        created.id
    }
}

fn opt_outs() -> ErasedOptOuts {
    ErasedOptOuts::new(Arc::new(FakeHasher))
}

fn draft(phone: Option<&str>, user_id: Option<&str>) -> ContactDraft {
    ContactDraft {
        name: "Eva".into(),
        phone: phone.and_then(Phone::parse),
        email: None,
        wa_user_id: user_id.map(str::to_owned),
        time_zone: None,
        attributes: serde_json::Map::new(),
        opted_out: None,
    }
}

async fn import(fixture: &DbFixture, phone: Option<&str>, user_id: Option<&str>) {
    let row = ImportRow {
        contact: draft(phone, user_id),
        tags: vec![],
    };
    let now = OffsetDateTime::now_utc();
    let written = fixture
        .people()
        .upsert(fixture.account, &[id().into()], &[row], now)
        .await;
    written.unwrap();
}

#[tokio::test]
async fn import_that_adds_a_number_or_id_finds_the_opt_out() {
    let fixture = DbFixture::new().await;
    fixture.add_erased_opt_outs().await;
    let with_id = fixture.contact_with(None, Some(OTHER_ID)).await;
    import(&fixture, Some(PHONE), Some(OTHER_ID)).await;
    assert!(fixture.has_opted_out(with_id).await);
    let with_phone = fixture.contact_with(Some(OTHER_PHONE), None).await;
    import(&fixture, Some(OTHER_PHONE), None).await;
    assert!(!fixture.has_opted_out(with_phone).await);
    import(&fixture, Some(OTHER_PHONE), Some(USER_ID)).await;
    assert!(fixture.has_opted_out(with_phone).await);
}

#[tokio::test]
async fn reported_contact_that_gets_a_number_or_id_is_opted_out() {
    for (before, after) in [
        ((None, Some(OTHER_ID)), (Some(PHONE), Some(OTHER_ID))),
        ((Some(OTHER_PHONE), None), (Some(OTHER_PHONE), Some(USER_ID))),
    ] {
        let fixture = DbFixture::new().await;
        fixture.add_erased_opt_outs().await;
        let contact = fixture.contact_with(before.0, before.1).await;
        let upsert = ContactUpsert {
            contact: draft(after.0, after.1),
            tag_ids: vec![],
            tags: vec![],
        };
        let now = OffsetDateTime::now_utc();
        let written = fixture
            .people()
            .upsert_one(fixture.account, id().into(), &upsert, now)
            .await;
        written.unwrap();
        assert!(fixture.has_opted_out(contact).await, "{after:?}");
    }
}

/// The contact has opted in since the erasure. A change that states its number again adds nothing.
#[tokio::test]
async fn stated_opt_in_outlives_writes_of_the_same_number() {
    let fixture = DbFixture::new().await;
    fixture.add_erased_opt_outs().await;
    let opted_in = ContactDraft {
        opted_out: Some(false),
        ..draft(Some(PHONE), None)
    };
    let people = fixture.people();
    let now = OffsetDateTime::now_utc();
    let contact = people
        .insert(fixture.account, id().into(), &opted_in, &[], now)
        .await
        .unwrap()
        .id;
    let same = ContactChange {
        phone: Some(Phone::parse(PHONE)),
        ..ContactChange::default()
    };
    let changed = people.update(fixture.account, contact, None, &same, now).await.unwrap();
    assert!(matches!(changed, UpdateOutcome::Done(_)));
    import(&fixture, Some(PHONE), None).await;
    import(&fixture, Some(PHONE), Some(OTHER_ID)).await;
    assert!(!fixture.has_opted_out(contact).await);
}

/// WhatsApp reports the user id of an erased person for a contact that has its number.
#[tokio::test]
async fn message_that_reports_an_id_finds_the_opt_out() {
    for is_newer in [false, true] {
        let (fixture, _) = connected().await;
        fixture.add_erased_opt_outs().await;
        let contact = fixture.contact_with(Some(OTHER_PHONE), None).await;
        let consent_at = if is_newer { "now()" } else { "now() - interval '1 day'" };
        fixture
            .sql(&format!("UPDATE contacts SET consent_at = {consent_at}"))
            .await;
        let version = "SELECT version::text FROM contacts";
        let before = fixture.text(version).await;
        let reported = Sender {
            user_id: Some(USER_ID.into()),
            ..sender("5511900000009")
        };
        let items = inbound_items(vec![message("m1", reported, "oi", 0)]);
        let inbox = inbox(&fixture).with_erased_opt_outs(opt_outs());
        inbox.receive(fixture.account, "111", &items).await.unwrap();
        // A consent that is newer than the erasure stays.
        assert_eq!(fixture.has_opted_out(contact).await, !is_newer, "{is_newer}");
        assert!(is_newer || fixture.text(version).await != before);
    }
}

/// The person is erased again: a consent from between the two erasures is not newer.
#[tokio::test]
async fn opt_out_has_the_time_of_the_last_erasure() {
    for (stored_at, is_later) in [
        ("now() - interval '1 hour'", true),
        ("now() + interval '1 hour'", false),
    ] {
        let fixture = DbFixture::new().await;
        fixture.add_erased_opt_outs().await;
        fixture
            .sql(&format!("UPDATE erased_opt_outs SET created_at = {stored_at}"))
            .await;
        let hashes = "SELECT string_agg(created_at::text, ' ' ORDER BY hash) FROM erased_opt_outs";
        let before = fixture.text(hashes).await.unwrap();
        let contact = fixture.contact_with(Some(PHONE), None).await;
        assert!(fixture.has_opted_out(contact).await);
        fixture.erase(fixture.account, contact).await;
        let after = fixture.text(hashes).await.unwrap();
        assert_eq!(after != before, is_later, "{before}, {after}");
        let recent = "SELECT count(*) FROM erased_opt_outs WHERE abs(extract(epoch FROM now() - created_at)) < 600";
        assert_eq!(fixture.number(recent).await, i64::from(is_later));
    }
}
