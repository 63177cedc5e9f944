//! The steps of erasures, row by row: whose copies are removed, and whose stay.

use std::sync::Arc;

use recado_domain::contacts::{Identifier, IdentifierHasher};
use recado_domain::erasures::{
    BatchEnd, Erasure, ErasureClaim, ErasureQueue as _, ErasureRequest, ErasureState, ErasureStep, ErasureStore as _,
};
use recado_domain::shared::{
    AccountId, Audit, AuditAction, Cipher, ContactId, CursorQuery, SealContext, Sealed, UpdateOutcome,
};
use recado_postgres::PgErasures;
use secrecy::{ExposeSecret as _, SecretString};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::support::{DbFixture, LEASE, id};

const PHONE: &str = "+5511961234567";

/// Reverses the bytes.
struct FakeCipher;

impl Cipher for FakeCipher {
    fn seal(&self, secret: &SecretString, _: &SealContext) -> Sealed {
        Sealed(secret.expose_secret().bytes().rev().collect())
    }

    fn open(&self, sealed: &Sealed, _: &SealContext) -> Option<SecretString> {
        let text = String::from_utf8(sealed.0.iter().rev().copied().collect()).ok()?;
        Some(text.into())
    }
}

/// The hash of the current secret is `1:`, that of the one before `0:`.
pub(crate) struct FakeHasher;

impl IdentifierHasher for FakeHasher {
    fn hash(&self, _: AccountId, identifier: &Identifier) -> Vec<u8> {
        format!("1:{}", identifier.as_str()).into_bytes()
    }

    fn all_hashes(&self, account: AccountId, identifier: &Identifier) -> Vec<Vec<u8>> {
        vec![
            self.hash(account, identifier),
            format!("0:{}", identifier.as_str()).into_bytes(),
        ]
    }
}

impl DbFixture {
    pub(crate) fn erasures(&self) -> PgErasures {
        PgErasures::new(
            self.tenants.clone(),
            self.owner.clone(),
            Arc::new(FakeHasher),
            Arc::new(FakeCipher),
        )
    }

    /// A contact with the phone number, and a row of each kind of copy.
    pub(crate) async fn person(&self, account: AccountId) -> ContactId {
        let (contact, conversation) = (id(), id());
        let sealed = FakeCipher.seal(
            &format!("{{\"phone\":\"{PHONE}\"}}").into(),
            &SealContext::held_message(b""),
        );
        let event = |of: Uuid, phone: &str| format!("{{\"id\": \"{of}\", \"phone\": \"{phone}\"}}");
        let own = event(contact, PHONE);
        let other = event(id(), "+5511900000000");
        self.sql(&format!(
            "INSERT INTO contacts (account_id, id, name, phone) VALUES ('{account}', '{contact}', 'Eva', '{PHONE}');
             INSERT INTO conversations (account_id, id, contact_id, last_message_at)
               VALUES ('{account}', '{conversation}', '{contact}', now());
             INSERT INTO messages (account_id, id, conversation_id, direction, type, text, status, created_at)
               SELECT '{account}', gen_random_uuid(), '{conversation}', 'inbound', 'text', 'oi', 'received', now()
               FROM generate_series(1, 3);
             INSERT INTO outbox_events (account_id, payload)
               VALUES ('{account}', '{{\"kind\": \"webhook\", \"type\": \"contact.updated\", \"items\": [{own}, {other}]}}'),
                 ('{account}', '{{\"kind\": \"webhook\", \"type\": \"contact.updated\", \"items\": [{own}]}}');
             INSERT INTO webhook_events (account_id, id, type, payload, occurred_at)
               VALUES ('{account}', '{a}', 'contact.updated', '{own}', now()),
                 ('{account}', '{b}', 'contact.updated', '{other}', now()),
                 ('{account}', '{c}', 'contact.created', '{later}', now() + interval '1 hour');
             INSERT INTO notifications (account_id, id, type, title, message)
               VALUES ('{account}', '{a}', 'info', 't', 'de {PHONE}'), ('{account}', '{b}', 'info', 't', 'm');
             INSERT INTO audit_logs (account_id, id, action, entity_type, changes)
               VALUES ('{account}', '{a}', 'update', 'x', '{own}'), ('{account}', '{b}', 'update', 'x', '{other}');
             INSERT INTO idempotency_keys (scope, key, holder, leased_until, request_hash, response, created_at)
               VALUES ('{account}', 'own', '{a}', now(), '\\x00', '\\x{sealed}', now() - interval '1 hour'),
                 ('{account}', 'later', '{a}', now(), '\\x00', '\\x{sealed}', now() + interval '1 hour')",
            a = id(),
            b = id(),
            c = id(),
            later = event(id(), PHONE),
            sealed = hex::encode(sealed.0),
        ))
        .await;
        contact.into()
    }

