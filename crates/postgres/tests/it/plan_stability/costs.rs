//! Costs of an account that the planner's statistics do not contain: rates, budgets and reports.

use recado_domain::analytics::{CostGroupBy, CostStore as _, Period, Window, Zone};
use recado_domain::callbacks::{StatusUpdate, StatusUpdateStore as _};
use recado_domain::campaigns::{CampaignStore as _, QueuedRun, RunStartStore as _, SendStore as _};
use recado_domain::messaging::SendStatus;
use recado_domain::shared::SendId;
use recado_postgres::PgCosts;
use time::OffsetDateTime;
use uuid::Uuid;

use super::fixture::{PART, ROWS};
use crate::costs::pricing;
use crate::status_updates::status_update;
use crate::support::{DbFixture, id};

/// Cards with rows of this many countries. Those of one country are few.
const CARDS: usize = 30;
const COUNTRIES: usize = 200;

/// SQL that inserts one sum of costs for every campaign of the accounts.
fn rollups(accounts: &str) -> String {
    format!(
        "INSERT INTO cost_rollups (account_id, bucket_start, campaign_id, profile_id, template_id, category, market,
             currency, amount, messages, billable)
           SELECT account_id, date_trunc('day', now()) - (row_number() OVER (PARTITION BY account_id ORDER BY id)) * interval '1 day',
             id, id, id, 'marketing', 'BR', 'USD', 1, 1, 1 FROM campaigns WHERE {accounts};"
    )
}

/// Many cards, sums of costs, and a run with a budget. Returns its worker.
async fn run_with_costs(fixture: &DbFixture) -> (QueuedRun, Uuid) {
    let (account, worker) = (fixture.account, id());
    let template = fixture.stored_template().await;
    fixture
        .sql(&format!(
            "SET session_replication_role = replica;
             INSERT INTO rate_cards (id, name, row_count, currencies, effective_from, used_at, created_at)
               SELECT md5('card' || n)::uuid, 'card', {COUNTRIES}, '{{USD}}', '2020-01-01', now(), now() - n * interval '1 day'
               FROM generate_series(1, {CARDS}) n;
             INSERT INTO rate_card_rows (card_id, row_no, market, countries, currency, category, rate, effective_from, zone,
                 effective_at)
               SELECT md5('card' || n)::uuid, c, 'm' || c, ARRAY[CASE c WHEN 1 THEN 'BR' ELSE 'c' || c END], 'USD',
                 'marketing', 0.01, '2020-01-01', 'UTC', '2020-01-01'
               FROM generate_series(1, {CARDS}) n, generate_series(1, {COUNTRIES}) c;
             {others} ANALYZE; {own}
             UPDATE campaigns SET template_id = '{template}', budget = '{{\"amount\": 1000, \"currency\": \"USD\"}}'
               WHERE account_id = '{account}' AND id = key('{account}', 1);
             UPDATE campaign_sends SET started_at = NULL WHERE account_id = '{account}';
             INSERT INTO campaign_queue (account_id, campaign_id, trigger, worker, leased_until)
               VALUES ('{account}', key('{account}', 1), 'execute', '{worker}', now() + interval '1 minute');
             SET session_replication_role = origin",
            others = rollups(&format!("account_id <> '{account}'")),
            own = rollups(&format!("account_id = '{account}'")),
        ))
        .await;
    let run = QueuedRun {
        account_id: account,
        campaign_id: fixture.key(1).await.into(),
    };
    (run, worker)
}

pub(super) async fn costs_read_few_rows(mut fixture: DbFixture) {
    let (run, worker) = run_with_costs(&fixture).await;
    let account = fixture.account;
    let sends: Vec<SendId> = fixture.keys().await.into_iter().map(SendId).collect();
    fixture.count_reads().await;
    let started = fixture.runs().record_and_start(run, worker, &[], &sends).await.unwrap();
    assert_eq!((started.sends.len(), started.is_over_budget), (PART, false));
    fixture.assert_looked_up("starts within a budget").await;

    fixture.count_reads().await;
    let updates: Vec<_> = sends
        .iter()
        .map(|send| StatusUpdate {
            pricing: Some(pricing("marketing", OffsetDateTime::now_utc())),
            ..status_update(Some(*send), &send.to_string(), SendStatus::Delivered)
        })
        .collect();
    let unknown = fixture.status_updates().apply(account, &updates).await.unwrap();
    assert_eq!(unknown, [0_usize; 0]);
    fixture.assert_looked_up("prices of sends").await;

    fixture.count_reads().await;
    for _ in 0..PART {
        let campaign = fixture
            .campaigns()
            .find(account, run.campaign_id)
            .await
            .unwrap()
            .unwrap();
        assert!(campaign.cost.amount.is_some());
    }
    fixture.assert_looked_up("the cost of a campaign").await;

    // Every send of the campaign is read, and no other.
    fixture.count_reads().await;
    let remaining = fixture.runs().remaining_costs(account, run.campaign_id).await.unwrap();
    assert_eq!(
        remaining.unwrap().costs.recipients[0].recipients,
        i64::try_from(ROWS - PART).unwrap()
    );
    fixture
        .assert_few_of(5 * ROWS, "the remaining recipients of a run")
        .await;
}

pub(super) async fn cost_reports_read_few_rows(mut fixture: DbFixture) {
    run_with_costs(&fixture).await;
    let window = Window::new(Period::Month, &Zone::UTC, OffsetDateTime::now_utc()).unwrap();
    let campaign = fixture.key(2).await.into();
    for &group_by in CostGroupBy::ALL {
        for only in [None, Some(campaign)] {
            fixture.count_reads().await;
            // Read repeatedly, so that enough rows are read to be counted.
            for _ in 0..if only.is_some() { PART } else { 2 } {
                let store = PgCosts::new(fixture.tenants.clone());
                let report = store.report(fixture.account, &window, group_by, only).await.unwrap();
                assert!(!report.groups.is_empty(), "{group_by}");
            }
            fixture
                .assert_looked_up(&format!("costs by {group_by}, one campaign: {}", only.is_some()))
                .await;
        }
    }
}
