//! The count of a segment with three conditions in an account with a million contacts and ten million sends, and the
//! addition of one member to such a segment.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use recado_testkit::http::{Client, JsonResponse};
use recado_testkit::services::postgres::connect;
use recado_testkit::signals;
use serde_json::{Value, json};

use super::Options;
use super::data::accounts;
use super::fixture::Fixture;
use super::results::BenchResult;
use super::sending::create_contacts;
use super::times::Latencies;

const CONTACTS: u32 = 1_000_000;
const CAMPAIGNS: u32 = 10;
const WARM_UP: usize = 2;
const MEASURED: usize = 20;

/// The targets in milliseconds.
const COUNT: f64 = 1000.0;
const ADDITION: f64 = 200.0;

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    let account = accounts().into_iter().nth(14).unwrap_or_default();
    println!("{CONTACTS} contacts, {CAMPAIGNS} campaigns to all of them");
    create_contacts(fixture, &account, CONTACTS)?;
    let campaigns = create_history(fixture, &account)?;
    let [first, second, ..] = campaigns.as_slice() else {
        bail!("there are no campaigns");
    };
    let server = fixture.launch(&fixture.uncounted()?)?;
    let client = Client::new(&server.base, fixture.headers(&account)?);
    let city = json!({ "attribute": { "key": "city", "op": "eq", "value": "Santos" } });
    let of_campaigns = json!({ "all": [
        { "campaign": { "id": first, "was": "read" } },
        { "campaign": { "id": second, "was": "not_read" } },
        city,
    ] });
    let of_any_campaign = json!({ "all": [
        { "campaign": { "was": "read", "within_days": 30 } },
        { "not": { "campaign": { "id": first, "was": "read" } } },
        city,
    ] });
    let named = counts(&client, &of_campaigns)?;
    let any = counts(&client, &of_any_campaign)?;
    let added = additions(fixture, &client, &account, &of_campaigns)?;
    println!("p50: {:.0}, {:.0} and {:.0} ms", named.p50(), any.p50(), added.p50());
    let result = |name: &str, latencies: &Latencies, target| {
        BenchResult::less(format!("segments: {name}"), latencies.p95(), " ms", 0).target(target)
    };
    Ok(vec![
        result("p95 of a count over two campaigns and an attribute", &named, COUNT),
        result(
            "p95 of a count over any campaign, one campaign and an attribute",
            &any,
            COUNT,
        ),
        result("p95 of adding one member", &added, ADDITION),
    ])
}

/// Inserts campaigns to all contacts, and gives the contacts attributes. Returns the ids of the campaigns.
fn create_history(fixture: &Fixture, account: &str) -> Result<Vec<String>> {
    let mut client = connect(&fixture.database())?;
    let attributes = format!(
        "UPDATE contacts SET attributes = jsonb_build_object('city', (ARRAY['Santos', 'Recife', 'Natal', 'Belém'])
           [1 + (hashtext(id::text) & 3)]) WHERE account_id = '{account}' AND deleted_at IS NULL"
    );
    client.batch_execute(&attributes).context("cannot set attributes")?;
    // The server counts the contacts that it writes itself. Without this number the account would be a small one.
    let counted = format!(
        "INSERT INTO contact_counts (account_id, day, contacts) VALUES ('{account}', current_date, {CONTACTS})
         ON CONFLICT (account_id, day) DO UPDATE SET contacts = excluded.contacts"
    );
    client
        .batch_execute(&counted)
        .context("cannot store the number of contacts")?;
    let mut campaigns = Vec::new();
    for number in 0..CAMPAIGNS {
        let row = client.query_one(
            "INSERT INTO campaigns (account_id, id, name, template_id, status, executed_at, completed_at, frozen_at)
             VALUES ($1::text::uuid, gen_random_uuid(), 'Bench', $1::text::uuid, 'completed', now(), now(),
               date_trunc('milliseconds', now()))
             RETURNING id::text",
            &[&account],
        );
        let campaign: String = row.and_then(|row| row.try_get(0)).context("cannot create a campaign")?;
        // Of four messages one failed, one was sent, one was delivered and one was read.
        let sends = format!(
            "INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id, status, attempts, started_at, sent_at,
               delivered_at, read_at, failed_at)
             SELECT account_id, send_id(frozen_at, '{campaign}', contact_id), '{campaign}', contact_id,
               (ARRAY['failed', 'sent', 'delivered', 'read'])[outcome + 1], 1, now(),
               CASE WHEN outcome > 0 THEN now() END, CASE WHEN outcome > 1 THEN now() END,
               CASE WHEN outcome > 2 THEN now() END, CASE WHEN outcome = 0 THEN now() END
             FROM (SELECT c.account_id, c.id AS contact_id, p.frozen_at, (hashtext(c.id::text) & 1023) / ({number} + 1) % 4
                 AS outcome
               FROM contacts c, campaigns p
               WHERE c.account_id = '{account}' AND c.deleted_at IS NULL AND p.id = '{campaign}' ORDER BY c.id) s"
        );
        client.batch_execute(&sends).context("cannot create sends")?;
        campaigns.push(campaign);
        if signals::received() {
            bail!("interrupted");
        }
    }
    // One statement a call: VACUUM runs outside of a transaction.
    for statement in ["VACUUM ANALYZE contacts", "VACUUM ANALYZE campaign_sends"] {
        client.batch_execute(statement).context("cannot analyze the tables")?;
    }
    Ok(campaigns)
}

fn counts(client: &Client, filters: &Value) -> Result<Latencies> {
    let body = json!({ "filters": filters });
    measure(|| client.post("/api/segments/preview", &body), 200)
}

/// Adds contacts to a segment, one by one.
fn additions(fixture: &Fixture, client: &Client, account: &str, filters: &Value) -> Result<Latencies> {
    let segment = client.post("/api/segments", &json!({ "name": "Bench", "filters": filters }))?;
    let id = segment
        .body
        .pointer("/data/id")
        .and_then(Value::as_str)
        .context("the segment has no id")?
        .to_owned();
    let rows = connect(&fixture.database())?.query(
        "SELECT id::text FROM contacts WHERE account_id = $1::text::uuid AND deleted_at IS NULL LIMIT $2",
        &[&account, &i64::try_from(WARM_UP + MEASURED)?],
    )?;
    let contacts: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let mut contacts = contacts.into_iter();
    let path = format!("/api/segments/{id}/members");
    measure(|| client.post(&path, &json!({ "contact_ids": [contacts.next()] })), 200)
}

fn measure(mut request: impl FnMut() -> Result<JsonResponse>, status: u16) -> Result<Latencies> {
    let mut latencies = Latencies::new()?;
    for number in 0..WARM_UP + MEASURED {
        let began = Instant::now();
        let response = request()?;
        let elapsed = began.elapsed();
        if response.status != status {
            bail!("the response is {}: {}", response.status, response.body);
        }
        if number >= WARM_UP {
            latencies.record(elapsed);
        }
        if signals::received() {
            bail!("interrupted");
        }
    }
    Ok(latencies)
}
