//! Idempotency keys: one of many callers claims a key, and its stored response is final.

use futures_util::future::join_all;
use recado_domain::idempotency::{
    IdempotencyKey, IdempotencyStore, KeyClaim, KeyState, LEASE, RequestHash, StoredResponse,
};
use recado_domain::shared::Sealed;
use recado_postgres::PgIdempotency;

use crate::support::{DbFixture, id};

pub(crate) fn claim(fixture: &DbFixture, key: &str) -> KeyClaim {
    KeyClaim {
        scope: fixture.account.into(),
        key: IdempotencyKey::parse(key).unwrap(),
        holder: id(),
    }
}

pub(crate) fn stored_response(byte: u8) -> StoredResponse {
    StoredResponse {
        request: RequestHash(vec![byte]),
        response: Sealed(vec![byte, byte]),
    }
}

#[tokio::test]
async fn idempotency_key_is_claimed_by_one_of_many() {
    let fixture = DbFixture::new().await;
    let keys = PgIdempotency::new(fixture.owner.clone());
    let states = join_all((0..20).map(|_| {
        let (keys, claim) = (keys.clone(), claim(&fixture, "k"));
        async move { keys.claim(&claim, LEASE).await.unwrap() }
    }));
    let states = states.await;
    assert_eq!(states.iter().filter(|state| **state == KeyState::Free).count(), 1);
    assert_eq!(states.iter().filter(|state| **state == KeyState::Running).count(), 19);
}

#[tokio::test]
async fn idempotency_response_is_stored_per_scope_for_a_day() {
    let fixture = DbFixture::new().await;
    let keys = PgIdempotency::new(fixture.owner.clone());
    let first = claim(&fixture, "k");
    assert_eq!(keys.claim(&first, LEASE).await.unwrap(), KeyState::Free);
    keys.finish(&first, &stored_response(1)).await.unwrap();
    let second = claim(&fixture, "k");
    assert_eq!(
        keys.claim(&second, LEASE).await.unwrap(),
        KeyState::Answered(stored_response(1))
    );
    let other_scope = KeyClaim {
        scope: fixture.another_account().await.into(),
        ..claim(&fixture, "k")
    };
    assert_eq!(keys.claim(&other_scope, LEASE).await.unwrap(), KeyState::Free);

    // A stored response is final, and its key cannot be released.
    keys.finish(&first, &stored_response(2)).await.unwrap();
    keys.release(&first).await.unwrap();
    assert_eq!(
        keys.claim(&second, LEASE).await.unwrap(),
        KeyState::Answered(stored_response(1))
    );
    assert_eq!(keys.sweep(10).await.unwrap(), 0);

    fixture
        .sql("UPDATE idempotency_keys SET created_at = now() - interval '24 hours'")
        .await;
    assert_eq!(keys.claim(&second, LEASE).await.unwrap(), KeyState::Free);
}

#[tokio::test]
async fn idempotency_claim_holds_while_it_is_renewed() {
    let fixture = DbFixture::new().await;
    let keys = PgIdempotency::new(fixture.owner.clone());
    let (first, second) = (claim(&fixture, "k"), claim(&fixture, "k"));
    assert_eq!(keys.claim(&first, LEASE).await.unwrap(), KeyState::Free);
    let expire = "UPDATE idempotency_keys SET leased_until = now() - interval '1 second'";
    fixture.sql(expire).await;
    keys.renew(&first, LEASE).await.unwrap();
    assert_eq!(keys.claim(&second, LEASE).await.unwrap(), KeyState::Running);
    fixture.sql(expire).await;
    assert_eq!(keys.claim(&second, LEASE).await.unwrap(), KeyState::Free);

    // A holder that lost its lease changes nothing.
    keys.renew(&first, LEASE).await.unwrap();
    keys.finish(&first, &stored_response(1)).await.unwrap();
    keys.release(&first).await.unwrap();
    assert_eq!(
        keys.claim(&claim(&fixture, "k"), LEASE).await.unwrap(),
        KeyState::Running
    );
    keys.release(&second).await.unwrap();
    assert_eq!(keys.claim(&first, LEASE).await.unwrap(), KeyState::Free);
}

