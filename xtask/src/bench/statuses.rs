//! How fast the platform's statuses are taken in while a campaign is being sent: the platform tells three of each
//! message (sent, delivered, read), so that a server that sends a thousand a second has to take three thousand.
//!
//! One campaign is sent to the end, in silence. Then a second one is sent to the same contacts, and meanwhile the
//! statuses of the first come in, batch by batch, as fast as they are answered. What is compared happened in the same
//! seconds.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use super::Options;
use super::data::accounts;
use super::figures::Figure;
use super::stage::{Launch, Server, Stage};
use crate::error::{Context, Result, fail};
use crate::http::Client;
use crate::process::Process;
use crate::scratch::OTHER_LOG;
use crate::secrets::hex;
use crate::services::postgres::connect;
use crate::signals;

const CONTACTS: usize = 20_000;
const NUMBER: &str = "106540352242922";
const APP_SECRET: &str = "bench-app-secret";

/// Statuses in one callback, and callbacks under way at a time.
const BATCH: usize = 50;
const CALLERS: usize = 4;

/// The longest that a campaign may take.
const PATIENCE: Duration = Duration::from_secs(180);

pub(super) fn run(stage: &Stage, _: Options) -> Result<Vec<Figure>> {
    let account = accounts().into_iter().next().unwrap_or_default();
    people(stage, &account)?;
    let (platform, _simulators) = stage.simulators(&[("SIM_WHATSAPP_APP_SECRET", APP_SECRET)], OTHER_LOG)?;
    Client::new(&platform, Vec::new()).post(
        "/_sim/options",
        // Silent, and as fast as it can be: not what it plays in development.
        &json!({ "sent_ms": null, "delivered_ms": null, "read_ms": null, "number_rate": null, "pair_limit": false,
                 "latency_ms": 0, "fail_percent": 0 }),
    )?;
    let server = stage.launch(&Launch {
        command_line: &["serve"],
        more: vec![
            ("WHATSAPP_API_URL", format!("{platform}/v25.0")),
            ("WHATSAPP_APP_SECRET", APP_SECRET.to_owned()),
            ("CAMPAIGN_MESSAGE_DELAY_MS", "0".to_owned()),
        ],
        ..stage.routes()
    })?;
    let client = Client::new(&server.base, stage.headers(&account)?);
    connected(&client)?;
    println!("one campaign to {CONTACTS} contacts");
    let first = sent(&client, &account)?;
    let callbacks = statuses(stage, &account, &first)?;
    println!("another one, and {} statuses of the first", CONTACTS * 3);
    let second = campaign(&client, &account)?;
    let told = Told::default();
    let began = Instant::now();
    begin(&client, &second)?;
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| scope.spawn(|| tell(&server, &callbacks, &told)))
            .collect();
        callers.into_iter().try_for_each(|caller| match caller.join() {
            Ok(done) => done,
            Err(_) => fail("a caller panicked"),
        })
    })?;
    let took = began.elapsed().as_secs_f64();
    let dispatched = accepted(&client, &second)?;
    wait_for_end(&client, &second)?;
    Ok(figures(&told, took, dispatched))
}

fn figures(told: &Told, took: f64, dispatched: f64) -> Vec<Figure> {
    let taken = (told.callbacks.load(Ordering::Relaxed) * BATCH).to_string();
    let rate = taken.parse::<f64>().unwrap_or_default() / took;
    let mut times = told.times.lock().map(|times| times.clone()).unwrap_or_default();
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY);
    let late = times.iter().filter(|seconds| **seconds > 1.0).count().to_string();
    let share =
        late.parse::<f64>().unwrap_or_default() * 100.0 / times.len().max(1).to_string().parse::<f64>().unwrap_or(1.0);
    vec![
        Figure::more("statuses: messages sent a second meanwhile", dispatched / took, "", 0),
        Figure::more("statuses: taken in a second", rate, "", 0),
        Figure::more(
            "statuses: taken in for each that the sending causes",
            rate * took / (3.0 * dispatched),
            "",
            2,
        )
        .floor(1.0)
        .target(1.5),
        Figure::less(
            "statuses: half of the callbacks answered within",
            median * 1000.0,
            " ms",
            0,
        )
        .floor(250.0)
        .target(50.0),
        Figure::less("statuses: callbacks that took more than a second", share, " %", 1)
            .floor(1.0)
            .target(0.1),
    ]
}

