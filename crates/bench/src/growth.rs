//! Bench `growth`: pages that requests read at 1, 10 and 100 times the rows of an account.
//!
//! Pages do not depend on the machine, so one measurement of each size is enough. A request that reads more pages at a
//! larger size costs the account and not the answer.

use std::process::Command;

use anyhow::{Context, Result, bail};
use recado_testkit::http::Client;
use recado_testkit::process;
use recado_testkit::services::postgres::connect;
use recado_testkit::token;
use serde_json::json;

use super::Options;
use super::data::EMAIL;
use super::fixture::Fixture;
use super::results::BenchResult;

/// Multiples of the smallest account.
const SIZES: [u32; 3] = [1, 10, 100];

/// Contacts of the smallest account. [`FILL`] derives the other tables from them. The B-trees of their keys have three levels
/// at 35,000 rows and at 3.5 million, so a look-up reads as many pages. From 3,000 to 300,000 it reads one more.
const CONTACTS: u32 = 35_000;

/// Calls before pages are counted, and the counted ones.
const WARM_UP: usize = 3;
const CALLS: usize = 5;

const ACCOUNT: &str = "0193a6e0-0000-7000-8000-00000000f001";

enum Method {
    Get,
    Post,
}

/// A request of the statements that matter, and what it shows.
const REQUESTS: [(&str, Method, &str); 13] = [
    (
        "contacts of a tag",
        Method::Get,
        "/api/contacts?tag_id=0193a6e0-0000-7000-8000-0000000000a1",
    ),
    (
        "search for a phone number",
        Method::Get,
        "/api/contacts?search=%2B5511900000042",
    ),
    ("first page of contacts", Method::Get, "/api/contacts?limit=20"),
    (
        "preview of five recipients",
        Method::Post,
        "/api/campaigns/0193a6e0-0000-7000-8000-0000000000c1/preview",
    ),
    ("segments with their counts", Method::Get, "/api/segments"),
    (
        "sends of a campaign",
        Method::Get,
        "/api/campaigns/0193a6e0-0000-7000-8000-0000000000c2/sends",
    ),
    (
        "statistics of a campaign",
        Method::Get,
        "/api/campaigns/0193a6e0-0000-7000-8000-0000000000c2/stats",
    ),
    ("conversations", Method::Get, "/api/conversations"),
    (
        "messages of a conversation",
        Method::Get,
        "/api/conversations/0193a6e0-0000-7000-8000-0000000000d1/messages",
    ),
    ("audit log", Method::Get, "/api/audit-logs"),
    ("notifications", Method::Get, "/api/notifications"),
    ("webhook log", Method::Get, "/api/webhooks/logs"),
    ("report of messages", Method::Get, "/api/analytics/messages?period=30d"),
];