    pub(crate) async fn erase(&self, account: AccountId, contact_id: ContactId) -> Erasure {
        let request = ErasureRequest {
            id: id().into(),
            contact_id,
            reason: Some(format!("pedido de {PHONE}")),
            requested_at: OffsetDateTime::now_utc(),
            opt_outs: vec![],
            audit: Audit {
                user_id: None,
                action: AuditAction::Delete,
                entity_type: "contact_erasure".into(),
                entity_id: None,
                changes: None,
                ip_address: None,
                support_admin: None,
            },
        };
        let receipt = self.erasures().request(account, &request).await.unwrap().unwrap();
        self.sql("UPDATE erasures SET due_at = now() WHERE due_at IS NOT NULL")
            .await;
        receipt
    }

    /// Takes all steps in batches of one row.
    async fn finish(&self) -> ErasureClaim {
        let erasures = self.erasures();
        let claim = erasures.claim(id(), LEASE).await.unwrap().unwrap();
        let steps = std::iter::successors(Some(claim.step), |step| step.next());
        for step in steps.filter(|step| *step != ErasureStep::Record) {
            loop {
                let end = match step.has_files() {
                    true => erasures.release_files(&claim, step, 1, LEASE).await.unwrap().0,
                    false => erasures.run_batch(&claim, step, 1, LEASE).await.unwrap(),
                };
                match end {
                    BatchEnd::Done => break,
                    // Transactions of other tests in the same cluster are older, too.
                    BatchEnd::Wait => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                    BatchEnd::More => {}
                    BatchEnd::Lost => panic!("{step}"),
                }
            }
            assert!(erasures.advance(&claim, step.next()).await.unwrap(), "{step}");
        }
        claim
    }

    async fn rows(&self, account: AccountId) -> String {
        let tables = [
            ("contacts", "name || coalesce(phone, '')"),
            ("messages", "coalesce(text, '-')"),
            ("outbox_events", "payload::text"),
            ("webhook_events", "payload::text"),
            ("notifications", "message"),
            ("audit_logs", "coalesce(changes::text, '-')"),
            ("idempotency_keys", "key"),
        ];
        let mut rows = String::new();
        for (table, value) in tables {
            let owner = if table == "idempotency_keys" {
                "scope"
            } else {
                "account_id"
            };
            let query = format!(
                "SELECT coalesce(string_agg({value}, '; ' ORDER BY {value}), '') FROM {table} WHERE {owner} = '{account}'
                   AND to_jsonb({table}.*)::text NOT LIKE '%contact%erasure%'"
            );
            rows.push_str(&format!("{table}: {}\n", self.text(&query).await.unwrap()));
        }
        rows
    }
}

