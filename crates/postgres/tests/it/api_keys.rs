//! API keys: lookup by hash, insertion, limit and deletion.

use std::time::Instant;

use futures_util::future::join_all;
use recado_domain::accounts::AccountStatus;
use recado_domain::api_keys::{
    ApiKey, ApiKeyDirectory, ApiKeyStore, KeyRecord, KeyUse, Rotation, StoredApiKey, parse_network,
};
use recado_domain::shared::{AccountId, ApiKeyId, InsertOutcome, KeyScopes, UpdateOutcome};
use recado_postgres::PgApiKeys;
use recado_testkit::DEADLINE;
use time::{Duration, OffsetDateTime};

use crate::support::{DbFixture, NOW, event, id};

fn key_use(at: OffsetDateTime, address: &str) -> KeyUse {
    KeyUse {
        at,
        ip_address: Some(address.into()),
    }
}

fn rotation(hash: u8) -> Rotation {
    Rotation {
        hash: vec![hash; 32],
        is_repeated: false,
    }
}

pub(crate) fn record(fixture: &DbFixture, account_id: AccountId, name: &str, hash: &[u8]) -> KeyRecord {
    KeyRecord {
        account_id,
        key: ApiKey {
            id: ApiKeyId(id()),
            name: name.into(),
            key_prefix: "svc_live_sk_".into(),
            key_hint: "abcd".into(),
            scopes: KeyScopes::default(),
            expires_at: None,
            allowed_cidrs: vec![],
            created_by: fixture.user,
            last_used_at: None,
            last_used_ip: None,
            rotated_at: None,
            previous_valid_until: None,
            created_at: NOW,
        },
        hash: hash.to_vec(),
    }
}

#[tokio::test]
async fn api_key_is_found_by_hash_and_its_use_is_stored() {
    let fixture = DbFixture::new().await;
    let (key, account, user) = (ApiKeyId(id()), fixture.account, fixture.user);
    fixture
        .sql(&format!(
            "INSERT INTO api_keys (account_id, id, name, key_prefix, key_hint, created_by)
               VALUES ('{account}', '{key}', 'k', 'svc_live_sk_', 'abcd', '{user}');
             INSERT INTO api_key_hashes (key_hash, account_id, key_id, created_by)
               VALUES ('\\x0102', '{account}', '{key}', '{user}')"
        ))
        .await;
    let keys = PgApiKeys::new(fixture.owner.clone());
    let grant = keys.find(&[1, 2]).await.unwrap().unwrap();
    assert_eq!((grant.id, grant.account_id, grant.created_by), (key, account, user));
    assert_eq!((grant.status, grant.last_used_at), (AccountStatus::Active, None));
    assert_eq!(keys.find(&[1, 3]).await.unwrap(), None);

    keys.touch(account, key, &key_use(NOW, "203.0.113.7")).await.unwrap();
    let earlier = key_use(NOW - Duration::SECOND, "203.0.113.8");
    keys.touch(account, key, &earlier).await.unwrap();
    let listed = keys.list(account).await.unwrap().remove(0);
    assert_eq!(listed.last_used_ip.as_deref(), Some("203.0.113.7"));
    assert_eq!(keys.find(&[1, 2]).await.unwrap().unwrap().last_used_at, Some(NOW));
    let other_account = fixture.another_account().await;
    let later = key_use(NOW + Duration::SECOND, "203.0.113.9");
    keys.touch(other_account, key, &later).await.unwrap();
    assert_eq!(keys.find(&[1, 2]).await.unwrap().unwrap().last_used_at, Some(NOW));

    fixture
        .sql(&format!(
            "UPDATE accounts SET status = 'suspended' WHERE id = '{account}'"
        ))
        .await;
    assert_eq!(
        keys.find(&[1, 2]).await.unwrap().unwrap().status,
        AccountStatus::Suspended
    );
    // A deleted key is not found, even if its hash remains.
    fixture.sql("DELETE FROM api_keys").await;
    assert_eq!(keys.find(&[1, 2]).await.unwrap(), None);
}

#[tokio::test]
async fn api_keys_are_found_by_many_hashes() {
    let fixture = DbFixture::new().await;
    let keys = PgApiKeys::new(fixture.owner.clone());
    let records = [1_u8, 2].map(|n| record(&fixture, fixture.account, "k", &[n; 32]));
    for record in &records {
        keys.insert(record, 100, &[]).await.unwrap();
    }
    let unknown = [3; 32];
    let found = keys
        .find_many(&[&unknown, &records[1].hash, &records[0].hash])
        .await
        .unwrap();
    let mut found: Vec<_> = found.into_iter().map(|(hash, grant)| (hash, grant.id)).collect();
    found.sort();
    assert_eq!(found, records.map(|record| (record.hash, record.key.id)));
    assert_eq!(keys.find_many(&[]).await.unwrap(), []);
}

