//! Connection pools. A connection never keeps tenant state, not even after a cancelled or failed request.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use recado_domain::campaigns::{CampaignStore, RunQueue as _, RunStartStore as _};
use recado_domain::contacts::ContactStore;
use recado_domain::shared::{CampaignId, StoreError};
use recado_postgres::{PgCampaigns, PgContacts, PgRuns, PoolConfig, TenantPool};
use recado_testkit::DEADLINE;
use secrecy::ExposeSecret as _;

use crate::contacts::draft;
use crate::error_codes::ERROR_CODES;
use crate::support::{DbFixture, LEASE, NOW, id};

/// Waits until no other connection of the database is active or in a transaction. Panics after five seconds.
pub(crate) async fn assert_quiet(fixture: &DbFixture) {
    let open = "SELECT count(*) FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'";
    for _ in 0..200 {
        if fixture.number(open).await == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    let still_active = fixture
        .text(
            "SELECT string_agg(state || ': ' || query, E'\\n') FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'",
        )
        .await;
    panic!("connections are still active: {still_active:?}");
}

#[tokio::test]
async fn requests_cancelled_anywhere_leave_nothing_behind() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(20).await;
    let (other_account, campaign) = (fixture.another_account().await, fixture.stored_draft().await);
    let (contacts, campaigns, runs) = (fixture.contacts(), fixture.campaigns(), fixture.runs());
    for step in 0..120_u64 {
        // Cancellation times cover the whole duration of such a request.
        let cancel_after = Duration::from_micros(step * 60);
        let contact_draft = draft("Ana", None);
        let insert = contacts.insert(fixture.account, id().into(), &contact_draft, &[], NOW);
        let _ = tokio::time::timeout(cancel_after, insert).await;
        let _ = tokio::time::timeout(cancel_after, campaigns.find(fixture.account, campaign.id)).await;
        let _ = tokio::time::timeout(cancel_after, runs.facts(fixture.account, campaign.id)).await;
        let _ = tokio::time::timeout(cancel_after, runs.take(id(), LEASE)).await;
        // The next request on the connection sees its own account only.
        assert_eq!(
            campaigns.find(other_account, campaign.id).await.unwrap(),
            None,
            "{step}"
        );
        assert!(
            campaigns.find(fixture.account, campaign.id).await.unwrap().is_some(),
            "{step}"
        );
    }
    assert_quiet(&fixture).await;
    assert!(fixture.tenants.usage().open <= fixture.tenants.usage().max);
}

#[tokio::test]
async fn run_start_cancelled_midway_is_atomic() {
    let fixture = DbFixture::new().await;
    fixture.on_plan("scale").await;
    fixture.add_contacts(300).await;
    for step in 0..25_u64 {
        let campaign = fixture.stored_draft().await;
        let start = fixture.start_of(&campaign);
        let runs = fixture.runs();
        let _ = tokio::time::timeout(Duration::from_millis(step), runs.start(&start, None, LEASE)).await;
        assert_quiet(&fixture).await;
        fixture.assert_recount().await;
        let inconsistent = "SELECT count(*) FROM campaigns c WHERE (c.status = 'sending') <>
          EXISTS (SELECT 1 FROM campaign_queue q WHERE q.campaign_id = c.id)";
        assert_eq!(fixture.number(inconsistent).await, 0);
    }
}

