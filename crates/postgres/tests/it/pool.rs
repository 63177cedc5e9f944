//! Connections: nothing of a tenant is ever left on one, whatever happened to the request that used it.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use recado_domain::campaigns::{CampaignStore, RunStore};
use recado_domain::contacts::ContactStore;
use recado_domain::shared::{CampaignId, StoreError};
use recado_postgres::{PgCampaigns, PgContacts, PgRuns, PoolConfig, TenantPool};
use secrecy::ExposeSecret as _;

use crate::contacts::draft;
use crate::support::{DbFixture, LEASE, NOW, id};

/// Waits until the server has no open transaction and no locks of ours; fails after a while.
pub(crate) async fn assert_quiet(fixture: &DbFixture) {
    let open = "SELECT count(*) FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'";
    for _ in 0..200 {
        if fixture.number(open).await == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    let left = fixture
        .text(
            "SELECT string_agg(state || ': ' || query, E'\\n') FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'",
        )
        .await;
    panic!("still open: {left:?}");
}

#[tokio::test]
async fn requests_cancelled_anywhere_leave_nothing_behind() {
    let fixture = DbFixture::new().await;
    fixture.people(20).await;
    let (other, campaign) = (fixture.another_account().await, fixture.stored_draft().await);
    let (contacts, campaigns, runs) = (fixture.contacts(), fixture.campaigns(), fixture.runs());
    for step in 0..120_u64 {
        // Spread over the time that such a request takes, so that every moment is hit.
        let moment = Duration::from_micros(step * 60);
        let written = draft("Ana", None);
        let insert = contacts.insert(fixture.account, id().into(), &written, &[], NOW);
        let _ = tokio::time::timeout(moment, insert).await;
        let _ = tokio::time::timeout(moment, campaigns.find(fixture.account, campaign.id)).await;
        let _ = tokio::time::timeout(moment, runs.facts(fixture.account, campaign.id)).await;
        let _ = tokio::time::timeout(moment, runs.take(id(), LEASE)).await;
        // Whoever comes next sees its own account alone.
        assert_eq!(campaigns.find(other, campaign.id).await.unwrap(), None, "{step}");
        assert!(
            campaigns.find(fixture.account, campaign.id).await.unwrap().is_some(),
            "{step}"
        );
    }
    assert_quiet(&fixture).await;
    assert!(fixture.tenants.usage().open <= fixture.tenants.usage().max);
}

#[tokio::test]
async fn a_start_that_is_cancelled_is_whole_or_not_at_all() {
    let fixture = DbFixture::new().await;
    fixture.on_plan("scale").await;
    fixture.people(300).await;
    for step in 0..25_u64 {
        let campaign = fixture.stored_draft().await;
        let start = fixture.start_of(&campaign);
        let runs = fixture.runs();
        let _ = tokio::time::timeout(Duration::from_millis(step), runs.start(&start, None, LEASE)).await;
        assert_quiet(&fixture).await;
        fixture.assert_recount().await;
        let odd = "SELECT count(*) FROM campaigns c WHERE (c.status = 'sending') <>
          EXISTS (SELECT 1 FROM campaign_queue q WHERE q.campaign_id = c.id)";
        assert_eq!(fixture.number(odd).await, 0);
    }
}

#[tokio::test]
async fn one_connection_serves_many_accounts_in_turn() {
    let fixture = DbFixture::new().await;
    let one = TenantPool::new(&PoolConfig {
        size: 1,
        ..fixture.db.config()
    })
    .unwrap();
    let contacts = PgContacts::new(one.clone());
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
    // What finds nothing keeps the connection, too.
    assert!(
        PgRuns::new(one.clone(), fixture.owner.clone())
            .facts(fixture.account, CampaignId(id()))
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!((one.usage().open, one.usage().idle), (1, 1));
    assert_eq!(fixture.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'recado tenant'").await, 1);
}

#[tokio::test]
async fn tenants_connect_as_a_role_that_they_cannot_leave() {
    let fixture = DbFixture::new().await;
    let one = TenantPool::new(&PoolConfig {
        size: 1,
        ..fixture.db.config()
    })
    .unwrap();
    let campaigns = PgCampaigns::new(one);
    assert_eq!(campaigns.find(fixture.account, CampaignId(id())).await.unwrap(), None);
    // The policies bind although the login is the owner's.
    let campaign = fixture.stored_draft().await;
    assert!(campaigns.find(fixture.account, campaign.id).await.unwrap().is_some());
    fixture
        .sql("ALTER TABLE campaigns DISABLE ROW LEVEL SECURITY; REVOKE SELECT ON campaigns FROM recado_tenant")
        .await;
    assert!(matches!(
        campaigns.find(fixture.account, campaign.id).await,
        Err(StoreError::Failed(_))
    ));
}

#[tokio::test]
async fn too_long_is_unavailable() {
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
    // The first waits for the lock; the second for the only connection.
    let (a, b) = tokio::join!(
        contacts.delete(fixture.account, ana.id, NOW),
        contacts.find(fixture.account, ana.id)
    );
    assert!(matches!(a, Err(StoreError::Unavailable(_))), "{a:?}");
    assert!(matches!(b, Err(StoreError::Unavailable(_))), "{b:?}");
    fixture.sql("ROLLBACK").await;
    assert!(contacts.delete(fixture.account, ana.id, NOW).await.unwrap());

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
async fn a_server_that_hung_up_is_forgotten() {
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
async fn what_was_given_up_ends_soon_in_the_database_too() {
    let fixture = DbFixture::new().await;
    let config = PoolConfig {
        size: 1,
        statement_timeout: Duration::from_secs(60),
        lock_timeout: Duration::from_secs(60),
        ..fixture.db.config()
    };
    let contacts = PgContacts::new(TenantPool::new(&config).unwrap());
    fixture.sql("BEGIN; LOCK TABLE contacts IN ACCESS EXCLUSIVE MODE").await;
    // Asked by somebody else: a transaction sees one moment of this view.
    let looker = fixture.db.client().await;
    let waiting = async || -> i64 {
        let query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
          AND application_name = 'recado tenant' AND wait_event_type = 'Lock'";
        looker.query_one(query, &[]).await.unwrap().get(0)
    };
    for _ in 0..3 {
        let mut read = std::pin::pin!(contacts.find(fixture.account, id().into()));
        let before = waiting().await;
        while waiting().await <= before {
            let early = tokio::time::timeout(Duration::from_millis(20), &mut read).await;
            assert!(early.is_err(), "{early:?}");
        }
        // Given up here, while it waits there.
    }
    let until = Instant::now() + Duration::from_secs(20);
    while waiting().await > 0 {
        assert!(Instant::now() < until, "nobody waits for its answer, and it goes on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    fixture.sql("ROLLBACK").await;
}

#[tokio::test]
async fn a_statement_that_its_connection_can_no_longer_use_breaks_it_once() {
    let fixture = DbFixture::new().await;
    let one = TenantPool::new(&PoolConfig {
        size: 1,
        ..fixture.db.config()
    })
    .unwrap();
    let contacts = PgContacts::new(one);
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
        assert!(failures <= 1, "the connection is asked the same again and again");
    }
}

/// A relay that leaves a piece of what a connection begins with out, as a pooler may that was told to.
fn without(server: u16, piece: &'static str, instead: &'static str) -> u16 {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    let relay = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = relay.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in relay.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", server)).unwrap());
            let mut begins = vec![0; 4096];
            let read = client.read(&mut begins).unwrap();
            let at = begins[..read]
                .windows(piece.len())
                .position(|here| here == piece.as_bytes());
            let at = at.expect(piece);
            begins[at..at + piece.len()].copy_from_slice(instead.as_bytes());
            server.write_all(&begins[..read]).unwrap();
            let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to).ok());
            std::thread::spawn(move || std::io::copy(&mut client, &mut server).ok());
        }
    });
    port
}

#[tokio::test]
async fn a_connection_that_the_policies_would_not_bind_is_refused() {
    let fixture = DbFixture::new().await;
    let url = fixture.db.config().url.expose_secret().to_owned();
    let server = url.parse::<tokio_postgres::Config>().unwrap().get_ports()[0];
    let campaign = fixture.stored_draft().await;
    for (piece, instead, bound) in [
        ("role=recado_tenant", "a.le=recado_tenant", false),
        ("app.account_id=none", "app.account_ix=none", false),
        ("jit=off", "jit=off", true),
    ] {
        let port = without(server, piece, instead);
        let config = PoolConfig {
            size: 1,
            url: url.replace(&format!(":{server}/"), &format!(":{port}/")).into(),
            ..fixture.db.config()
        };
        let found = PgCampaigns::new(TenantPool::new(&config).unwrap())
            .find(fixture.account, campaign.id)
            .await;
        match bound {
            true => assert!(found.unwrap().is_some()),
            false => assert!(matches!(found, Err(StoreError::Unavailable(_))), "{piece}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_waited_for_as_long_as_was_said() {
    let fixture = DbFixture::new().await;
    // Taken by the machine, and never answered.
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let config = PoolConfig {
        url: format!("postgres://nobody@{}/x", silent.local_addr().unwrap()).into(),
        connect_timeout: Duration::from_millis(100),
        ..fixture.db.config()
    };
    let campaigns = PgCampaigns::new(TenantPool::new(&config).unwrap());
    let find = campaigns.find(fixture.account, CampaignId(id()));
    let found = tokio::time::timeout(Duration::from_secs(4), find).await;
    assert!(matches!(found, Ok(Err(StoreError::Unavailable(_)))), "{found:?}");
}

#[tokio::test]
async fn text_that_the_database_cannot_hold_is_no_panic() {
    let fixture = DbFixture::new().await;
    let written = draft("a\0b", None);
    let refused = fixture
        .contacts()
        .insert(fixture.account, id().into(), &written, &[], NOW)
        .await;
    assert!(refused.is_err());
    assert_eq!(fixture.tenants.usage().idle, fixture.tenants.usage().open);
}