#[tokio::test]
async fn api_key_is_stored_and_deleted_in_both_tables() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    let keys = PgApiKeys::new(fixture.owner.clone());
    let record = record(&fixture, fixture.account, "CI", &[1; 32]);
    let key = record.key.id;
    let inserted = keys.insert(&record, 100, &[event(key.0)]).await.unwrap();
    assert_eq!(inserted, InsertOutcome::Done);
    let grant = keys.find(&[1; 32]).await.unwrap().unwrap();
    assert_eq!(
        (grant.id, grant.account_id, grant.created_by),
        (key, fixture.account, fixture.user)
    );
    assert_eq!(
        keys.list(fixture.account).await.unwrap(),
        std::slice::from_ref(&record.key)
    );
    assert_eq!(keys.list(other_account).await.unwrap(), []);
    assert_eq!(fixture.relay().await, 1);

    // A duplicate hash rolls back the whole insertion.
    let twin = KeyRecord {
        key: ApiKey {
            id: ApiKeyId(id()),
            ..record.key.clone()
        },
        ..record.clone()
    };
    assert!(keys.insert(&twin, 100, &[event(key.0)]).await.is_err());
    assert_eq!(keys.list(fixture.account).await.unwrap().len(), 1);
    assert_eq!(fixture.relay().await, 0);

    // Other accounts cannot delete the key, and its account only once.
    assert!(
        !keys
            .delete(other_account, key, &[event(key.0)])
            .await
            .unwrap()
            .is_done()
    );
    assert!(
        !keys
            .delete(fixture.account, ApiKeyId(id()), &[event(key.0)])
            .await
            .unwrap()
            .is_done()
    );
    assert_eq!(fixture.relay().await, 0);
    assert!(
        keys.delete(fixture.account, key, &[event(key.0)])
            .await
            .unwrap()
            .is_done()
    );
    assert!(
        !keys
            .delete(fixture.account, key, &[event(key.0)])
            .await
            .unwrap()
            .is_done()
    );
    assert_eq!(fixture.relay().await, 1);
    assert_eq!(keys.find(&[1; 32]).await.unwrap(), None);
    assert_eq!(fixture.number("SELECT count(*) FROM api_key_hashes").await, 0);
}

#[tokio::test]
async fn api_key_list_is_newest_first() {
    let fixture = DbFixture::new().await;
    let keys = PgApiKeys::new(fixture.owner.clone());
    for (number, seconds) in [(1_u8, 2), (2, 3), (3, 1), (4, 3)] {
        let mut record = record(&fixture, fixture.account, &number.to_string(), &[number; 32]);
        record.key.created_at = NOW + Duration::seconds(seconds);
        keys.insert(&record, 100, &[]).await.unwrap();
    }
    let names: Vec<String> = keys
        .list(fixture.account)
        .await
        .unwrap()
        .into_iter()
        .map(|key| key.name)
        .collect();
    assert_eq!(names, ["4", "2", "1", "3"]);
}

#[tokio::test]
async fn api_key_limit_holds_under_concurrent_inserts() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    let keys = PgApiKeys::new(fixture.owner.clone());
    let records: Vec<KeyRecord> = (0..20)
        .map(|n| record(&fixture, fixture.account, "k", &[n; 32]))
        .collect();
    let outcomes = join_all(records.iter().map(|record| keys.insert(record, 5, &[]))).await;
    let done = outcomes
        .into_iter()
        .filter(|outcome| matches!(outcome, Ok(InsertOutcome::Done)))
        .count();
    assert_eq!(done, 5);
    assert_eq!(fixture.number("SELECT count(*) FROM api_key_hashes").await, 5);
    let elsewhere = keys
        .insert(&record(&fixture, other_account, "k", &[99; 32]), 5, &[])
        .await;
    assert_eq!(elsewhere.unwrap(), InsertOutcome::Done);
}