#[tokio::test]
async fn one_connection_serves_many_accounts_in_turn() {
    let fixture = DbFixture::new().await;
    let pool = TenantPool::new(&PoolConfig {
        size: 1,
        ..fixture.db.config()
    })
    .unwrap();
    let contacts = PgContacts::new(pool.clone());
    let mut accounts = vec![fixture.account];
    for _ in 0..4 {
        accounts.push(fixture.another_account().await);
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
    // A read without a result keeps the connection open, too.
    assert!(
        PgRuns::new(pool.clone(), fixture.owner.clone(), ERROR_CODES)
            .facts(fixture.account, CampaignId(id()))
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!((pool.usage().open, pool.usage().idle), (1, 1));
    assert_eq!(fixture.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'recado tenant'").await, 1);
}

#[tokio::test]
async fn tenant_pool_connects_as_the_tenant_role() {
    let fixture = DbFixture::new().await;
    let pool = TenantPool::new(&PoolConfig {
        size: 1,
        ..fixture.db.config()
    })
    .unwrap();
    let campaigns = PgCampaigns::new(pool, ERROR_CODES);
    assert_eq!(campaigns.find(fixture.account, CampaignId(id())).await.unwrap(), None);
    // Row-level security binds the connection, also one that logs in as the owner.
    let assumed = TenantPool::new(&fixture.db.config().tenant_login(None)).unwrap();
    let other_account = fixture.another_account().await;
    let assumed = PgCampaigns::new(assumed, ERROR_CODES);
    let campaign = fixture.stored_draft().await;
    for campaigns in [&campaigns, &assumed] {
        assert!(campaigns.find(fixture.account, campaign.id).await.unwrap().is_some());
        assert_eq!(campaigns.find(other_account, campaign.id).await.unwrap(), None);
    }
    fixture
        .sql("ALTER TABLE campaigns DISABLE ROW LEVEL SECURITY; REVOKE SELECT ON campaigns FROM recado_tenant")
        .await;
    assert!(matches!(
        campaigns.find(fixture.account, campaign.id).await,
        Err(StoreError::Failed(_))
    ));
}

#[tokio::test]
async fn pool_lock_and_statement_timeouts_are_unavailable() {
    let fixture = DbFixture::new().await;
    let short = Duration::from_millis(150);
    let config = PoolConfig {
        size: 1,
        wait_timeout: short,
        lock_timeout: short,
        ..fixture.db.config()
    };
    let pool = TenantPool::new(&config).unwrap();
    let contacts = PgContacts::new(pool.clone());
    let ana = contacts
        .insert(fixture.account, id().into(), &draft("Ana", None), &[], NOW)
        .await
        .unwrap();
    fixture.sql("BEGIN; LOCK TABLE contacts IN ACCESS EXCLUSIVE MODE").await;
    // The first call waits for the lock, the second for the only connection.
    let (a, b) = tokio::join!(
        contacts.delete(fixture.account, ana.id, NOW),
        contacts.find(fixture.account, ana.id)
    );
    assert!(matches!(a, Err(StoreError::Unavailable(_))), "{a:?}");
    assert!(matches!(b, Err(StoreError::Unavailable(_))), "{b:?}");
    fixture.sql("ROLLBACK").await;
    assert!(contacts.delete(fixture.account, ana.id, NOW).await.unwrap().is_done());

    let slow = PoolConfig {
        statement_timeout: short,
        ..fixture.db.config()
    };
    let contacts = PgContacts::new(TenantPool::new(&slow).unwrap());
    fixture.sql("BEGIN; LOCK TABLE contacts IN ACCESS EXCLUSIVE MODE").await;
    let late = contacts.find(fixture.account, ana.id).await;
    assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
    fixture.sql("ROLLBACK").await;
}

#[tokio::test]
async fn connections_closed_by_the_server_are_discarded() {
    let fixture = DbFixture::new().await;
    let campaign = fixture.stored_draft().await;
    let campaigns = fixture.campaigns();
    let finds = (0..4).map(|_| campaigns.find(fixture.account, campaign.id));
    join_all(finds).await;
    fixture
        .sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
        .await;
    assert_quiet(&fixture).await;
    let mut failures = 0;
    while let Err(error) = campaigns.find(fixture.account, campaign.id).await {
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        failures += 1;
        assert!(failures <= 4);
    }
}

#[tokio::test]
async fn cancelled_read_ends_its_database_query() {
    let fixture = DbFixture::new().await;
    let config = PoolConfig {
        size: 1,
        statement_timeout: Duration::from_secs(60),
        lock_timeout: Duration::from_secs(60),
        ..fixture.db.config()
    };
    let contacts = PgContacts::new(TenantPool::new(&config).unwrap());
    fixture.sql("BEGIN; LOCK TABLE contacts IN ACCESS EXCLUSIVE MODE").await;
    // On a connection of its own: a transaction sees one snapshot of this view.
    let observer = fixture.db.client().await;
    let waiting = async || -> i64 {
        let query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
          AND application_name = 'recado tenant' AND wait_event_type = 'Lock'";
        observer.query_one(query, &[]).await.unwrap().get(0)
    };
    for _ in 0..3 {
        // The query of the previous read ends at its client's check interval.
        while waiting().await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut read = std::pin::pin!(contacts.find(fixture.account, id().into()));
        while waiting().await == 0 {
            let early = tokio::time::timeout(Duration::from_millis(20), &mut read).await;
            assert!(early.is_err(), "{early:?}");
        }
        // Cancels the read here while its query waits in the database.
    }
    let until = Instant::now() + DEADLINE;
    while waiting().await > 0 {
        assert!(Instant::now() < until, "the query of a cancelled read goes on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    fixture.sql("ROLLBACK").await;
}

#[tokio::test]
async fn outdated_prepared_statement_fails_only_once() {
    let fixture = DbFixture::new().await;
    let pool = TenantPool::new(&PoolConfig {
        size: 1,
        ..fixture.db.config()
    })
    .unwrap();
    let contacts = PgContacts::new(pool);
    let insert = async |name| {
        contacts
            .insert(fixture.account, id().into(), &draft(name, None), &[], NOW)
            .await
    };
    insert("Ana").await.unwrap();
    fixture
        .sql("ALTER TABLE contacts ALTER COLUMN name TYPE varchar(1000)")
        .await;
    let mut failures = 0;
    while let Err(error) = insert("Bia").await {
        assert!(matches!(error, StoreError::Failed(_)), "{error:?}");
        failures += 1;
        assert!(failures <= 1, "the connection keeps an outdated prepared statement");
    }
}

/// Starts a proxy that replaces one setting in the startup message, like a connection pooler that drops settings.
/// Returns its port.
fn proxy_replacing(server: u16, setting: &'static str, replacement: &'static str) -> u16 {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", server)).unwrap());
            let mut startup = vec![0; 4096];
            let read = client.read(&mut startup).unwrap();
            let at = startup[..read]
                .windows(setting.len())
                .position(|window| window == setting.as_bytes());
            // A connection that expects a pooler sends no settings.
            if let Some(at) = at {
                startup[at..at + setting.len()].copy_from_slice(replacement.as_bytes());
            }
            server.write_all(&startup[..read]).unwrap();
            let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to).ok());
            std::thread::spawn(move || std::io::copy(&mut client, &mut server).ok());
        }
    });
    port
}