#[tokio::test]
async fn copies_of_the_person_leave_and_all_others_stay() {
    let fixture = DbFixture::new().await;
    let (mine, other) = (fixture.account, fixture.another_account().await);
    let contact = fixture.person(mine).await;
    fixture.person(other).await;
    let others_rows = fixture.rows(other).await;
    fixture.erase(mine, contact).await;
    fixture.finish().await;
    assert_eq!(fixture.rows(other).await, others_rows);

    let mine_rows = fixture.rows(mine).await;
    let line = |table: &str| {
        mine_rows
            .lines()
            .find(|line| line.starts_with(table))
            .unwrap()
            .to_owned()
    };
    assert_eq!(line("contacts"), "contacts: ");
    assert_eq!(line("messages"), "messages: -; -; -");
    // Of the event with two items, the other one is left.
    let outbox = line("outbox_events");
    assert!(
        !outbox.contains(PHONE) && outbox.matches("+5511900000000").count() == 1,
        "{outbox}"
    );
    // An event of a new contact with the same number stays.
    let feed = line("webhook_events");
    assert!(!feed.contains(&contact.to_string()), "{feed}");
    assert_eq!(
        (feed.matches(PHONE).count(), feed.matches("+5511900000000").count()),
        (1, 1),
        "{feed}"
    );
    assert_eq!(line("notifications"), "notifications: m");
    let audit = line("audit_logs");
    assert!(
        audit.contains("-") && !audit.contains(PHONE) && audit.contains("+5511900000000"),
        "{audit}"
    );
    assert_eq!(line("idempotency_keys"), "idempotency_keys: later");

    let page = CursorQuery {
        cursor: None,
        limit: 10,
    };
    let receipt = fixture.erasures().list(mine, &page).await.unwrap().data.remove(0);
    assert_eq!(
        (receipt.state, receipt.finished_at.is_some()),
        (ErasureState::Done, true)
    );
    let counts = [
        "messages",
        "outbox_events",
        "webhook_events",
        "notifications",
        "audit_logs",
        "stored_responses",
    ];
    let counts: Vec<i64> = counts.iter().map(|kind| receipt.removed[*kind]).collect();
    assert_eq!(counts, [3, 2, 1, 1, 1, 1]);
    // The reason named the person.
    assert_eq!(fixture.text("SELECT reason FROM erasures").await, None);
    assert!(fixture.erasures().list(other, &page).await.unwrap().data.is_empty());
    assert!(fixture.erasures().find(other, receipt.id).await.unwrap().is_none());
}

#[tokio::test]
async fn batch_of_a_lost_claim_changes_nothing() {
    let fixture = DbFixture::new().await;
    let contact = fixture.person(fixture.account).await;
    fixture.erase(fixture.account, contact).await;
    let erasures = fixture.erasures();
    let lost = erasures.claim(id(), Duration::ZERO).await.unwrap().unwrap();
    let claim = erasures.claim(id(), LEASE).await.unwrap().unwrap();
    assert_eq!(claim.id, lost.id);
    assert!(erasures.claim(id(), LEASE).await.unwrap().is_none());
    let rows = fixture.rows(fixture.account).await;
    for step in ErasureStep::ALL.iter().filter(|step| **step != ErasureStep::Record) {
        let end = match step.has_files() {
            true => erasures.release_files(&lost, *step, 10, LEASE).await.unwrap().0,
            false => erasures.run_batch(&lost, *step, 10, LEASE).await.unwrap(),
        };
        assert_eq!(end, BatchEnd::Lost, "{step}");
    }
    assert!(!erasures.advance(&lost, None).await.unwrap());
    erasures.postpone(&lost, Duration::ZERO).await.unwrap();
    assert_eq!(fixture.rows(fixture.account).await, rows);
    let running = fixture
        .text("SELECT state || ' ' || (due_at > now()) FROM erasures")
        .await;
    assert_eq!(running.as_deref(), Some("running true"));
}

/// The hash under an earlier secret is found, and deleted once the person has opted in.
#[tokio::test]
async fn opt_out_is_found_under_an_earlier_secret() {
    use recado_domain::contacts::{ContactDraft, ContactStore as _, Phone};
    use recado_postgres::{ErasedOptOuts, PgContacts};

    let fixture = DbFixture::new().await;
    let other = fixture.another_account().await;
    let hash = hex::encode("0:5511961234567");
    fixture
        .sql(&format!(
            "INSERT INTO erased_opt_outs (account_id, hash) VALUES ('{}', '\\x{hash}')",
            fixture.account
        ))
        .await;
    let contacts =
        PgContacts::new(fixture.tenants.clone()).with_erased_opt_outs(ErasedOptOuts::new(Arc::new(FakeHasher)));
    let draft = |opted_out| ContactDraft {
        name: "Eva".into(),
        phone: Phone::parse(PHONE),
        email: None,
        wa_user_id: None,
        time_zone: None,
        attributes: serde_json::Map::new(),
        opted_out,
    };
    let now = OffsetDateTime::now_utc();
    let stranger = contacts
        .insert(other, id().into(), &draft(None), &[], now)
        .await
        .unwrap();
    assert_eq!(stranger.opted_out_at, None);
    let created = contacts
        .insert(fixture.account, id().into(), &draft(None), &[], now)
        .await
        .unwrap();
    assert!(created.opted_out_at.is_some());
    fixture.erase(fixture.account, created.id).await;
    let hashes = fixture
        .text("SELECT string_agg(encode(hash, 'escape'), ' ' ORDER BY hash) FROM erased_opt_outs")
        .await;
    assert_eq!(hashes.as_deref(), Some("0:5511961234567 1:5511961234567"));
    // A contact of the person that was deleted before, without an opt-out of its own, changes nothing.
    let deleted = id();
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name, phone, deleted_at)
             VALUES ('{}', '{deleted}', 'Eva', '{PHONE}', now())",
            fixture.account
        ))
        .await;
    fixture.erase(fixture.account, deleted.into()).await;
    let count = "SELECT count(*)::text FROM erased_opt_outs";
    assert_eq!(fixture.text(count).await.as_deref(), Some("2"));
    moved_number_is_opted_out(&fixture, &contacts, draft(None)).await;
    let opted_in = contacts
        .insert(fixture.account, id().into(), &draft(Some(false)), &[], now)
        .await
        .unwrap();
    assert_eq!(opted_in.opted_out_at, None);
    fixture.erase(fixture.account, opted_in.id).await;
    assert_eq!(fixture.text(count).await.as_deref(), Some("0"));
}

