//! Every `.sql` file has a plan test, or a reason to have none.

use std::collections::BTreeSet;
use std::path::Path;

enum Plan {
    /// The test in `plan_stability/mod.rs` that runs the statement. Only its existence is checked.
    Tested(&'static str),
    /// Why no test bounds the rows that the statement reads.
    Untested(&'static str),
}

use Plan::{Tested, Untested};

const RECOUNT: &str = "maintenance: recounts all rows of one account";
const CATALOG: &str = "reads the system catalog";
const ADMINISTRATION: &str = "a report of the platform's administrators, over all accounts";
const ERASURE: &str = "a page or the rows of one contact, for a worker";
const REPORTS: Plan = Tested("reports_of_a_month_read_few_rows");
const RUNS: Plan = Tested("claims_and_ends_of_runs_read_few_rows");
const DIRECT: Plan = Tested("direct_messages_use_index_lookups");
const RETRIES: Plan = Tested("retries_and_pages_of_sends_read_few_rows");

/// Every `.sql` file under `src`, and its plan test.
const STATEMENTS: &[(&str, Plan)] = &[
    ("administration/churn.sql", Untested(ADMINISTRATION)),
    ("administration/page.sql", Untested(ADMINISTRATION)),
    ("administration/purge_tables.sql", Untested(CATALOG)),
    ("analytics/automations.sql", REPORTS),
    ("analytics/campaign_totals.sql", REPORTS),
    (
        "analytics/dashboard.sql",
        Untested("adds up every daily rollup of the account"),
    ),
    ("analytics/ecommerce.sql", REPORTS),
    ("analytics/export_messages.sql", REPORTS),
    ("analytics/revenue.sql", REPORTS),
    (
        "analytics/rfm_changes.sql",
        Untested("ranks all customers of one account, once a day"),
    ),
    (
        "callbacks/new_recipients.sql",
        Untested("the messages of a batch of status updates, by key"),
    ),
    ("campaigns/claim_due.sql", RUNS),
    ("campaigns/classify_failed_sends.sql", RETRIES),
    ("campaigns/due_addresses.sql", Tested("costs_read_few_rows")),
    ("campaigns/due_sends.sql", Tested("send_starts_use_index_lookups")),
    (
        "campaigns/fold_counters.sql",
        Untested("maintenance: adds up the counter slots of one campaign"),
    ),
    (
        "campaigns/freeze.sql",
        Tested("run_starts_of_few_contacts_read_few_rows"),
    ),
    ("campaigns/list_sends.sql", RETRIES),
    ("campaigns/lock_sends.sql", Tested("run_results_use_index_lookups")),
    (
        "campaigns/record_and_start.sql",
        Tested("send_starts_use_index_lookups"),
    ),
    (
        "campaigns/remaining_recipients.sql",
        Untested("counts the remaining recipients of one campaign with a budget, at a command"),
    ),
    ("campaigns/remaining.sql", RUNS),
    ("campaigns/untried.sql", RUNS),
    ("campaigns/renew_lease.sql", RUNS),
    ("campaigns/reset_retry_batch.sql", RETRIES),
    ("campaigns/search_untried.sql", RETRIES),
    ("campaigns/send_counts.sql", RETRIES),
    (
        "campaigns/count_audience.sql",
        Tested("audiences_of_few_contacts_read_few_rows"),
    ),
    ("contacts/upsert.sql", Tested("contact_imports_use_index_lookups")),
    (
        "contacts/with_tags.sql",
        Tested("contact_and_conversation_pages_read_few_rows"),
    ),
    (
        "conversations/lock_messages.sql",
        Tested("status_updates_use_index_lookups"),
    ),
    (
        "conversations/write_messages.sql",
        Tested("inbound_messages_use_index_lookups"),
    ),
    ("costs/add_costs.sql", Untested("inserts rows by their values")),
    ("costs/rates.sql", Tested("costs_read_few_rows")),
    (
        "direct_messages/held_by_old_settings.sql",
        Tested("held_messages_are_found_by_those_that_are_held"),
    ),
    ("direct_messages/insert.sql", Untested("inserts rows by their values")),
    ("direct_messages/lock.sql", DIRECT),
    ("direct_messages/release.sql", DIRECT),
    ("direct_messages/take.sql", DIRECT),
    ("direct_messages/write.sql", DIRECT),
    ("erasures/campaign_sends.sql", Untested(ERASURE)),
    ("erasures/in_progress.sql", Untested(ERASURE)),
    ("erasures/media.sql", Untested(ERASURE)),
    ("erasures/messages.sql", Untested(ERASURE)),
    ("erasures/search_audit_logs.sql", Untested(ERASURE)),
    ("erasures/search_outbox.sql", Untested(ERASURE)),
    ("erasures/search_webhook_events.sql", Untested(ERASURE)),
    ("holds/marketing_starts.sql", Tested("send_starts_use_index_lookups")),
    ("idempotency/claim.sql", Tested("idempotency_keys_use_index_lookups")),
    ("ingestion/add_orders.sql", Tested("ingestion_uses_index_lookups")),
    ("links/add_clicks.sql", Untested("a worker's batch of clicks, by key")),
    ("outbox/fan_out.sql", Tested("relayed_events_use_index_lookups")),
    ("outbox/write_audits.sql", Tested("relayed_events_use_index_lookups")),
    ("queues/depths.sql", Tested("queue_depths_read_waiting_rows_only")),
    ("rollups/recompute_costs.sql", Untested(RECOUNT)),
    ("rollups/recompute_sends.sql", Untested(RECOUNT)),
    ("rollups/recompute_usage.sql", Untested(RECOUNT)),
    (
        "segments/claim_counts.sql",
        Untested("reads the stored counts of large accounts, a few rows each"),
    ),
    (
        "segments/refresh_counts.sql",
        Tested("segment_pages_read_contacts_once_or_never"),
    ),
    (
        "segments/segments.sql",
        Tested("segment_pages_read_contacts_once_or_never"),
    ),
    ("snapshots/oldest.sql", Untested(CATALOG)),
    ("statistics/most_stale_table.sql", Untested(CATALOG)),
    (
        "templates/update_synced.sql",
        Untested("synchronizes all templates of one account, in batches"),
    ),
    ("tenant_role/problem.sql", Untested(CATALOG)),
    ("webhooks/claim_deliveries.sql", Tested("delivery_claims_read_few_rows")),
    ("webhooks/feed_page.sql", Tested("feed_and_log_pages_read_few_rows")),
    (
        "webhooks/finish_deliveries.sql",
        Tested("delivery_claims_read_few_rows"),
    ),
];

fn add_files(folder: &Path, root: &Path, files: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_files(&path, root, files);
        } else if path.extension().is_some_and(|extension| extension == "sql") {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            files.insert(name.to_owned());
        }
    }
}

#[test]
fn every_statement_file_has_a_plan_test_or_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = BTreeSet::new();
    add_files(&root, &root, &mut files);
    let listed: BTreeSet<String> = STATEMENTS.iter().map(|(file, _)| (*file).to_owned()).collect();
    assert_eq!(files, listed);
    assert_eq!(listed.len(), STATEMENTS.len(), "a file is listed twice");
    let tests: BTreeSet<&str> = include_str!("mod.rs")
        .lines()
        .map(|line| line.trim().trim_end_matches(';'))
        .collect();
    for (file, plan) in STATEMENTS {
        match plan {
            Tested(test) => assert!(tests.contains(test), "{file}: there is no test {test}"),
            Untested(reason) => assert!(!reason.is_empty(), "{file}: no reason"),
        }
    }
}
