//! `docs/data-model.md`: entity-relationship diagrams in Mermaid, generated from the catalogue of a migrated database.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use postgres::Client;

const PAGE: &str = "docs/data-model.md";

const INTRODUCTION: &str = "\
# Data model

This page shows every table of the database and how the tables refer to each other. `cargo xtask schema` generates
it from the catalogue; the gate fails when it differs from the migrations.

- A table with `account_id` belongs to one account: row-level security binds it to the account of the transaction, and
  its foreign keys include `account_id`, so that a row never refers to another account's row. References to `accounts`
  are not drawn.
- `PK` marks the columns of the primary key, `FK` the columns of a foreign key other than `account_id`.
- `||--o{` reads one to many, `|o--o{` optional one to many, `||--o|` and `|o--o|` one to at most one.
- Columns whose names end in `_at` are times in UTC. `*_rollups`, `*_counts`, `campaign_counter_slots` and
  `message_usage_slots` hold sums that `recado rollups verify` compares with their source rows.
";

/// The sections of the page: a title, what its tables hold, and the tables, separated by spaces.
const SECTIONS: &[(&str, &str, &str)] = &[
    (
        "Accounts and access",
        "Accounts, their members, invites and API keys, and the audit logs of accounts and of the platform. Sessions are tokens of the identity provider and have no table.",
        "accounts account_settings retention_settings retention_horizons account_users account_slugs users team_invites invite_tokens api_keys api_key_hashes \
         audit_logs audit_counts platform_audit notifications account_deletions",
    ),
    (
        "Contacts and segments",
        "The address book: contacts with consent, tags, saved filters and members of segments, RFM scores.",
        "contacts contact_identities contact_exports erasures erased_opt_outs contact_tags tags contact_counts segments segment_members segment_counts contact_rfm \
         rfm_changes rfm_calculations rfm_counts",
    ),
    (
        "WhatsApp numbers, templates and media",
        "Connected phone numbers, message templates with their review by Meta, uploaded files and stored callbacks.",
        "whatsapp_profiles whatsapp_numbers whatsapp_files whatsapp_media_failures whatsapp_callbacks \
         whatsapp_held_messages phone_number_send_slots message_templates folders brand_contexts",
    ),
    (
        "Campaigns",
        "Definitions, the queue of runs, one row for each message of a run, and the counters of a campaign.",
        "campaigns campaign_queue campaign_claims campaign_run_contents campaign_recipient_batches \
         campaign_retry_batches campaign_sends campaign_send_times campaign_retries \
         campaign_counter_slots campaign_budgets campaign_archives message_usage_slots sent_messages",
    ),
    (
        "Conversations",
        "Messages from and to contacts outside campaigns.",
        "conversations conversation_counts messages message_media message_rollups",
    ),
    (
        "Direct messages",
        "Messages to one person by one call, and the queues of their numbers.",
        "direct_messages direct_message_queues direct_message_references",
    ),
    (
        "Billing",
        "Subscriptions, their history, and the events and subscriptions of the payment gateway.",
        "subscriptions billing_history gateway_subscriptions gateway_events applied_gateway_events \
         gateway_cancellations",
    ),
    (
        "Webhooks and the outbox",
        "The transactional outbox, endpoints of customers, the event feed, deliveries and their log.",
        "outbox_events outgoing_mail mail_recipients webhook_endpoints webhook_endpoint_ids \
         webhook_events webhook_deliveries webhook_logs webhook_inbox idempotency_keys \
         idempotency_key_counts partition_horizons",
    ),
    (
        "Costs",
        "The rate cards of the platform, and what the messages of accounts cost.",
        "rate_cards rate_card_rows cost_rollups service_message_months cost_months given_cost_alerts",
    ),
    (
        "Ingestion and analytics",
        "Orders, carts, metrics, automations, links and spend that customers report, and the rollups of reports.",
        "orders order_keys order_items order_rollups product_names product_rollups attribution_rollups \
         carts cart_rollups ad_spend automations automation_executions automation_rollups links \
         link_codes link_rollups link_click_writers metrics metric_sources metric_contacts metric_events \
         metric_event_keys metric_rollups",
    ),
];

const COLUMNS: &str = "
SELECT c.relname::text, a.attname::text, replace(replace(t.typname, '_', ''), 'bpchar', 'char')
         || CASE WHEN t.typcategory = 'A' THEN '[]' ELSE '' END,
       EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'p' AND a.attnum = ANY (k.conkey)),
       a.attname <> 'account_id' AND EXISTS (
         SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'f' AND a.attnum = ANY (k.conkey))
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  JOIN pg_type t ON t.oid = a.atttypid
 WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relnamespace = 'public'::regnamespace
   AND c.relname <> '__diesel_schema_migrations'
 ORDER BY c.relname, a.attnum";

