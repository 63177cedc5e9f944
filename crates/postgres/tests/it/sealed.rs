//! Sealed values: the table of their columns, their counts by key, and their rotation beside other writers.

use std::collections::BTreeSet;

use recado_domain::shared::{Resealer, SealContext, SealPurpose, Sealed, UnsealError, UpdateOutcome};
use recado_domain::webhooks::WebhookStore as _;
use recado_domain::whatsapp::ProfileStore as _;
use recado_postgres::{PgProfiles, PgSealedValues, PgWebhooks, ResealedBatch, SEALED_COLUMNS, SealedColumn};
use uuid::Uuid;

use crate::support::{DbFixture, id};

/// Binary columns that hold no sealed value, and what they hold.
const UNSEALED: [(&str, &str); 11] = [
    // SHA-256 of long random secrets.
    ("api_key_hashes.key_hash", "hash"),
    ("invite_tokens.token_hash", "hash"),
    // HMAC of a request, whose key is in the sealed response.
    ("idempotency_keys.request_hash", "hash"),
    // A hash of the request that rotated a key.
    ("api_keys.rotation_request", "hash"),
    // Keyed hashes of mail addresses.
    ("mail_recipients.address_hash", "hash"),
    // A hash of the number and of WhatsApp's message id.
    ("whatsapp_held_messages.key", "hash"),
    // Hashes of files in the media store, and of the id and the request of a removed message.
    ("campaign_archives.sha256", "hash"),
    ("contact_exports.sha256", "hash"),
    ("erased_opt_outs.hash", "hash"),
    ("direct_message_references.request_hash", "hash"),
    // WhatsApp's callbacks as they were received.
    ("whatsapp_callbacks.body", "callback"),
];

/// Values of the old key are `OLD|` and their place; those of the current key begin with `NEW|`.
struct FakeResealer;

fn old_value(context: &SealContext) -> Vec<u8> {
    format!("OLD|{} {} {}", context.purpose, context.account, context.row).into_bytes()
}

impl Resealer for FakeResealer {
    fn current_marker(&self) -> Vec<u8> {
        b"NEW|".to_vec()
    }

    fn reseal(&self, sealed: &Sealed, context: &SealContext) -> Result<Sealed, UnsealError> {
        match sealed.0 == old_value(context) {
            true => Ok(Sealed([b"NEW|", sealed.0.as_slice()].concat())),
            false => Err(UnsealError::WrongPlace),
        }
    }
}

fn bytea(value: &[u8]) -> String {
    let hex = hex::encode(value);
    format!("'\\x{hex}'")
}

/// A row in every table with sealed values, sealed under the old key. Returns the number and the endpoint.
async fn insert_rows(fixture: &DbFixture) -> (Uuid, Uuid) {
    let (account, profile, endpoint, mail) = (fixture.account, id(), id(), id());
    let old = |purpose, row: String| bytea(&old_value(&SealContext::new(purpose, account, row)));
    let secret = old(SealPurpose::WebhookSecret, endpoint.to_string());
    let token = old(SealPurpose::WhatsappToken, profile.to_string());
    let response = old(SealPurpose::StoredResponse, "k'ey".into());
    let content = old(SealPurpose::QueuedMail, mail.to_string());
    let held = bytea(&old_value(&SealContext::held_message(profile.as_bytes())));
    let held_key = bytea(profile.as_bytes());
    fixture
        .sql(&format!(
            "INSERT INTO whatsapp_profiles (account_id, id, name, phone_number_id, waba_id, access_token)
               VALUES ('{account}', '{profile}', 'p', '{profile}', '2', {token});
             INSERT INTO webhook_endpoints (account_id, id, name, direction, url, events, secret, secret_hint,
                 previous_secret, previous_secret_until)
               VALUES ('{account}', '{endpoint}', 'e', 'outbound', 'https://e.example', '{{*}}', {secret}, 'aaaa',
                 {secret}, now());
             INSERT INTO idempotency_keys (scope, key, holder, leased_until, request_hash, response)
               VALUES ('{account}', 'k''ey', '{profile}', now(), '\\x00', {response}),
                      ('{account}', 'running', '{profile}', now(), NULL, NULL);
             INSERT INTO outgoing_mail (id, account_id, content) VALUES ('{mail}', '{account}', {content});
             INSERT INTO whatsapp_held_messages (phone_number_id, key, event) VALUES ('1', {held_key}, {held})"
        ))
        .await;
    (profile, endpoint)
}