#[tokio::test]
async fn callbacks_of_other_accounts_and_people_stay() {
    let fixture = DbFixture::new().await;
    let (mine, other) = (fixture.account, fixture.another_account().await);
    let contact = fixture.person(mine).await;
    let body = |number: &str, from: &[&str]| {
        let messages: Vec<_> = from.iter().map(|from| serde_json::json!({ "from": from })).collect();
        let value = serde_json::json!({ "metadata": { "phone_number_id": number }, "messages": messages });
        hex::encode(serde_json::json!({ "entry": [{ "changes": [{ "value": value }] }] }).to_string())
    };
    let (eva, bia) = ("5511961234567", "5511900000000");
    for (account, number) in [(mine, "11"), (other, "22"), (mine, "33"), (other, "33")] {
        fixture
            .sql(&format!(
                "INSERT INTO whatsapp_profiles (account_id, id, name, phone_number_id, waba_id, access_token)
                 VALUES ('{account}', gen_random_uuid(), 'n', '{number}', '1', '\\x00')"
            ))
            .await;
    }
    for body in [
        body("11", &[eva]),
        body("11", &[eva, bia]),
        body("22", &[eva]),
        body("33", &[eva]),
    ] {
        fixture
            .sql(&format!(
                "INSERT INTO whatsapp_callbacks (id, body, due_at) VALUES (gen_random_uuid(), '\\x{body}', 'infinity')"
            ))
            .await;
    }
    fixture.erase(mine, contact).await;
    fixture.finish().await;
    let left = "SELECT string_agg(b ->> 'number' || (b ->> 'from'), ' ' ORDER BY b ->> 'number')
      FROM (SELECT jsonb_build_object('number', v #> '{metadata,phone_number_id}',
          'from', jsonb_path_query_array(v, '$.messages[*].from')) AS b
        FROM (SELECT convert_from(body, 'UTF8')::jsonb #> '{entry,0,changes,0,value}' AS v FROM whatsapp_callbacks) c) c";
    let expected = format!("11[\"{bia}\"] 22[\"{eva}\"] 33[\"{eva}\"]");
    assert_eq!(fixture.text(left).await, Some(expected));
}

/// A contact that had another number gets that of the person.
async fn moved_number_is_opted_out(
    fixture: &DbFixture,
    contacts: &recado_postgres::PgContacts,
    draft: recado_domain::contacts::ContactDraft,
) {
    use recado_domain::contacts::{ContactChange, ContactDraft, ContactStore as _, Phone};

    let now = OffsetDateTime::now_utc();
    let unknown = ContactDraft {
        phone: Phone::parse("+5511900000009"),
        ..draft
    };
    let unknown = contacts
        .insert(fixture.account, id().into(), &unknown, &[], now)
        .await
        .unwrap();
    let moved = ContactChange {
        phone: Some(Phone::parse(PHONE)),
        ..ContactChange::default()
    };
    let moved = contacts.update(fixture.account, unknown.id, None, &moved, now).await;
    let UpdateOutcome::Done(moved) = moved.unwrap() else {
        panic!("the contact was not updated")
    };
    assert!(moved.contact.opted_out_at.is_some());
    fixture
        .sql(&format!("DELETE FROM contacts WHERE id = '{}'", unknown.id))
        .await;
}
