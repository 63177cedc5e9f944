//! Whoever loses to another transaction tries again, and nobody outside hears of it: a deadlock and a serialization
//! failure on the first attempt of every kind of write.

use recado_domain::accounts::{AccountStatus, AccountStore};
use recado_domain::administration::AdministrationStore;
use recado_domain::billing::{ReserveOutcome, SubscriptionStore};
use recado_domain::contacts::{Tag, TagStore};
use recado_domain::idempotency::{IdempotencyStore, KeyState, LEASE};
use recado_domain::media::{MediaPath, MediaType};
use recado_domain::shared::StoreError;
use recado_domain::whatsapp::{CallbackStore, FileIdStore};
use recado_postgres::{PgAccounts, PgAdministration, PgCallbacks, PgFileIds, PgIdempotency, PgSubscriptions, PgTags};
use time::Duration;

use crate::support::{DbFixture, NOW, event, id, session};
use crate::{billing, idempotency};

/// Lets the next two writes of a table lose, one to a deadlock and one to a serialization failure. A sequence counts
/// them, because nothing takes its steps back. The deadlock speaks German, as with `lc_messages = 'de_DE.UTF-8'`: errors
/// are recognised by their SQLSTATE.
async fn contest(fixture: &DbFixture, table: &str) {
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

/// The write was tried a third time, so that it met both.
async fn assert_lost(fixture: &DbFixture, table: &str) {
    let tries = fixture.number(&format!("SELECT last_value FROM lost_{table}")).await;
    assert!(tries >= 3, "{table}: {tries} tries");
}

/// A write of a table that loses twice and is done all the same.
macro_rules! contested {
    ($fixture:expr, $table:expr, $write:expr) => {{
        contest(&$fixture, $table).await;
        let written = $write.await;
        assert_lost(&$fixture, $table).await;
        written.unwrap_or_else(|error| panic!("{}: {error:?}", $table))
    }};
}

#[tokio::test]
async fn the_platforms_writes_are_tried_again() {
    let fixture = DbFixture::new().await;
    let (platform, account) = (PgAdministration::new(fixture.owner.clone()), fixture.account);
    let events = [event(account.0)];
    let suspended = platform.set_status(account, AccountStatus::Suspended, &events);
    assert!(contested!(fixture, "accounts", suspended));
    let planned = platform.set_plan(account, "growth", &events);
    assert!(contested!(fixture, "outbox_events", planned));
    let stored = platform.account(account).await.unwrap().unwrap();
    assert_eq!(
        (stored.status, stored.plan.as_str()),
        (AccountStatus::Suspended, "growth")
    );
    assert_eq!(fixture.relay().await, 2, "each event once");
}

#[tokio::test]
async fn an_attempt_takes_its_place_and_gives_it_back_all_the_same() {
    let fixture = DbFixture::new().await;
    let store = PgSubscriptions::new(fixture.tenants.clone());
    let attempt = billing::attempt(&fixture, fixture.account);
    assert_eq!(
        contested!(fixture, "subscriptions", store.reserve(&attempt)),
        ReserveOutcome::Done
    );
    assert!(contested!(fixture, "subscriptions", store.remove(&attempt)));
    assert_eq!(store.find(fixture.account, attempt.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_tenants_single_statements_are_tried_again() {
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
    let kept = files.keep(account, "n1", &path, "f1", Duration::hours(1));
    contested!(fixture, "whatsapp_files", kept);
    assert_eq!(files.find(account, "n1", &path).await.unwrap().as_deref(), Some("f1"));
    let tag = Tag {
        id: id().into(),
        name: "VIP".into(),
        color: None,
    };
    contested!(fixture, "tags", tags.insert(account, &tag));
    assert!(contested!(fixture, "tags", tags.delete(account, tag.id)));
}

#[tokio::test]
async fn the_owners_single_statements_are_tried_again() {
    let fixture = DbFixture::new().await;
    let accounts = PgAccounts::new(fixture.owner.clone());
    contested!(fixture, "users", accounts.record_user(&session(fixture.user)));
    let switched = accounts.switch(fixture.user, fixture.account, NOW);
    assert!(contested!(fixture, "account_users", switched).is_some());

    let keys = PgIdempotency::new(fixture.owner.clone());
    let claim = idempotency::claim(&fixture, "k");
    assert_eq!(
        contested!(fixture, "idempotency_keys", keys.claim(&claim, LEASE)),
        KeyState::Free
    );
    let kept = idempotency::kept(1);
    contested!(fixture, "idempotency_keys", keys.finish(&claim, &kept));
    assert_eq!(keys.claim(&claim, LEASE).await.unwrap(), KeyState::Answered(kept));

    let callbacks = PgCallbacks::new(fixture.owner.clone());
    let stored = id().into();
    contested!(
        fixture,
        "whatsapp_callbacks",
        callbacks.store(stored, b"{}", Duration::ZERO)
    );
    let claimed = contested!(fixture, "whatsapp_callbacks", callbacks.claim(Duration::ZERO));
    assert_eq!(claimed.unwrap().id, stored);
    contested!(fixture, "whatsapp_callbacks", callbacks.forget(stored));
    assert_eq!(callbacks.claim(Duration::ZERO).await.unwrap(), None);
}

#[tokio::test]
async fn who_loses_all_the_time_is_told_so() {
    let fixture = DbFixture::new().await;
    contest(&fixture, "tags").await;
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
