//! Stores retry a transaction after a deadlock or serialization failure, and the caller sees no error. Every kind of
//! write meets both.

use recado_domain::accounts::{AccountStatus, AccountStore};
use recado_domain::administration::AdministrationStore;
use recado_domain::billing::{ReserveOutcome, SubscriptionStore};
use recado_domain::callbacks::CallbackStore;
use recado_domain::contacts::{Tag, TagStore};
use recado_domain::idempotency::{IdempotencyStore, KeyState, LEASE};
use recado_domain::media::{MediaPath, MediaType};
use recado_domain::shared::StoreError;
use recado_domain::whatsapp::FileIdStore;
use recado_postgres::{PgAccounts, PgAdministration, PgCallbacks, PgFileIds, PgIdempotency, PgSubscriptions, PgTags};
use time::Duration;

use crate::support::{DbFixture, NOW, event, id, platform_entry, session};
use crate::{billing, idempotency};

/// Makes the next two writes of a table fail, one with a deadlock and one with a serialization failure. A sequence
/// counts them, because a rollback does not reset it. The deadlock's message is German, as with
/// `lc_messages = 'de_DE.UTF-8'`: the stores recognise errors by their SQLSTATE.
async fn inject_conflicts(fixture: &DbFixture, table: &str) {
    fixture
        .sql(&format!(
            "DROP SEQUENCE IF EXISTS lost_{table} CASCADE;
             CREATE SEQUENCE lost_{table};
             CREATE OR REPLACE FUNCTION lose_{table}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
             BEGIN
               CASE nextval('lost_{table}')
                 WHEN 1 THEN RAISE EXCEPTION 'Verklemmung entdeckt' USING ERRCODE = '40P01';
                 WHEN 2 THEN RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001';
                 ELSE RETURN NULL;
               END CASE;
             END $$;
             CREATE OR REPLACE TRIGGER lose BEFORE INSERT OR UPDATE OR DELETE ON {table}
               FOR EACH STATEMENT EXECUTE FUNCTION lose_{table}();"
        ))
        .await;
}

/// Asserts at least three attempts of the write, so that it met both errors.
async fn assert_conflicts_met(fixture: &DbFixture, table: &str) {
    let attempts = fixture.number(&format!("SELECT last_value FROM lost_{table}")).await;
    assert!(attempts >= 3, "{table}: {attempts} attempts");
}

/// Runs a write that fails twice and then succeeds.
macro_rules! with_conflicts {
    ($fixture:expr, $table:expr, $write:expr) => {{
        inject_conflicts(&$fixture, $table).await;
        let written = $write.await;
        assert_conflicts_met(&$fixture, $table).await;
        written.unwrap_or_else(|error| panic!("{}: {error:?}", $table))
    }};
}

#[tokio::test]
async fn administration_writes_are_retried_after_conflicts() {
    let fixture = DbFixture::new().await;
    let (administration, account) = (PgAdministration::new(fixture.owner.clone()), fixture.account);
    let events = [event(account.0)];
    let suspended = administration.set_status(account, AccountStatus::Suspended, &events, platform_entry(account));
    assert!(with_conflicts!(fixture, "accounts", suspended).is_done());
    let planned = administration.set_plan(account, "growth", &events, platform_entry(account));
    assert!(with_conflicts!(fixture, "outbox_events", planned).is_done());
    let stored = administration.account(account).await.unwrap().unwrap();
    assert_eq!(
        (stored.status, stored.plan.as_str()),
        (AccountStatus::Suspended, "growth")
    );
    assert_eq!(fixture.relay().await, 2, "each event once");
}

#[tokio::test]
async fn subscription_attempt_is_retried_after_conflicts() {
    let fixture = DbFixture::new().await;
    let store = PgSubscriptions::new(fixture.tenants.clone(), fixture.owner.clone());
    let attempt = billing::attempt(&fixture, fixture.account);
    assert_eq!(
        with_conflicts!(fixture, "subscriptions", store.reserve(&attempt)),
        ReserveOutcome::Done
    );
    assert!(with_conflicts!(fixture, "subscriptions", store.remove(&attempt)).is_done());
    assert_eq!(store.find(fixture.account, attempt.id).await.unwrap(), None);
}

#[tokio::test]
async fn tenant_statements_are_retried_after_conflicts() {
    let fixture = DbFixture::new().await;
    let (files, tags, account) = (
        PgFileIds::new(fixture.tenants.clone()),
        PgTags::new(fixture.tenants.clone()),
        fixture.account,
    );
    let path = MediaPath {
        account_id: account,
        id: id(),
        kind: MediaType::Png,
    };
    let path = path.to_string();
    let stored = files.store(account, "n1", &path, "f1", Duration::hours(1));
    with_conflicts!(fixture, "whatsapp_files", stored);
    assert_eq!(files.find(account, "n1", &path).await.unwrap().as_deref(), Some("f1"));
    let tag = Tag {
        id: id().into(),
        name: "VIP".into(),
        color: None,
    };
    with_conflicts!(fixture, "tags", tags.insert(account, &tag));
    assert!(with_conflicts!(fixture, "tags", tags.delete(account, tag.id)).is_done());
}

#[tokio::test]
async fn owner_statements_are_retried_after_conflicts() {
    let fixture = DbFixture::new().await;
    let accounts = PgAccounts::new(fixture.owner.clone());
    with_conflicts!(fixture, "users", accounts.record_user(&session(fixture.user)));
    let switched = accounts.switch(fixture.user, fixture.account, NOW);
    assert!(with_conflicts!(fixture, "account_users", switched).is_some());

    let keys = PgIdempotency::new(fixture.owner.clone());
    let claim = idempotency::claim(&fixture, "k");
    assert_eq!(
        with_conflicts!(fixture, "idempotency_keys", keys.claim(&claim, LEASE)),
        KeyState::Free
    );
    let response = idempotency::stored_response(1);
    with_conflicts!(fixture, "idempotency_keys", keys.finish(&claim, &response));
    assert_eq!(keys.claim(&claim, LEASE).await.unwrap(), KeyState::Answered(response));

    let callbacks = PgCallbacks::new(fixture.owner.clone());
    let stored = id().into();
    with_conflicts!(
        fixture,
        "whatsapp_callbacks",
        callbacks.store(stored, b"{}", Duration::ZERO)
    );
    let claimed = with_conflicts!(fixture, "whatsapp_callbacks", callbacks.claim(Duration::ZERO));
    assert_eq!(claimed.unwrap().id, stored);
    with_conflicts!(fixture, "whatsapp_callbacks", callbacks.delete(stored));
    assert_eq!(callbacks.claim(Duration::ZERO).await.unwrap(), None);
}

#[tokio::test]
async fn endless_conflicts_return_unavailable() {
    let fixture = DbFixture::new().await;
    inject_conflicts(&fixture, "tags").await;
    fixture.sql("ALTER SEQUENCE lost_tags MAXVALUE 2 CYCLE").await;
    let tag = Tag {
        id: id().into(),
        name: "VIP".into(),
        color: None,
    };
    let lost = PgTags::new(fixture.tenants.clone()).insert(fixture.account, &tag).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    assert_eq!(fixture.number("SELECT count(*) FROM tags").await, 0);
}