#[tokio::test]
async fn api_key_lookup_reads_one_row_by_index() {
    let fixture = DbFixture::new().await;
    let keys = PgApiKeys::new(fixture.owner.clone());
    keys.insert(&record(&fixture, fixture.account, "k", &[7; 32]), 100, &[])
        .await
        .unwrap();
    fixture
        .sql(&format!(
            "INSERT INTO api_keys (account_id, id, name, key_prefix, key_hint, created_by)
               SELECT '{0}', md5(i::text)::uuid, 'k', 'p', 'h', '{1}' FROM generate_series(1, 20000) i;
             INSERT INTO api_key_hashes (key_hash, account_id, key_id, created_by)
               SELECT sha256(i::text::bytea), '{0}', md5(i::text)::uuid, '{1}' FROM generate_series(1, 20000) i;
             ANALYZE; SELECT pg_stat_reset()",
            fixture.account, fixture.user
        ))
        .await;
    let pool = fixture.db.owner_pool();
    let fresh = PgApiKeys::new(pool.clone());
    for _ in 0..10 {
        fresh.find(&[7; 32]).await.unwrap().unwrap();
    }
    // A connection reports its reads when it closes.
    drop((fresh, pool));
    let read = |column: &str| format!("SELECT {column} FROM pg_stat_user_tables WHERE relname = 'api_key_hashes'");
    let deadline = Instant::now() + DEADLINE;
    while fixture.number(&read("idx_scan")).await < 10 {
        assert!(Instant::now() < deadline, "the index is not used");
        fixture.sql("SELECT pg_stat_clear_snapshot()").await;
    }
    let sequential_scans =
        "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE relname IN ('api_key_hashes', 'api_keys')";
    assert_eq!(fixture.number(sequential_scans).await, 0);
    assert_eq!(fixture.number(&read("idx_tup_fetch")).await, 10, "one row per lookup");
}

#[tokio::test]
async fn api_key_limits_are_stored_and_read_by_authentication() {
    let fixture = DbFixture::new().await;
    let keys = PgApiKeys::new(fixture.owner.clone());
    let mut record = record(&fixture, fixture.account, "narrow", &[1; 32]);
    record.key.scopes = KeyScopes::from_stored(&["links:read".into(), format!("trigger:{}", id())]);
    record.key.expires_at = Some(NOW + Duration::DAY);
    record.key.allowed_cidrs = ["10.0.0.0/8", "2001:db8::/32"]
        .into_iter()
        .filter_map(parse_network)
        .collect();
    keys.insert(&record, 100, &[]).await.unwrap();
    assert_eq!(
        keys.list(fixture.account).await.unwrap(),
        std::slice::from_ref(&record.key)
    );
    let grant = keys.find(&[1; 32]).await.unwrap().unwrap();
    assert_eq!(
        (grant.expires_at, grant.secret_valid_until),
        (record.key.expires_at, None)
    );
    assert_eq!(
        (&*grant.terms.scopes, &grant.terms.allowed_cidrs),
        (&record.key.scopes, &record.key.allowed_cidrs)
    );
    // A network that cannot be read must not open the key to every address.
    fixture.sql("UPDATE api_keys SET allowed_cidrs = '{everywhere}'").await;
    assert!(keys.find(&[1; 32]).await.is_err());
}

#[tokio::test]
async fn api_key_update_is_guarded_by_account_and_version() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    let keys = PgApiKeys::new(fixture.owner.clone());
    let record = record(&fixture, fixture.account, "old", &[1; 32]);
    keys.insert(&record, 100, &[]).await.unwrap();
    let stored = keys.get(fixture.account, record.key.id).await.unwrap().unwrap();
    assert_eq!(stored.key, record.key);
    assert_eq!(keys.get(other_account, record.key.id).await.unwrap(), None);
    let changed = StoredApiKey {
        key: ApiKey {
            name: "new".into(),
            expires_at: Some(NOW),
            ..stored.key.clone()
        },
        ..stored
    };
    let events = [event(record.key.id.0)];
    let foreign = keys.update(other_account, &changed, &events).await.unwrap();
    assert_eq!(foreign, UpdateOutcome::Missing);
    for outcome in [UpdateOutcome::Done(()), UpdateOutcome::Stale] {
        assert_eq!(keys.update(fixture.account, &changed, &events).await.unwrap(), outcome);
    }
    assert_eq!(fixture.relay().await, 1);
    assert_eq!(keys.list(fixture.account).await.unwrap(), [changed.key]);
}

