//! RFM scores: the database computes the same scores as the domain, with one calculation per account at a time.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use recado_domain::analytics::{ENOUGH_ORDERS, Purchases, RfmClaim, RfmScores, RfmSegment, RfmStore, grid, scores};
use recado_domain::shared::{AccountId, Amount, ContactId};
use recado_postgres::PgRfm;
use time::macros::datetime;
use time::{Duration, OffsetDateTime};

use crate::support::{DbFixture, NOW, id};

const NEXT_DUE: OffsetDateTime = datetime!(2099-01-01 0:00 UTC);
const RFM_LEASE: Duration = Duration::minutes(5);

fn store(fixture: &DbFixture) -> PgRfm {
    PgRfm::new(fixture.tenants.clone(), fixture.owner.clone())
}

/// Inserts a customer with these paid orders. The latest order has the whole value.
async fn customer(fixture: &DbFixture, account: AccountId, purchases: &Purchases) -> ContactId {
    let contact = id();
    let Purchases { last_at, orders, spend } = purchases;
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name) VALUES ('{account}', '{contact}', 'c');
             INSERT INTO orders (account_id, id, platform, external_id, contact_id, status, total, placed_at, paid_at)
             SELECT '{account}', ('00000000' || substr(md5('{contact}' || n), 9))::uuid, 'p', '{contact} ' || n, '{contact}', 'paid',
               CASE n WHEN 1 THEN {spend} ELSE 0 END, '2020-01-01', '{last_at}'::timestamptz - (n - 1) * interval '1 h'
             FROM generate_series(1, {orders}) n;
             INSERT INTO orders (account_id, id, platform, external_id, contact_id, status, total, placed_at, paid_at)
             VALUES ('{account}', ('00000000' || substr(md5('{contact}r'), 9))::uuid, 'p', '{contact} r', '{contact}', 'refunded', 999, now(), now());
             INSERT INTO order_rollups (account_id, bucket_minutes, bucket_start, platform, paid)
             VALUES ('{account}', 1440, '2020-01-01', 'p', {orders})
             ON CONFLICT (account_id, bucket_minutes, bucket_start, platform)
               DO UPDATE SET paid = order_rollups.paid + excluded.paid"
        ))
        .await;
    contact.into()
}

async fn calculate(fixture: &DbFixture, account: AccountId) {
    let store = store(fixture);
    store.request(account).await.unwrap();
    let worker = id();
    let mut claimed = store.claim(worker, RFM_LEASE).await.unwrap();
    while claimed != Some(account) {
        claimed = store.claim(worker, RFM_LEASE).await.unwrap();
        assert!(claimed.is_some());
    }
    let claim = RfmClaim {
        account_id: account,
        worker,
    };
    assert!(
        store
            .calculate(&claim, &grid(), ENOUGH_ORDERS, NEXT_DUE)
            .await
            .unwrap()
            .is_held()
    );
}

async fn stored(fixture: &DbFixture, contact: ContactId) -> Option<(RfmScores, RfmSegment)> {
    let row = fixture
        .text(&format!(
            "SELECT concat_ws(' ', recency_score, frequency_score, monetary_score, segment) FROM contact_rfm
             WHERE contact_id = '{contact}'"
        ))
        .await?;
    let fields: Vec<&str> = row.split(' ').collect();
    let scores = RfmScores {
        recency: fields[0].parse().unwrap(),
        frequency: fields[1].parse().unwrap(),
        monetary: fields[2].parse().unwrap(),
    };
    Some((scores, fields[3].parse().unwrap()))
}

#[test]
fn rfm_scores_match_the_domain_rule() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let fixture = runtime.block_on(DbFixture::new());
    let config = Config {
        cases: 16,
        failure_persistence: None,
        ..Config::default()
    };
    // Few distinct values, so that ties occur.
    let rows = prop::collection::vec((0..7_i64, 1..5_i64, 0..6_i64), 20..45);
    TestRunner::new(config)
        .run(&rows, |rows| {
            runtime.block_on(async {
                let account = fixture.another_account().await;
                let customers: Vec<Purchases> = rows
                    .iter()
                    .map(|&(days, orders, spend)| Purchases {
                        last_at: NOW - Duration::days(days),
                        orders,
                        spend: Amount::from(spend),
                    })
                    .collect();
                let mut contacts = Vec::new();
                for purchases in &customers {
                    contacts.push(customer(&fixture, account, purchases).await);
                }
                calculate(&fixture, account).await;
                let mut sizes = std::collections::BTreeMap::<&str, i64>::new();
                for (contact, expected) in contacts.into_iter().zip(scores(&customers)) {
                    assert_eq!(stored(&fixture, contact).await, Some((expected, expected.segment())));
                    *sizes.entry(expected.segment().as_str()).or_default() += 1;
                }
                let totals = store(&fixture).totals(account).await.unwrap();
                let stored_sizes = totals.sizes.iter().map(|(segment, n)| (segment.as_str(), *n)).collect();
                assert_eq!(sizes, stored_sizes);
                assert_eq!(
                    totals.orders,
                    customers.iter().map(|customer| customer.orders).sum::<i64>()
                );
            });
            Ok(())
        })
        .unwrap();
}

