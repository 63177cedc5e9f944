//! Connections: nothing of a tenant is ever left on one, whatever happened to the request that used it.

use std::time::Duration;

use futures_util::future::join_all;
use recado_domain::campaigns::{CampaignStore, RunStore};
use recado_domain::contacts::ContactStore;
use recado_domain::shared::{CampaignId, StoreError};
use recado_postgres::{PgCampaigns, PgContacts, PgRuns, PoolConfig, TenantPool};

use crate::contacts::draft;
use crate::support::{LEASE, NOW, World, id};

/// Waits until the server has no open transaction and no locks of ours; fails after a while.
pub(crate) async fn assert_quiet(world: &World) {
    let open = "SELECT count(*) FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'";
    for _ in 0..200 {
        if world.number(open).await == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    let left = world
        .text(
            "SELECT string_agg(state || ': ' || query, E'\\n') FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'",
        )
        .await;
    panic!("still open: {left:?}");
}

#[tokio::test]
async fn requests_cancelled_anywhere_leave_nothing_behind() {
    let world = World::new().await;
    world.people(20).await;
    let (other, campaign) = (world.another_account().await, world.stored_draft().await);
    let (contacts, campaigns, runs) = (world.contacts(), world.campaigns(), world.runs());
    for step in 0..120_u64 {
        // Spread over the time that such a request takes, so that every moment is hit.
        let moment = Duration::from_micros(step * 60);
        let written = draft("Ana", None);
        let insert = contacts.insert(world.account, id().into(), &written, &[], NOW);
        let _ = tokio::time::timeout(moment, insert).await;
        let _ = tokio::time::timeout(moment, campaigns.find(world.account, campaign.id)).await;
        let _ = tokio::time::timeout(moment, runs.facts(world.account, campaign.id)).await;
        let _ = tokio::time::timeout(moment, runs.take(id(), LEASE)).await;
        // Whoever comes next sees its own account alone.
        assert_eq!(campaigns.find(other, campaign.id).await.unwrap(), None, "{step}");
        assert!(
            campaigns.find(world.account, campaign.id).await.unwrap().is_some(),
            "{step}"
        );
    }
    assert_quiet(&world).await;
    assert!(world.tenants.usage().open <= world.tenants.usage().max);
}

#[tokio::test]
async fn a_start_that_is_cancelled_is_whole_or_not_at_all() {
    let world = World::new().await;
    world.people(300).await;
    for step in 0..25_u64 {
        let campaign = world.stored_draft().await;
        let start = world.start_of(&campaign);
        let runs = world.runs();
        let _ = tokio::time::timeout(Duration::from_millis(step), runs.start(&start, None, LEASE)).await;
        assert_quiet(&world).await;
        world.assert_recount().await;
        let odd = "SELECT count(*) FROM campaigns c WHERE (c.status = 'sending') <>
          EXISTS (SELECT 1 FROM campaign_queue q WHERE q.campaign_id = c.id)";
        assert_eq!(world.number(odd).await, 0);
    }
}

#[tokio::test]
async fn one_connection_serves_many_accounts_in_turn() {
    let world = World::new().await;
    let one = TenantPool::new(&PoolConfig {
        size: 1,
        ..world.db.config()
    })
    .unwrap();
    let contacts = PgContacts::new(one.clone());
    let mut accounts = vec![world.account];
    for _ in 0..4 {
        accounts.push(world.another_account().await);
    }
    let written = accounts.iter().map(|&account| {
        let contacts = contacts.clone();
        async move {
            contacts
                .insert(account, id().into(), &draft("x", None), &[], NOW)
                .await
                .unwrap()
                .id
        }
    });
    let ids = join_all(written).await;
    for (owner, contact) in accounts.iter().zip(&ids) {
        for account in &accounts {
            let seen = contacts.find(*account, *contact).await.unwrap().is_some();
            assert_eq!(seen, account == owner);
        }
    }
    // Refusals and faults keep the connection, too.
    assert!(
        PgRuns::new(one.clone(), world.platform.clone())
            .facts(world.account, CampaignId(id()))
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!((one.usage().open, one.usage().idle), (1, 1));
    assert_eq!(world.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'recado tenant'").await, 1);
}

#[tokio::test]
async fn tenants_connect_as_a_role_that_they_cannot_leave() {
    let world = World::new().await;
    let one = TenantPool::new(&PoolConfig {
        size: 1,
        ..world.db.config()
    })
    .unwrap();
    let campaigns = PgCampaigns::new(one);
    assert_eq!(campaigns.find(world.account, CampaignId(id())).await.unwrap(), None);
    // The policies bind although the login is the owner's: without an account nothing is seen.
    let campaign = world.stored_draft().await;
    assert!(campaigns.find(world.account, campaign.id).await.unwrap().is_some());
    world
        .sql("ALTER TABLE campaigns DISABLE ROW LEVEL SECURITY; REVOKE SELECT ON campaigns FROM recado_tenant")
        .await;
    assert!(matches!(
        campaigns.find(world.account, campaign.id).await,
        Err(StoreError::Failed(_))
    ));
}

#[tokio::test]
async fn too_long_is_unavailable() {
    let world = World::new().await;
    let short = Duration::from_millis(150);
    let config = PoolConfig {
        size: 1,
        wait_timeout: short,
        lock_timeout: short,
        ..world.db.config()
    };
    let pool = TenantPool::new(&config).unwrap();
    let contacts = PgContacts::new(pool.clone());
    let ana = contacts
        .insert(world.account, id().into(), &draft("Ana", None), &[], NOW)
        .await
        .unwrap();
    world.sql("BEGIN; LOCK TABLE contacts IN ACCESS EXCLUSIVE MODE").await;
    // The first waits for the lock; the second for the only connection.
    let (a, b) = tokio::join!(
        contacts.delete(world.account, ana.id, NOW),
        contacts.find(world.account, ana.id)
    );
    assert!(matches!(a, Err(StoreError::Unavailable(_))), "{a:?}");
    assert!(matches!(b, Err(StoreError::Unavailable(_))), "{b:?}");
    world.sql("ROLLBACK").await;
    assert!(contacts.delete(world.account, ana.id, NOW).await.unwrap());

    let slow = PoolConfig {
        statement_timeout: short,
        ..world.db.config()
    };
    let contacts = PgContacts::new(TenantPool::new(&slow).unwrap());
    world.sql("BEGIN; LOCK TABLE contacts IN ACCESS EXCLUSIVE MODE").await;
    let late = contacts.find(world.account, ana.id).await;
    assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
    world.sql("ROLLBACK").await;
}

#[tokio::test]
async fn a_server_that_hung_up_is_forgotten() {
    let world = World::new().await;
    let campaign = world.stored_draft().await;
    let campaigns = world.campaigns();
    let finds = (0..4).map(|_| campaigns.find(world.account, campaign.id));
    join_all(finds).await;
    world
        .sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
        .await;
    assert_quiet(&world).await;
    let mut failures = 0;
    while let Err(error) = campaigns.find(world.account, campaign.id).await {
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        failures += 1;
        assert!(failures <= 4);
    }
}

#[tokio::test]
async fn text_that_the_database_cannot_hold_is_no_panic() {
    let world = World::new().await;
    let written = draft("a\0b", None);
    let refused = world
        .contacts()
        .insert(world.account, id().into(), &written, &[], NOW)
        .await;
    assert!(refused.is_err());
    assert_eq!(world.tenants.usage().idle, world.tenants.usage().open);
}