/// What the callers did together.
#[derive(Default)]
struct Told {
    next: AtomicUsize,
    callbacks: AtomicUsize,
    refused: AtomicU64,
    times: std::sync::Mutex<Vec<f64>>,
}

fn tell(server: &Server, callbacks: &[String], told: &Told) -> Result<()> {
    let agent = ureq::Agent::new_with_defaults();
    while let Some(body) = callbacks.get(told.next.fetch_add(1, Ordering::Relaxed)) {
        if signals::received() {
            return fail("interrupted");
        }
        let mac = Hmac::<Sha256>::new_from_slice(APP_SECRET.as_bytes()).context(|| "no key".to_owned())?;
        let signature = hex(&mac.chain_update(body).finalize().into_bytes());
        let began = Instant::now();
        let answer = agent
            .post(format!("{}/api/whatsapp/webhook", server.base))
            .header("content-type", "application/json")
            .header("x-hub-signature-256", format!("sha256={signature}"))
            .send(body)
            .context(|| "a callback was not answered".to_owned())?;
        if answer.status().as_u16() != 200 {
            told.refused.fetch_add(1, Ordering::Relaxed);
            return fail(format!("a callback was answered with {}", answer.status()));
        }
        told.callbacks.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut times) = told.times.lock() {
            times.push(began.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

/// Contacts of the account, on a plan that lets it write to all of them twice, and a template that may be sent.
fn people(stage: &Stage, account: &str) -> Result<()> {
    let sql = format!(
        "UPDATE accounts SET plan = 'scale' WHERE id = '{account}';
         UPDATE message_templates SET meta_status = 'approved', body_text = 'Oi {{{{1}}}}, tudo bem?',
           variables = '[\"Ana\"]' WHERE account_id = '{account}';
         INSERT INTO contacts (account_id, id, name, phone)
           SELECT '{account}', gen_random_uuid(), 'Contato ' || n, '+55119' || lpad((60000000 + n)::text, 8, '0')
           FROM generate_series(1, {CONTACTS}) n;
         ANALYZE contacts"
    );
    let done = connect(&stage.database())?.batch_execute(&sql);
    done.context(|| "cannot make contacts".to_owned())
}

fn connected(client: &Client) -> Result<()> {
    let profile = json!({ "name": "Bench", "phone_number_id": NUMBER, "waba_id": "1", "access_token": "token" });
    expect(201, "/api/whatsapp/profiles", client, &profile).map(drop)
}

fn expect(status: u16, path: &str, client: &Client, body: &Value) -> Result<Value> {
    let reply = client.post(path, body)?;
    if reply.status == status {
        Ok(reply.body)
    } else {
        fail(format!("{path} answered {}: {}", reply.status, reply.body))
    }
}

fn campaign(client: &Client, account: &str) -> Result<String> {
    // The account's template has the account's id.
    let made = expect(
        201,
        "/api/campaigns",
        client,
        &json!({ "name": "Bench", "template_id": account }),
    )?;
    Ok(made
        .pointer("/data/id")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned())
}

fn begin(client: &Client, id: &str) -> Result<()> {
    expect(200, &format!("/api/campaigns/{id}/send"), client, &json!({})).map(drop)
}

fn sent(client: &Client, account: &str) -> Result<String> {
    let id = campaign(client, account)?;
    begin(client, &id)?;
    wait_for_end(client, &id)?;
    Ok(id)
}

fn wait_for_end(client: &Client, id: &str) -> Result<()> {
    let began = Instant::now();
    loop {
        let reply = client.get(&format!("/api/campaigns/{id}"))?;
        match reply.body.pointer("/data/status").and_then(Value::as_str) {
            Some("completed") => return Ok(()),
            Some("sending") if began.elapsed() < PATIENCE && !signals::received() => {}
            _ => return fail(format!("the campaign does not end well: {}", reply.body)),
        }
        sleep(Duration::from_millis(100));
    }
}

fn accepted(client: &Client, id: &str) -> Result<f64> {
    let reply = client.get(&format!("/api/campaigns/{id}/stats"))?;
    let of = |field: &str| reply.body.pointer(&format!("/data/{field}")).and_then(Value::as_f64);
    match (of("total"), of("pending")) {
        (Some(total), Some(pending)) => Ok(total - pending),
        _ => fail(format!("no stats: {}", reply.body)),
    }
}

/// The callbacks of a campaign that was sent: three statuses of each message, all `sent` before all `delivered`.
fn statuses(stage: &Stage, account: &str, campaign: &str) -> Result<Vec<String>> {
    let query = format!(
        "SELECT id::text, wa_message_id FROM campaign_sends
         WHERE account_id = '{account}' AND campaign_id = '{campaign}' AND status = 'sent' ORDER BY random()"
    );
    let rows = connect(&stage.database())?
        .query(&query, &[])
        .context(|| "cannot read the sends".to_owned())?;
    let sends: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    if sends.len() != CONTACTS {
        return fail(format!("{} of {CONTACTS} messages were sent", sends.len()));
    }
    let mut callbacks = Vec::new();
    for word in ["sent", "delivered", "read"] {
        for batch in sends.chunks(BATCH) {
            let statuses: Vec<Value> = batch
                .iter()
                .map(|(send, message)| {
                    json!({ "id": message, "status": word, "timestamp": "1780000000", "recipient_id": "5511960000000",
                            "biz_opaque_callback_data": send })
                })
                .collect();
            let change = json!({ "field": "messages", "value": { "messaging_product": "whatsapp",
                "metadata": { "display_phone_number": "551130000000", "phone_number_id": NUMBER },
                "statuses": statuses } });
            let entry = json!([{ "id": "1", "changes": [change] }]);
            callbacks.push(json!({ "object": "whatsapp_business_account", "entry": entry }).to_string());
        }
    }
    Ok(callbacks)
}

impl Stage {
    /// The outside systems, with what they are told beside the usual; where the messaging platform listens.
    fn simulators(&self, more: &[(&str, &str)], log: &str) -> Result<(String, Process)> {
        super::stage::release(&["--package", "recado-simulators", "--bin", "recado-simulators"])?;
        let mut command = std::process::Command::new(crate::paths::released("recado-simulators"));
        let mut addresses = Vec::new();
        for name in ["SIM_WHATSAPP_BIND", "SIM_PAYMENT_BIND", "SIM_AI_BIND", "SIM_SMTP_BIND"] {
            let address = format!("127.0.0.1:{}", crate::services::free_port()?);
            command.env(name, &address);
            addresses.push(address);
        }
        for name in ["SIM_WHATSAPP_CALLBACK_URL", "SIM_PAYMENT_WEBHOOK_URL"] {
            command.env(name, "http://127.0.0.1:9/nowhere");
        }
        for name in ["SIM_PAYMENT_API_KEY", "SIM_PAYMENT_WEBHOOK_TOKEN"] {
            command.env(name, "bench");
        }
        command.envs(more.iter().copied());
        let log = self.dir().join(log);
        let mut simulators = Process::spawn("recado-simulators", &mut command, log.clone())?;
        simulators.wait_until(Duration::from_secs(10), || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.lines().any(|line| line == "ready"))
        })?;
        let whatsapp = addresses.into_iter().next().unwrap_or_default();
        Ok((format!("http://{whatsapp}"), simulators))
    }
}