/// An account with `customers` distinct customers of two orders each.
async fn shop(fixture: &DbFixture, customers: i64) -> (AccountId, Vec<ContactId>) {
    let account = fixture.another_account().await;
    let mut contacts = Vec::new();
    for number in 0..customers {
        let purchases = Purchases {
            last_at: NOW + Duration::hours(number),
            orders: 2,
            spend: Amount::from(number),
        };
        contacts.push(customer(fixture, account, &purchases).await);
    }
    (account, contacts)
}

#[tokio::test]
async fn rfm_calculation_replaces_all_scores_at_once() {
    let fixture = DbFixture::new().await;
    let (account, contacts) = shop(&fixture, 10).await;
    calculate(&fixture, account).await;
    let before = store(&fixture).totals(account).await.unwrap();
    assert_eq!(before.orders, 20);
    assert_eq!(fixture.number("SELECT count(*) FROM contact_rfm").await, 10);
    assert!(before.calculated_at.is_some());
    // One customer is deleted, one has no paid order any more.
    fixture
        .sql(&format!(
            "UPDATE contacts SET deleted_at = now() WHERE id = '{}';
             UPDATE orders SET status = 'refunded' WHERE contact_id = '{}'",
            contacts[0], contacts[9]
        ))
        .await;
    calculate(&fixture, account).await;
    assert_eq!(
        (stored(&fixture, contacts[0]).await, stored(&fixture, contacts[9]).await),
        (None, None)
    );
    assert_eq!(fixture.number("SELECT count(*) FROM contact_rfm").await, 8);
    assert!(store(&fixture).totals(account).await.unwrap().calculated_at > before.calculated_at);
    // With too few orders no contact has scores.
    fixture.sql("UPDATE order_rollups SET paid = 19").await;
    calculate(&fixture, account).await;
    assert_eq!(fixture.number("SELECT count(*) FROM contact_rfm").await, 0);
    let totals = store(&fixture).totals(account).await.unwrap();
    assert_eq!((totals.sizes, totals.calculated_at), (vec![], None));
}

/// The sizes of the segments are those of the stored scores.
async fn assert_sizes(fixture: &DbFixture) {
    let wrong = "SELECT count(*) FROM (
        (TABLE rfm_counts EXCEPT ALL SELECT account_id, segment, count(*) FROM contact_rfm GROUP BY 1, 2)
        UNION ALL
        (SELECT account_id, segment, count(*) FROM contact_rfm GROUP BY 1, 2 EXCEPT ALL TABLE rfm_counts)) AS wrong";
    assert_eq!(fixture.number(wrong).await, 0);
}

#[tokio::test]
async fn rfm_calculation_writes_only_scores_that_differ() {
    let fixture = DbFixture::new().await;
    let (account, contacts) = shop(&fixture, 10).await;
    calculate(&fixture, account).await;
    assert_sizes(&fixture).await;
    let versions = "SELECT string_agg(contact_id || ' ' || xmin, ',' ORDER BY contact_id) FROM contact_rfm";
    let first = fixture.text(versions).await.unwrap();
    calculate(&fixture, account).await;
    assert_eq!(fixture.text(versions).await.unwrap(), first);
    // The lowest spender becomes the highest: its own score changes, and those of few others.
    fixture
        .sql(&format!(
            "UPDATE orders SET total = total + 100 WHERE contact_id = '{}'",
            contacts[0]
        ))
        .await;
    calculate(&fixture, account).await;
    let second = fixture.text(versions).await.unwrap();
    let kept = first.split(',').filter(|row| second.contains(row)).count();
    assert!((1..10).contains(&kept), "{kept}");
    assert_sizes(&fixture).await;
    assert_eq!(fixture.number("SELECT count(*) FROM rfm_changes").await, 0);
}

#[tokio::test]
async fn rfm_scores_of_many_customers_are_written_in_batches() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name) SELECT '{account}', md5('c' || n)::uuid, 'c'
               FROM generate_series(1, 4500) n;
             INSERT INTO orders (account_id, id, platform, external_id, contact_id, status, total, placed_at, paid_at)
             SELECT '{account}', overlay(gen_random_uuid()::text PLACING left(first_id(now())::text, 13) FROM 1)::uuid, 'p', n::text, md5('c' || n)::uuid, 'paid', n, now(),
               now() - n * interval '1 h' FROM generate_series(1, 4500) n;
             INSERT INTO order_rollups (account_id, bucket_minutes, bucket_start, platform, paid)
             VALUES ('{account}', 1440, '2020-01-01', 'p', 4500);
             CREATE TABLE commits (transaction xid8);
             GRANT INSERT ON commits TO PUBLIC;
             CREATE FUNCTION record_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               INSERT INTO public.commits VALUES (pg_current_xact_id());
               RETURN NULL;
             END $$;
             CREATE TRIGGER record_commit AFTER INSERT OR UPDATE ON contact_rfm
               FOR EACH ROW EXECUTE FUNCTION record_commit()"
        ))
        .await;
    calculate(&fixture, account).await;
    assert_eq!(fixture.number("SELECT count(*) FROM contact_rfm").await, 4500);
    assert_eq!(
        fixture.number("SELECT count(DISTINCT transaction) FROM commits").await,
        3
    );
    assert_sizes(&fixture).await;
    assert_eq!(fixture.number("SELECT count(*) FROM rfm_changes").await, 0);
}