/// A setting that is lost on the way identifies a pooler. From then on every transaction sets what it needs.
#[tokio::test]
async fn connection_that_loses_settings_is_bound_by_each_transaction() {
    let fixture = DbFixture::new().await;
    let url = fixture.db.config().url.expose_secret().to_owned();
    let server = url.parse::<tokio_postgres::Config>().unwrap().get_ports()[0];
    let (campaign, other_account) = (fixture.stored_draft().await, fixture.another_account().await);
    for (setting, replacement) in [
        ("role=recado_tenant", "a.le=recado_tenant"),
        ("app.account_id=none", "app.account_ix=none"),
        ("app.session=direct", "app.sessiox=direct"),
        ("jit=off", "jit=off"),
    ] {
        let port = proxy_replacing(server, setting, replacement);
        let config = PoolConfig {
            size: 1,
            url: url.replace(&format!(":{server}/"), &format!(":{port}/")).into(),
            ..fixture.db.config().tenant_login(None)
        };
        let campaigns = PgCampaigns::new(TenantPool::new(&config).unwrap(), ERROR_CODES);
        for _ in 0..2 {
            let found = campaigns.find(fixture.account, campaign.id).await.unwrap();
            assert!(found.is_some(), "{setting}");
            let foreign = campaigns.find(other_account, campaign.id).await.unwrap();
            assert_eq!(foreign, None, "{setting}");
        }
    }
}

#[tokio::test]
async fn connect_to_a_silent_database_times_out() {
    let fixture = DbFixture::new().await;
    // The kernel accepts the connection, but no process responds.
    let silent_listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let config = PoolConfig {
        url: format!("postgres://user@{}/x", silent_listener.local_addr().unwrap()).into(),
        connect_timeout: Duration::from_millis(100),
        ..fixture.db.config().tenant_login(None)
    };
    let campaigns = PgCampaigns::new(TenantPool::new(&config).unwrap(), ERROR_CODES);
    let find = campaigns.find(fixture.account, CampaignId(id()));
    let found = tokio::time::timeout(DEADLINE, find).await;
    assert!(matches!(found, Ok(Err(StoreError::Unavailable(_)))), "{found:?}");
}

#[tokio::test]
async fn text_with_a_nul_byte_is_an_error() {
    let fixture = DbFixture::new().await;
    let contact_draft = draft("a\0b", None);
    let refused = fixture
        .contacts()
        .insert(fixture.account, id().into(), &contact_draft, &[], NOW)
        .await;
    assert!(refused.is_err());
    assert_eq!(fixture.tenants.usage().idle, fixture.tenants.usage().open);
}