#[tokio::test]
async fn idempotency_sweep_deletes_old_finished_keys() {
    let fixture = DbFixture::new().await;
    let keys = PgIdempotency::new(fixture.owner.clone());
    for name in ["answered", "dead", "running", "young"] {
        let claim = claim(&fixture, name);
        keys.claim(&claim, LEASE).await.unwrap();
        if matches!(name, "answered" | "young") {
            keys.finish(&claim, &stored_response(1)).await.unwrap();
        }
    }
    fixture
        .sql(
            "UPDATE idempotency_keys SET created_at = now() - interval '25 hours' WHERE key <> 'young';
             UPDATE idempotency_keys SET leased_until = now() - interval '1 hour' WHERE key = 'dead'",
        )
        .await;
    assert_eq!(keys.sweep(1).await.unwrap(), 1);
    assert_eq!(keys.sweep(10).await.unwrap(), 1);
    let remaining = fixture
        .text("SELECT string_agg(key, ' ' ORDER BY key) FROM idempotency_keys")
        .await;
    assert_eq!(remaining.unwrap(), "running young");
}

async fn set_claimed(fixture: &DbFixture, count: i64) {
    fixture
        .sql(&format!(
            "INSERT INTO idempotency_key_counts (scope, day, slot, keys)
             VALUES ('{}', (now() AT TIME ZONE 'UTC')::date, 99, {count})",
            fixture.account
        ))
        .await;
}

const COUNT: &str = "SELECT coalesce(sum(keys), 0)::bigint FROM idempotency_key_counts";

#[tokio::test]
async fn idempotency_keys_of_a_day_are_limited() {
    let fixture = DbFixture::new().await;
    let keys = PgIdempotency::new(fixture.owner.clone());
    set_claimed(&fixture, 49_998).await;
    let first = claim(&fixture, "first");
    assert_eq!(keys.claim(&first, LEASE).await.unwrap(), KeyState::Free);
    keys.finish(&first, &stored_response(1)).await.unwrap();
    let second = claim(&fixture, "second");
    assert_eq!(keys.claim(&second, LEASE).await.unwrap(), KeyState::Free);
    assert_eq!(fixture.number(COUNT).await, 50_000);
    let third = claim(&fixture, "third");
    assert_eq!(keys.claim(&third, LEASE).await.unwrap(), KeyState::Exhausted);
    // Keys of before are repeated, and other scopes claim theirs.
    assert_eq!(
        keys.claim(&claim(&fixture, "first"), LEASE).await.unwrap(),
        KeyState::Answered(stored_response(1))
    );
    assert_eq!(
        keys.claim(&claim(&fixture, "second"), LEASE).await.unwrap(),
        KeyState::Running
    );
    let other_scope = KeyClaim {
        scope: fixture.another_account().await.into(),
        ..claim(&fixture, "third")
    };
    assert_eq!(keys.claim(&other_scope, LEASE).await.unwrap(), KeyState::Free);
    // A released key does not count, and the count begins anew every day.
    keys.release(&second).await.unwrap();
    assert_eq!(keys.claim(&third, LEASE).await.unwrap(), KeyState::Free);
    let fourth = claim(&fixture, "fourth");
    assert_eq!(keys.claim(&fourth, LEASE).await.unwrap(), KeyState::Exhausted);
    fixture.sql("UPDATE idempotency_key_counts SET day = day - 1").await;
    assert_eq!(keys.claim(&fourth, LEASE).await.unwrap(), KeyState::Free);
    keys.sweep(100).await.unwrap();
    assert_eq!(fixture.number(COUNT).await, 1);
}
