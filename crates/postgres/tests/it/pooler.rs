//! Pools behind a real PgBouncer in transaction mode: every transaction may get another server session.

use std::time::Duration;

use futures_util::future::join_all;
use recado_domain::accounts::AccountStore as _;
use recado_domain::campaigns::{CampaignStore as _, RunQueue as _, RunStartStore as _};
use recado_domain::contacts::ContactStore as _;
use recado_domain::shared::StoreError;
use recado_postgres::testing::{StatementCaching, read, read_both};
use recado_postgres::{OwnerPool, PgAccounts, PgCampaigns, PgContacts, PgRuns, PoolConfig, TenantPool};
use recado_testkit::services::pgbouncer::PgBouncer;
use secrecy::ExposeSecret as _;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::contacts::draft;
use crate::error_codes::ERROR_CODES;
use crate::support::{DbFixture, LEASE, NOW, id};

/// PgBouncer before the fixture's database, and pools that connect through it: as a login of the tenant role, and with
/// `SET ROLE`.
struct Pooled {
    pooler: PgBouncer,
    owner_url: String,
    tenant_url: String,
}

impl Pooled {
    fn start(fixture: &DbFixture, server_connections: usize) -> Option<Self> {
        let (owner, tenant) = (fixture.db.url(), fixture.db.tenant_url());
        let (owner, tenant) = (owner.expose_secret(), tenant.expose_secret());
        let pooler = PgBouncer::start(&[owner, tenant], server_connections)?;
        Some(Self {
            owner_url: pooler.through(owner),
            tenant_url: pooler.through(tenant),
            pooler,
        })
    }

    fn config(&self, size: usize) -> PoolConfig {
        PoolConfig::new(self.owner_url.clone().into(), size)
    }

    fn with_login(&self, size: usize) -> PoolConfig {
        self.config(size).tenant_login(Some(self.tenant_url.clone().into()))
    }

    /// The values of a query that runs outside of any pool, on the server session that PgBouncer gives it.
    async fn values(&self, url: &str, query: &str) -> Vec<String> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let messages = client.simple_query(query).await.unwrap();
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        rows.collect()
    }
}

#[tokio::test]
async fn transactions_through_a_pooler_see_only_their_account() {
    let fixture = DbFixture::new().await;
    let Some(pooled) = Pooled::start(&fixture, 2) else {
        return;
    };
    for config in [pooled.with_login(8), pooled.config(8)] {
        let tenants = TenantPool::new(&config).unwrap();
        let contacts = PgContacts::new(tenants.clone());
        let mut accounts = vec![fixture.account];
        for _ in 0..4 {
            accounts.push(fixture.another_account().await);
        }
        let written = accounts.iter().map(|&account| {
            let contacts = contacts.clone();
            async move {
                let contact_draft = draft("x", None);
                let contact = contacts.insert(account, id().into(), &contact_draft, &[], NOW).await;
                contact.unwrap().id
            }
        });
        let ids = join_all(written).await;
        let reads = (0..200).map(|number: usize| {
            let (reader, holder) = (accounts[number % 5], number / 5 % 5);
            let (contacts, contact, is_own) = (contacts.clone(), ids[holder], reader == accounts[holder]);
            async move { contacts.find(reader, contact).await.unwrap().is_some() == is_own }
        });
        assert!(join_all(reads).await.into_iter().all(|is_right| is_right));
        // A pipelined read of two statements, prepared and unprepared.
        for caching in [StatementCaching::Yes, StatementCaching::No] {
            for _ in 0..3 {
                let names = read(&tenants, accounts[1], caching, "SELECT name AS text FROM contacts").await;
                assert_eq!(names.unwrap(), ["x"]);
            }
        }
        let account = "SELECT current_setting('app.account_id') AS text";
        let (first, second) = read_both(&tenants, accounts[2], account, account).await.unwrap();
        assert_eq!(
            (first, second),
            (vec![accounts[2].to_string()], vec![accounts[2].to_string()])
        );
    }
    assert!(
        !pooled.pooler.log().contains("prepared statement"),
        "{}",
        pooled.pooler.log()
    );
}

#[tokio::test]
async fn pools_leave_no_state_on_the_sessions_of_a_pooler() {
    let fixture = DbFixture::new().await;
    let Some(pooled) = Pooled::start(&fixture, 1) else {
        return;
    };
    let campaign = fixture.stored_draft().await;
    for config in [pooled.with_login(2), pooled.config(2)] {
        let (tenants, owner) = (TenantPool::new(&config).unwrap(), OwnerPool::new(&config).unwrap());
        let (campaigns, runs) = (
            PgCampaigns::new(tenants.clone(), ERROR_CODES),
            PgRuns::new(tenants, owner.clone(), ERROR_CODES),
        );
        let accounts = PgAccounts::new(owner);
        for step in 0..20_u64 {
            assert!(campaigns.find(fixture.account, campaign.id).await.unwrap().is_some());
            runs.facts(fixture.account, campaign.id).await.unwrap();
            runs.take(id(), LEASE).await.unwrap();
            accounts.memberships(fixture.user).await.unwrap();
            // A cancelled request.
            let find = campaigns.find(fixture.account, campaign.id);
            let _ = tokio::time::timeout(Duration::from_micros(step * 100), find).await;
        }
    }
    for url in [&pooled.owner_url, &pooled.tenant_url] {
        let leftovers = pooled
            .values(
                url,
                "SELECT statement FROM pg_prepared_statements
                 UNION ALL SELECT 'account ' || a FROM current_setting('app.account_id', true) a WHERE a NOT IN ('', 'none')
                 UNION ALL SELECT 'role ' || current_user WHERE current_user <> session_user
                 UNION ALL SELECT 'lock ' || locktype FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
            )
            .await;
        assert_eq!(leftovers, Vec::<String>::new(), "{url}");
    }
}

#[tokio::test]
async fn timeouts_of_a_pool_hold_behind_a_pooler() {
    let fixture = DbFixture::new().await;
    let Some(pooled) = Pooled::start(&fixture, 4) else {
        return;
    };
    let short = Duration::from_millis(150);
    fixture
        .sql("BEGIN; LOCK TABLE contacts, users IN ACCESS EXCLUSIVE MODE")
        .await;
    for config in [pooled.with_login(1), pooled.config(1)] {
        for config in [
            PoolConfig {
                lock_timeout: short,
                ..config.clone()
            },
            PoolConfig {
                statement_timeout: short,
                ..config.clone()
            },
        ] {
            let contacts = PgContacts::new(TenantPool::new(&config).unwrap());
            let waited = contacts.find(fixture.account, id().into()).await;
            assert!(matches!(waited, Err(StoreError::Unavailable(_))), "{waited:?}");
            let accounts = PgAccounts::new(OwnerPool::new(&config).unwrap());
            let waited = accounts.record_user(&crate::support::session(fixture.user)).await;
            assert!(matches!(waited, Err(StoreError::Unavailable(_))), "{waited:?}");
        }
    }
    fixture.sql("ROLLBACK").await;
}