/// Foreign keys but those that consist of `account_id` alone: child, parent, columns, whether the columns may be null,
/// whether they are unique.
const REFERENCES: &str = "
SELECT c.relname::text, p.relname::text,
       (SELECT string_agg(a.attname, ', ' ORDER BY u.n) FROM unnest(k.conkey) WITH ORDINALITY AS u (attnum, n)
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = u.attnum AND a.attname <> 'account_id'),
       EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (k.conkey) AND NOT a.attnotnull),
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indpred IS NULL
         AND i.indkey::int2[] <@ k.conkey)
  FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_class p ON p.oid = k.confrelid
 WHERE k.contype = 'f' AND NOT c.relispartition AND NOT p.relispartition AND c.relnamespace = 'public'::regnamespace
   AND EXISTS (SELECT FROM pg_attribute a
     WHERE a.attrelid = c.oid AND a.attnum = ANY (k.conkey) AND a.attname <> 'account_id')
 ORDER BY 1, 3, 2";

struct Column {
    table: String,
    name: String,
    kind: String,
    in_primary_key: bool,
    in_foreign_key: bool,
}

struct Reference {
    child: String,
    parent: String,
    columns: String,
    optional: bool,
    unique: bool,
}

/// The page for the database behind `client`.
pub(super) fn render(client: &mut Client) -> Result<String> {
    let (columns, references) = (columns(client)?, references(client)?);
    let mut listed = SECTIONS.iter().flat_map(|(.., tables)| tables.split_whitespace());
    if let Some(column) = columns
        .iter()
        .find(|column| !listed.clone().any(|table| table == column.table))
    {
        bail!(
            "no section of {PAGE} has the table {}: add it to SECTIONS",
            column.table
        );
    }
    if let Some(table) = listed.find(|table| !columns.iter().any(|column| column.table == *table)) {
        bail!("there is no table {table}: remove it from SECTIONS");
    }
    let mut page = INTRODUCTION.to_owned();
    for (title, description, tables) in SECTIONS {
        let diagram = diagram(&tables.split_whitespace().collect::<Vec<_>>(), &columns, &references);
        let _ = write!(
            page,
            "\n## {title}\n\n{description}\n\n```mermaid\nerDiagram\n{diagram}```\n"
        );
    }
    Ok(page)
}

/// The tables of one section with all columns, and the references that begin in it.
fn diagram(tables: &[&str], columns: &[Column], references: &[Reference]) -> String {
    let mut text = String::new();
    for table in tables {
        let _ = writeln!(text, "  {table} {{");
        for column in columns.iter().filter(|column| column.table == *table) {
            let keys = match (column.in_primary_key, column.in_foreign_key) {
                (true, true) => " PK, FK",
                (true, false) => " PK",
                (false, true) => " FK",
                (false, false) => "",
            };
            let _ = writeln!(text, "    {} {}{keys}", column.kind, column.name);
        }
        text.push_str("  }\n");
    }
    for reference in references
        .iter()
        .filter(|reference| tables.contains(&reference.child.as_str()))
    {
        let Reference {
            child, parent, columns, ..
        } = reference;
        let parents = if reference.optional { "|o" } else { "||" };
        let children = if reference.unique { "o|" } else { "o{" };
        let _ = writeln!(text, "  {parent} {parents}--{children} {child} : \"{columns}\"");
    }
    text
}

fn columns(client: &mut Client) -> Result<Vec<Column>> {
    let rows = client.query(COLUMNS, &[]).context("cannot read the columns")?;
    let column = |row: &postgres::Row| {
        Ok(Column {
            table: row.try_get(0)?,
            name: row.try_get(1)?,
            kind: row.try_get(2)?,
            in_primary_key: row.try_get(3)?,
            in_foreign_key: row.try_get(4)?,
        })
    };
    rows.iter().map(column).collect()
}

fn references(client: &mut Client) -> Result<Vec<Reference>> {
    let rows = client.query(REFERENCES, &[]).context("cannot read the foreign keys")?;
    let reference = |row: &postgres::Row| {
        Ok(Reference {
            child: row.try_get(0)?,
            parent: row.try_get(1)?,
            columns: row.try_get(2)?,
            optional: row.try_get(3)?,
            unique: row.try_get(4)?,
        })
    };
    rows.iter().map(reference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagram_draws_columns_keys_and_cardinality() {
        let column = |table: &str, name: &str, in_primary_key, in_foreign_key| Column {
            table: table.to_owned(),
            name: name.to_owned(),
            kind: "uuid".to_owned(),
            in_primary_key,
            in_foreign_key,
        };
        let columns = [
            column("sends", "id", true, false),
            column("sends", "campaign_id", false, true),
            column("tags", "id", true, false),
        ];
        let reference = |optional, unique| Reference {
            child: "sends".to_owned(),
            parent: "campaigns".to_owned(),
            columns: "campaign_id".to_owned(),
            optional,
            unique,
        };
        let table = "  sends {\n    uuid id PK\n    uuid campaign_id FK\n  }\n";
        for (optional, unique, line) in [
            (false, false, "||--o{"),
            (true, false, "|o--o{"),
            (false, true, "||--o|"),
        ] {
            let expected = format!("{table}  campaigns {line} sends : \"campaign_id\"\n");
            assert_eq!(diagram(&["sends"], &columns, &[reference(optional, unique)]), expected);
        }
        assert_eq!(
            diagram(&["tags"], &columns, &[reference(true, true)]),
            "  tags {\n    uuid id PK\n  }\n"
        );
    }
}
