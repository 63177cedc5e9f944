//! API keys by their hash.

use recado_domain::accounts::AccountStatus;
use recado_domain::api_keys::ApiKeyStore;
use recado_domain::shared::ApiKeyId;
use recado_postgres::PgApiKeys;
use time::Duration;

use crate::support::{NOW, World, id};

#[tokio::test]
async fn a_key_is_found_by_its_hash_and_its_use_is_noted() {
    let world = World::new().await;
    let (key, account, user) = (ApiKeyId(id()), world.account, world.user);
    world
        .sql(&format!(
            "INSERT INTO api_keys (account_id, id, name, key_prefix, key_hint, created_by)
               VALUES ('{account}', '{key}', 'k', 'svc_live_sk_', 'abcd', '{user}');
             INSERT INTO api_key_hashes (key_hash, account_id, key_id, created_by)
               VALUES ('\\x0102', '{account}', '{key}', '{user}')"
        ))
        .await;
    let keys = PgApiKeys::new(world.platform.clone());
    let grant = keys.find(&[1, 2]).await.unwrap().unwrap();
    assert_eq!((grant.id, grant.account_id, grant.created_by), (key, account, user));
    assert_eq!((grant.status, grant.last_used_at), (AccountStatus::Active, None));
    assert_eq!(keys.find(&[1, 3]).await.unwrap(), None);

    keys.touch(account, key, NOW).await.unwrap();
    keys.touch(account, key, NOW - Duration::SECOND).await.unwrap();
    assert_eq!(keys.find(&[1, 2]).await.unwrap().unwrap().last_used_at, Some(NOW));
    let other = world.another_account().await;
    keys.touch(other, key, NOW + Duration::SECOND).await.unwrap();
    assert_eq!(keys.find(&[1, 2]).await.unwrap().unwrap().last_used_at, Some(NOW));

    world
        .sql(&format!(
            "UPDATE accounts SET status = 'suspended' WHERE id = '{account}'"
        ))
        .await;
    assert_eq!(
        keys.find(&[1, 2]).await.unwrap().unwrap().status,
        AccountStatus::Suspended
    );
    // A deleted key is no key, whatever the directory still says.
    world.sql("DELETE FROM api_keys").await;
    assert_eq!(keys.find(&[1, 2]).await.unwrap(), None);
}