#[tokio::test]
async fn rotation_keeps_two_secrets_at_most() {
    let fixture = DbFixture::new().await;
    let keys = PgApiKeys::new(fixture.owner.clone());
    let record = record(&fixture, fixture.account, "k", &[0; 32]);
    keys.insert(&record, 100, &[]).await.unwrap();
    let rotate = async |hash: u8, until: OffsetDateTime| {
        let mut stored = keys.get(fixture.account, record.key.id).await.unwrap().unwrap();
        stored.key.key_hint = format!("hin{hash}");
        stored.key.rotated_at = Some(NOW);
        stored.key.previous_valid_until = Some(until);
        let outcome = keys
            .rotate(fixture.account, &stored, &rotation(hash), &[event(record.key.id.0)])
            .await;
        assert_eq!(outcome.unwrap(), UpdateOutcome::Done(()));
        stored
    };
    let ends = async |hash: u8| {
        keys.find(&[hash; 32])
            .await
            .unwrap()
            .map(|grant| grant.secret_valid_until)
    };
    let stale = rotate(1, NOW + Duration::DAY).await;
    assert_eq!(
        (ends(0).await, ends(1).await),
        (Some(Some(NOW + Duration::DAY)), Some(None))
    );
    rotate(2, NOW + Duration::HOUR).await;
    assert_eq!(ends(0).await, None, "the oldest secret ends at once");
    assert_eq!(
        (ends(1).await, ends(2).await),
        (Some(Some(NOW + Duration::HOUR)), Some(None))
    );
    assert_eq!(fixture.relay().await, 2);
    assert_eq!(keys.list(fixture.account).await.unwrap()[0].key_hint, "hin2");
    // A rotation that lost against another one changes nothing.
    let outcome = keys
        .rotate(fixture.account, &stale, &rotation(3), &[event(record.key.id.0)])
        .await;
    assert_eq!(outcome.unwrap(), UpdateOutcome::Stale);
    assert_eq!((ends(1).await, ends(3).await), (Some(Some(NOW + Duration::HOUR)), None));
    assert_eq!(fixture.relay().await, 0);
    // A failed rotation leaves both secrets as they were.
    let stored = keys.get(fixture.account, record.key.id).await.unwrap().unwrap();
    assert!(keys.rotate(fixture.account, &stored, &rotation(2), &[]).await.is_err());
    assert_eq!(
        (ends(1).await, ends(2).await),
        (Some(Some(NOW + Duration::HOUR)), Some(None))
    );
    // A repeated rotation replaces the current secret only.
    let repeated = Rotation {
        is_repeated: true,
        ..rotation(4)
    };
    let outcome = keys.rotate(fixture.account, &stored, &repeated, &[]).await;
    assert_eq!(outcome.unwrap(), UpdateOutcome::Done(()));
    assert_eq!((ends(1).await, ends(2).await), (Some(Some(NOW + Duration::HOUR)), None));
    assert_eq!(ends(4).await, Some(None));
    assert!(
        keys.delete(fixture.account, record.key.id, &[])
            .await
            .unwrap()
            .is_done()
    );
    assert_eq!(fixture.number("SELECT count(*) FROM api_key_hashes").await, 0);
}

#[tokio::test]
async fn concurrent_rotations_leave_two_secrets() {
    let fixture = DbFixture::new().await;
    let keys = PgApiKeys::new(fixture.owner.clone());
    let record = record(&fixture, fixture.account, "k", &[0; 32]);
    keys.insert(&record, 100, &[]).await.unwrap();
    let mut stored = keys.get(fixture.account, record.key.id).await.unwrap().unwrap();
    stored.key.previous_valid_until = Some(NOW + Duration::DAY);
    let rotations: Vec<Rotation> = (1..=8).map(rotation).collect();
    let outcomes = join_all(
        rotations
            .iter()
            .map(|rotation| keys.rotate(fixture.account, &stored, rotation, &[])),
    )
    .await;
    let done = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Ok(UpdateOutcome::Done(()))));
    assert_eq!(done.count(), 1);
    assert_eq!(fixture.number("SELECT count(*) FROM api_key_hashes").await, 2);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM api_key_hashes WHERE valid_until IS NULL")
            .await,
        1
    );
}

#[tokio::test]
async fn missing_templates_are_those_of_other_accounts_too() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    let keys = PgApiKeys::new(fixture.owner.clone());
    let [own, deleted, foreign, unknown] = [(); 4].map(|()| id());
    for (template, account, deleted_at) in [
        (own, fixture.account, "NULL"),
        (deleted, fixture.account, "now()"),
        (foreign, other_account, "NULL"),
    ] {
        fixture
            .sql(&format!(
                "INSERT INTO message_templates (account_id, id, name, category, language, template_type, deleted_at)
                 VALUES ('{account}', '{template}', 't{template}', 'UTILITY', 'pt_BR', 'standard', {deleted_at})"
            ))
            .await;
    }
    let asked: Vec<_> = [own, deleted, foreign, unknown].into_iter().map(Into::into).collect();
    let missing = keys.missing_templates(fixture.account, &asked).await.unwrap();
    assert_eq!(missing, [deleted.into(), foreign.into(), unknown.into()]);
}