async fn reseal_all(values: &PgSealedValues) -> ResealedBatch {
    let mut total = ResealedBatch::default();
    for column in SEALED_COLUMNS {
        let batch = reseal(values, column).await;
        total.resealed += batch.resealed;
        total.unreadable.extend(batch.unreadable);
    }
    total
}

async fn reseal(values: &PgSealedValues, column: &SealedColumn) -> ResealedBatch {
    values.reseal(column, None, 100, &FakeResealer).await.unwrap()
}

fn column(table: &str) -> &'static SealedColumn {
    SEALED_COLUMNS.iter().find(|column| column.table == table).unwrap()
}

#[tokio::test]
async fn every_binary_column_is_sealed_or_listed_as_unsealed() {
    let fixture = DbFixture::new().await;
    let query = "SELECT table_name || '.' || column_name FROM information_schema.columns
         WHERE table_schema = 'public' AND data_type = 'bytea'
           AND table_name NOT IN (SELECT relname FROM pg_class WHERE relispartition)";
    let rows = fixture.client.query(query, &[]).await.unwrap();
    let stored: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
    let sealed = SEALED_COLUMNS
        .iter()
        .map(|column| format!("{}.{}", column.table, column.column));
    let unsealed = UNSEALED.iter().map(|(name, _)| (*name).to_owned());
    let known: BTreeSet<String> = sealed.chain(unsealed).collect();
    assert_eq!(
        stored, known,
        "a binary column is missing in SEALED_COLUMNS or UNSEALED"
    );
}

#[tokio::test]
async fn rotation_reseals_every_column_and_counts_it() {
    let fixture = DbFixture::new().await;
    insert_rows(&fixture).await;
    let values = PgSealedValues::new(fixture.owner.clone());
    let expected = [
        (SealPurpose::WhatsappToken, 1),
        (SealPurpose::WebhookSecret, 2),
        (SealPurpose::StoredResponse, 1),
        (SealPurpose::QueuedMail, 1),
        (SealPurpose::HeldMessage, 1),
    ];
    assert_eq!(values.under_earlier_keys(b"NEW|").await.unwrap(), expected);
    let rotated = reseal_all(&values).await;
    assert_eq!((rotated.resealed, rotated.unreadable.len()), (6, 0));
    assert_eq!(values.under_earlier_keys(b"NEW|").await.unwrap(), []);
    let counts = values.counts(b"NEW|").await.unwrap();
    let current: Vec<_> = counts.iter().map(|count| (count.purpose, count.current)).collect();
    assert_eq!(current, expected);
    // Nothing is left for a second rotation.
    assert_eq!(reseal_all(&values).await.resealed, 0);
    // A value of each column still has its place.
    let token = fixture.text("SELECT encode(access_token, 'escape') FROM whatsapp_profiles");
    assert!(token.await.unwrap().starts_with("NEW|OLD|whatsapp_token "));
}

#[tokio::test]
async fn rotation_continues_behind_values_it_cannot_open() {
    let fixture = DbFixture::new().await;
    for _ in 0..5 {
        insert_rows_of_keys(&fixture).await;
    }
    fixture
        .sql("UPDATE idempotency_keys SET response = '\\x00' WHERE key IN (SELECT key FROM idempotency_keys ORDER BY key LIMIT 3)")
        .await;
    let values = PgSealedValues::new(fixture.owner.clone());
    let keys = column("idempotency_keys");
    let (mut position, mut resealed, mut unreadable, mut batches) = (None, 0, 0, 0);
    loop {
        let batch = values.reseal(keys, position, 2, &FakeResealer).await.unwrap();
        resealed += batch.resealed;
        unreadable += batch.unreadable.len();
        batches += 1;
        position = batch.next;
        if position.is_none() {
            break;
        }
    }
    assert_eq!((resealed, unreadable), (2, 3));
    assert!(batches >= 3, "{batches}");
    assert_eq!(
        values.under_earlier_keys(b"NEW|").await.unwrap(),
        [(SealPurpose::StoredResponse, 3)]
    );
}