/// Fills an empty database with one account. `{n}` is its number of contacts. Ids of partitioned tables begin with
/// their time.
const FILL: &str = "
    CREATE FUNCTION pg_temp.id_at(at timestamptz, kind text, n bigint) RETURNS uuid LANGUAGE sql AS $$
      SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '8' || substr(md5(kind || n), 1, 3)
        || 'a' || substr(md5(kind || n), 4, 15))::uuid
    $$;
    CREATE FUNCTION pg_temp.id_of(kind text, n bigint) RETURNS uuid LANGUAGE sql AS $$
      SELECT ('0193a6e0-' || substr(md5(kind), 1, 4) || '-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid
    $$;
    INSERT INTO users (id, email) VALUES ('{user}', '{email}');
    INSERT INTO accounts (id, name, slug, plan) VALUES ('{account}', 'Loja', 'loja', 'growth');
    INSERT INTO account_users (account_id, user_id, role) VALUES ('{account}', '{user}', 'owner');
    INSERT INTO contacts (account_id, id, name, phone, email, attributes)
      SELECT '{account}', pg_temp.id_of('contact', c), 'Contato ' || c, '+55119' || lpad(c::text, 8, '0'),
        CASE WHEN c % 10 = 0 THEN c || '@loja.example' END, '{}' FROM generate_series(1, {n}) c;
    INSERT INTO contact_counts (account_id, day, contacts) VALUES ('{account}', current_date, {n});
    INSERT INTO tags (account_id, id, name) VALUES ('{account}', '0193a6e0-0000-7000-8000-0000000000a1', 'vip');
    INSERT INTO contact_tags (account_id, contact_id, tag_id)
      SELECT '{account}', pg_temp.id_of('contact', c * {n} / 5), '0193a6e0-0000-7000-8000-0000000000a1'
      FROM generate_series(1, 5) c;
    INSERT INTO segments (account_id, id, name, filters) VALUES
      ('{account}', '0193a6e0-0000-7000-8000-0000000000b1', 'Cinco', NULL),
      ('{account}', '0193a6e0-0000-7000-8000-0000000000b2', 'Com e-mail', '{\"has_email\": true}');
    INSERT INTO segment_members (account_id, segment_id, contact_id)
      SELECT '{account}', '0193a6e0-0000-7000-8000-0000000000b1', pg_temp.id_of('contact', c * {n} / 5)
      FROM generate_series(1, 5) c;
    INSERT INTO message_templates (account_id, id, name, category, language, template_type, body_text, meta_status)
      VALUES ('{account}', '{account}', 'oferta', 'MARKETING', 'pt_BR', 'standard', 'Oi!', 'approved');
    INSERT INTO campaigns (account_id, id, name, template_id, segment_config, created_by, created_at, status,
        total_recipients, executed_at, completed_at, frozen_at) VALUES
      ('{account}', '0193a6e0-0000-7000-8000-0000000000c1', 'Cinco', '{account}',
        '{\"tag_ids\": [\"0193a6e0-0000-7000-8000-0000000000a1\"]}', '{user}', now(), 'draft', 0, NULL, NULL, NULL),
      ('{account}', '0193a6e0-0000-7000-8000-0000000000c2', 'Todos', '{account}', NULL, '{user}', now(), 'completed',
        {n}, now(), now(), date_trunc('milliseconds', now()));
    INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id, status, started_at, sent_at, created_at)
      SELECT '{account}', pg_temp.id_at(now(), 'send', c), '0193a6e0-0000-7000-8000-0000000000c2',
        pg_temp.id_of('contact', c), 'sent', now(), now() - (c / 50) * interval '1 second', now()
      FROM generate_series(1, {n}) c;
    INSERT INTO campaign_send_times (account_id, campaign_id, sent_at, first_send_id, send_ids)
      SELECT account_id, campaign_id, sent_at, (array_agg(id ORDER BY id))[1], array_agg(id ORDER BY id)
      FROM campaign_sends GROUP BY account_id, campaign_id, sent_at;
    INSERT INTO campaign_counter_slots (account_id, campaign_id, total, sent)
      VALUES ('{account}', '0193a6e0-0000-7000-8000-0000000000c2', {n}, {n});
    INSERT INTO conversations (account_id, id, contact_id, last_message_at)
      SELECT '{account}', CASE WHEN c = 1 THEN '0193a6e0-0000-7000-8000-0000000000d1' ELSE
        pg_temp.id_of('conversation', c) END, pg_temp.id_of('contact', c), now() - c * interval '1 second'
      FROM generate_series(1, {n} / 10) c;
    INSERT INTO conversation_counts (account_id, status, conversations) VALUES ('{account}', 'open', {n} / 10);
    INSERT INTO messages (account_id, id, conversation_id, direction, type, text, status, created_at)
      SELECT '{account}', pg_temp.id_at(now() - m * interval '1 second', 'message', m),
        CASE WHEN m % ({n} / 10) = 0 THEN '0193a6e0-0000-7000-8000-0000000000d1'
          ELSE pg_temp.id_of('conversation', m % ({n} / 10) + 1) END,
        'inbound', 'text', 'Oi', 'received', now() - m * interval '1 second'
      FROM generate_series(1, {n}) m WHERE m % ({n} / 10) = 0 OR m % ({n} / 10) + 1 > 1;
    INSERT INTO audit_logs (account_id, id, user_id, action, entity_type, created_at)
      SELECT '{account}', pg_temp.id_at(now() - a * interval '1 second', 'audit', a), '{user}', 'create', 'campaign',
        now() - a * interval '1 second' FROM generate_series(1, {n}) a;
    INSERT INTO audit_counts (account_id, month, entity_type, action, n)
      SELECT account_id, date_trunc('month', created_at AT TIME ZONE 'UTC')::date, entity_type, action, count(*)
      FROM audit_logs GROUP BY 1, 2, 3, 4;
    INSERT INTO notifications (account_id, id, type, title, message, created_at)
      SELECT '{account}', pg_temp.id_at(now() - a * interval '1 second', 'notification', a), 'info', 't', 'm',
        now() - a * interval '1 second' FROM generate_series(1, {n} / 10) a;
    INSERT INTO webhook_logs (account_id, id, endpoint_id, direction, event_type, message_id, event_id, response_status,
        created_at)
      SELECT '{account}', pg_temp.id_at(now() - a * interval '100 milliseconds', 'log', a), '{account}', 'outbound',
        'message.sent', a::text, pg_temp.id_of('event', a), 200, now() - a * interval '100 milliseconds'
      FROM generate_series(1, {n}) a;
    INSERT INTO message_rollups (account_id, bucket_minutes, bucket_start, received)
      SELECT '{account}', m, date_bin(m * interval '1 minute', now(), '2000-01-01 00:00Z'), {n}
      FROM unnest('{15, 180, 1440}'::smallint[]) m;