#[tokio::test]
async fn one_rfm_calculation_runs_per_account() {
    let fixture = DbFixture::new().await;
    let (account, _) = shop(&fixture, 10).await;
    let store = store(&fixture);
    assert_eq!(store.claim(id(), RFM_LEASE).await.unwrap(), None);
    let all = futures_util::future::join_all((0..6).map(|_| store.request(account))).await;
    assert!(all.iter().all(Result::is_ok));
    let workers = [id(), id(), id()];
    let claims = futures_util::future::join_all(workers.map(|worker| store.claim(worker, RFM_LEASE))).await;
    let claimed: Vec<bool> = claims.into_iter().map(|claim| claim.unwrap().is_some()).collect();
    assert_eq!(claimed.iter().filter(|claimed| **claimed).count(), 1);
    let worker = workers[claimed.iter().position(|claimed| *claimed).unwrap()];
    let claim = RfmClaim {
        account_id: account,
        worker,
    };
    // While the calculation runs, another request changes nothing.
    let row = "SELECT r::text FROM rfm_calculations r";
    let before = fixture.text(row).await;
    store.request(account).await.unwrap();
    assert_eq!(fixture.text(row).await, before);
    assert_eq!(store.claim(id(), RFM_LEASE).await.unwrap(), None);
    assert!(store.renew(&claim, RFM_LEASE).await.unwrap().is_held());
    assert!(
        store
            .calculate(&claim, &grid(), ENOUGH_ORDERS, NEXT_DUE)
            .await
            .unwrap()
            .is_held()
    );
    assert_eq!(
        store.claim(id(), RFM_LEASE).await.unwrap(),
        None,
        "no calculation is due before the next schedule"
    );
    assert!(!store.renew(&claim, RFM_LEASE).await.unwrap().is_held());
    // A new request makes a calculation due at once.
    store.request(account).await.unwrap();
    assert_eq!(store.claim(id(), RFM_LEASE).await.unwrap(), Some(account));
}

#[tokio::test]
async fn rfm_lease_of_a_dead_worker_is_taken_over() {
    let fixture = DbFixture::new().await;
    let (account, _) = shop(&fixture, 10).await;
    let store = store(&fixture);
    store.request(account).await.unwrap();
    let (dead, living) = (id(), id());
    assert_eq!(store.claim(dead, Duration::ZERO).await.unwrap(), Some(account));
    assert_eq!(store.claim(living, RFM_LEASE).await.unwrap(), Some(account));
    let dead = RfmClaim {
        account_id: account,
        worker: dead,
    };
    assert!(
        !store
            .calculate(&dead, &grid(), ENOUGH_ORDERS, NEXT_DUE)
            .await
            .unwrap()
            .is_held()
    );
    assert_eq!(fixture.number("SELECT count(*) FROM contact_rfm").await, 0);
    store.postpone(&dead, NEXT_DUE).await.unwrap();
    let living = RfmClaim {
        account_id: account,
        worker: living,
    };
    assert!(
        store
            .calculate(&living, &grid(), ENOUGH_ORDERS, NEXT_DUE)
            .await
            .unwrap()
            .is_held()
    );
    assert_eq!(fixture.number("SELECT count(*) FROM contact_rfm").await, 10);
    assert_eq!(
        fixture.number("SELECT count(*) FROM rfm_changes").await,
        0,
        "what the dead worker staged is removed"
    );
}

#[tokio::test]
async fn unplanned_accounts_get_one_rfm_schedule() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    let store = store(&fixture);
    let mut unplanned = store.unplanned(10).await.unwrap();
    unplanned.sort();
    let mut expected = vec![fixture.account, other_account];
    expected.sort();
    assert_eq!(unplanned, expected);
    assert_eq!(store.unplanned(1).await.unwrap().len(), 1);
    store.request(other_account).await.unwrap();
    assert_eq!(store.unplanned(10).await.unwrap(), [fixture.account]);
    let missing = AccountId(id());
    let due = [
        (fixture.account, NEXT_DUE),
        (other_account, NEXT_DUE),
        (missing, NEXT_DUE),
    ];
    store.plan(&due).await.unwrap();
    assert_eq!(store.unplanned(10).await.unwrap(), []);
    // The account that already is due stays due.
    assert_eq!(store.claim(id(), RFM_LEASE).await.unwrap(), Some(other_account));
    assert_eq!(store.claim(id(), RFM_LEASE).await.unwrap(), None);
}