async fn insert_rows_of_keys(fixture: &DbFixture) {
    let key = format!("k{}", id());
    let response = bytea(&old_value(&SealContext::new(
        SealPurpose::StoredResponse,
        fixture.account,
        &key,
    )));
    fixture
        .sql(&format!(
            "INSERT INTO idempotency_keys (scope, key, holder, leased_until, request_hash, response)
             VALUES ('{}', '{key}', '{}', now(), '\\x00', {response})",
            fixture.account,
            id()
        ))
        .await;
}

/// A writer that read the old value cannot write it back after the rotation.
#[tokio::test]
async fn rotation_raises_the_version_of_profiles_and_endpoints() {
    let fixture = DbFixture::new().await;
    let (profile, endpoint) = insert_rows(&fixture).await;
    let profiles = PgProfiles::new(fixture.tenants.clone());
    let webhooks = PgWebhooks::new(fixture.tenants.clone());
    let account = fixture.account;
    let read = profiles.find(account, profile.into()).await.unwrap().unwrap();
    let hook = webhooks.find(account, endpoint.into()).await.unwrap().unwrap();
    reseal_all(&PgSealedValues::new(fixture.owner.clone())).await;
    let stale = profiles.update(account, &read, &[]).await.unwrap();
    assert!(matches!(stale, UpdateOutcome::Stale), "{stale:?}");
    let stale = webhooks.update(account, &hook, &[]).await.unwrap();
    assert!(matches!(stale, UpdateOutcome::Stale), "{stale:?}");
    let fresh = profiles.find(account, profile.into()).await.unwrap().unwrap();
    assert!(fresh.token.0.starts_with(b"NEW|") && fresh.profile.updated_at == read.profile.updated_at);
}

/// A rotation skips rows that a writer has locked, instead of waiting for them.
#[tokio::test]
async fn rotation_skips_a_locked_row_and_finds_it_later() {
    let fixture = DbFixture::new().await;
    insert_rows(&fixture).await;
    let values = PgSealedValues::new(fixture.owner.clone());
    fixture.sql("BEGIN; UPDATE whatsapp_profiles SET name = 'q'").await;
    let rotated = reseal_all(&values).await;
    assert_eq!((rotated.resealed, rotated.unreadable.len()), (5, 0));
    fixture.sql("COMMIT").await;
    assert_eq!(reseal(&values, column("whatsapp_profiles")).await.resealed, 1);
    assert_eq!(values.under_earlier_keys(b"NEW|").await.unwrap(), []);
}

/// A value that was copied to another account's row has the wrong place, and stays as it is.
#[tokio::test]
async fn rotation_reports_a_value_in_the_wrong_place() {
    let fixture = DbFixture::new().await;
    let (profile, _) = insert_rows(&fixture).await;
    let other = fixture.another_account().await;
    fixture
        .sql(&format!(
            "INSERT INTO whatsapp_profiles (account_id, id, name, phone_number_id, waba_id, access_token)
             SELECT '{other}', id, name, phone_number_id, waba_id, access_token FROM whatsapp_profiles"
        ))
        .await;
    let values = PgSealedValues::new(fixture.owner.clone());
    let batch = reseal(&values, column("whatsapp_profiles")).await;
    let copied = SealContext::whatsapp_token(other, profile.into());
    assert_eq!(batch.unreadable, [(copied, UnsealError::WrongPlace)]);
    assert_eq!(batch.resealed, 1);
}