";

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    if !fixture.cluster.has_statement_statistics() {
        bail!("growth counts pages with pg_stat_statements: install PostgreSQL's contrib modules");
    }
    let mut pages = Vec::new();
    for size in SIZES {
        println!("{} contacts", CONTACTS * size);
        pages.push(measure(fixture, CONTACTS * size)?);
    }
    println!("pages a call at 1, 10 and 100 times the rows:");
    let mut worst = 0.0_f64;
    for (at, (name, ..)) in REQUESTS.iter().enumerate() {
        let of: Vec<f64> = pages.iter().filter_map(|size| size.get(at)).copied().collect();
        let (Some(first), Some(last)) = (of.first(), of.last()) else {
            bail!("a request was not measured");
        };
        let ratio = last / first;
        println!("{name}: {of:.0?}, {ratio:.2} times");
        worst = worst.max(ratio);
    }
    let name = "growth: pages a call at 100 times the rows / 1, worst of 13 requests";
    Ok(vec![BenchResult::less(name, worst, "", 2).target(1.05).count()])
}

/// Pages a call of each request at an account with so many contacts.
fn measure(fixture: &Fixture, contacts: u32) -> Result<Vec<f64>> {
    let name = format!("recado_growth_{contacts}");
    fixture.cluster.ensure_database(&name)?;
    let database = fixture.cluster.url(&name);
    let migrate = || {
        let mut migrate = Command::new(fixture.program("recado"));
        migrate.arg("migrate").env("DATABASE_URL", &database);
        process::quietly(&mut migrate, "recado migrate")
    };
    migrate()?;
    let fill = FILL
        .replace("{account}", ACCOUNT)
        .replace("{user}", &token::user_id(EMAIL))
        .replace("{email}", EMAIL)
        .replace("{n}", &contacts.to_string());
    let mut client = connect(&database)?;
    client
        .batch_execute("DROP INDEX IF EXISTS contacts_search_idx")
        .and_then(|()| client.batch_execute(&fill))
        .context("cannot fill the database")?;
    // The search index is built faster from all rows.
    migrate()?;
    client
        .batch_execute("VACUUM ANALYZE")
        .context("cannot analyze the database")?;
    let server = fixture.serve_routes(&database)?;
    let client = Client::new(&server.base, fixture.headers(ACCOUNT)?);
    let measured = REQUESTS
        .iter()
        .map(|(_, method, path)| pages_a_call(fixture, &name, &client, method, path));
    measured.collect()
}

fn pages_a_call(fixture: &Fixture, database: &str, client: &Client, method: &Method, path: &str) -> Result<f64> {
    let call = || {
        let reply = match method {
            Method::Get => client.get(path)?,
            Method::Post => client.post(path, &json!({}))?,
        };
        match reply.status {
            200 => Ok(()),
            status => bail!("{path} responded with {status}: {}", reply.body),
        }
    };
    (0..WARM_UP).try_for_each(|_| call())?;
    let mut statistics = connect(&fixture.database())?;
    let uncounted = "cannot count pages";
    statistics
        .batch_execute("SELECT pg_stat_statements_reset()")
        .context(uncounted)?;
    (0..CALLS).try_for_each(|_| call())?;
    let sum = "SELECT coalesce(sum(shared_blks_hit + shared_blks_read), 0)::float8 / $1::float8 FROM pg_stat_statements
         WHERE dbid = (SELECT oid FROM pg_database WHERE datname = $2)";
    let calls = u32::try_from(CALLS).map_or(f64::NAN, f64::from);
    let row = statistics.query_one(sum, &[&calls, &database]).context(uncounted)?;
    row.try_get(0).context(uncounted)
}
