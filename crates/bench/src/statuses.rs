//! How fast status updates are applied while a campaign runs. WhatsApp reports three statuses per message (sent,
//! delivered, read), so a server that sends 1,000 messages per second must apply 3,000 status updates per second.
//!
//! One campaign runs to its end without callbacks. Then a second one runs to the same contacts, while clients send the
//! statuses of the first as fast as the server responds. Updates after the last message do not count. For the latency of
//! a callback, a third campaign runs, while the statuses of the second are due at the rate at which messages cause them
//! (open loop).

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::{ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use hmac::{Hmac, KeyInit, Mac};
use recado_testkit::scratch::SERVER_LOG;
use recado_testkit::services::postgres::connect;
use recado_testkit::signals;
use serde_json::{Value, json};
use sha2::Sha256;

use super::Options;
use super::data::accounts;
use super::fixture::{Fixture, Server, port};
use super::load::Request;
use super::load_clients::LoadClients;
use super::results::BenchResult;
use super::sending::{APP_SECRET, Sender, WhatsappSimulator, create_contacts};
use super::times::Latencies;

const CONTACTS: u32 = 20_000;
const NUMBER: &str = "106540352242922";

/// Statuses per callback, and callbacks in flight at a time.
const BATCH: u32 = 50;
const CLIENTS: usize = 4;

/// The most callbacks in flight at a time when their latency is measured.
const MAX_IN_FLIGHT: usize = 16;

const PATH: &str = "/api/whatsapp/webhook";

/// Time limit of a campaign.
const CAMPAIGN_TIMEOUT: Duration = Duration::from_secs(180);

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    let account = accounts().into_iter().next().unwrap_or_default();
    create_contacts(fixture, &account, CONTACTS)?;
    let simulator = WhatsappSimulator::start(fixture)?;
    let server = simulator.serve(fixture, SERVER_LOG)?;
    let sender = Sender::new(fixture, &server, &account)?;
    let number = sender.connect_number(NUMBER, None)?;
    println!("one campaign to {CONTACTS} contacts");
    let first = sender.send(CAMPAIGN_TIMEOUT)?;
    let callbacks = statuses(fixture, &account, &first)?;
    println!("another one, and {} statuses of the first", CONTACTS * 3);
    let second = sender.campaign()?;
    let progress = Progress::default();
    let before = simulator.accepted()?;
    let began = Instant::now();
    sender.begin(&second)?;
    let snapshot = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| send_callbacks(&server, &callbacks, &progress)))
            .collect();
        let mut snapshot = progress.snapshot(began, 0);
        while snapshot.sent < CONTACTS && !clients.iter().all(ScopedJoinHandle::is_finished) {
            sleep(Duration::from_millis(5));
            snapshot = progress.snapshot(began, simulator.accepted()? - before);
        }
        clients.into_iter().try_for_each(|client| match client.join() {
            Ok(done) => done,
            Err(_) => Err(anyhow!("a client panicked")),
        })?;
        anyhow::Ok(snapshot)
    })?;
    sender.wait_for_end(&second, CAMPAIGN_TIMEOUT)?;
    // Half of the time of the second campaign: the third one must not end before.
    let (rate, seconds) = (
        f64::from(snapshot.sent) / snapshot.seconds,
        (snapshot.seconds / 2.0).max(1.0),
    );
    println!("a third one, and statuses of the second at {:.0}/s", 3.0 * rate);
    let requests = statuses(fixture, &account, &second)?.into_iter().map(callback);
    let clients = LoadClients::new(port(&server.base)?, &requests.collect::<Result<Vec<_>>>()?);
    let third = sender.campaign()?;
    sender.begin(&third)?;
    let seconds = Duration::from_secs_f64(seconds).as_secs().try_into()?;
    let responses = clients.at_rate(MAX_IN_FLIGHT, 3.0 * rate / f64::from(BATCH), seconds)?;
    println!("{} refused, {} failed", responses.refused.count(), responses.failed);
    sender.wait_for_end(&third, CAMPAIGN_TIMEOUT)?;
    sender.disconnect_number(&number)?;
    Ok(results(&snapshot, &responses.since_due))
}

/// The progress until all messages were sent or all statuses were applied.
struct Snapshot {
    seconds: f64,
    applied: u32,
    sent: u32,
}

fn results(snapshot: &Snapshot, latencies: &Latencies) -> Vec<BenchResult> {
    let (applied, sent) = (f64::from(snapshot.applied), f64::from(snapshot.sent));
    let count = |count: u64| u32::try_from(count).map_or(f64::NAN, f64::from);
    let share = 100.0 * count(latencies.count_from(Duration::from_secs(1))) / count(latencies.count());
    vec![
        BenchResult::more("statuses: messages sent per second", sent / snapshot.seconds, "", 0),
        BenchResult::more(
            "statuses: updates applied per second while sending",
            applied / snapshot.seconds,
            "",
            0,
        ),
        BenchResult::more(
            "statuses: updates applied / updates caused while sending",
            applied / (3.0 * sent),
            "",
            2,
        )
        .target(1.5),
        BenchResult::less("statuses: p50 of a callback while sending", latencies.p50(), " ms", 0).target(50.0),
        BenchResult::less("statuses: callbacks slower than 1 s while sending", share, " %", 1).target(0.1),
    ]
}

/// The work of all clients together.
#[derive(Default)]
struct Progress {
    next: AtomicUsize,
    applied: AtomicU32,
}

impl Progress {
    fn snapshot(&self, began: Instant, sent: u32) -> Snapshot {
        Snapshot {
            seconds: began.elapsed().as_secs_f64(),
            applied: self.applied.load(Ordering::Relaxed),
            sent,
        }
    }
}

fn send_callbacks(server: &Server, callbacks: &[String], progress: &Progress) -> Result<()> {
    let agent = ureq::Agent::new_with_defaults();
    while let Some(body) = callbacks.get(progress.next.fetch_add(1, Ordering::Relaxed)) {
        if signals::received() {
            bail!("interrupted");
        }
        let response = agent
            .post(format!("{}{PATH}", server.base))
            .header("content-type", "application/json")
            .header("x-hub-signature-256", signature(body)?)
            .send(body)
            .context("a callback got no response")?;
        if response.status().as_u16() != 200 {
            bail!("a callback got {}", response.status());
        }
        progress.applied.fetch_add(BATCH, Ordering::Relaxed);
    }
    Ok(())
}

fn signature(body: &str) -> Result<String> {
    let mac = Hmac::<Sha256>::new_from_slice(APP_SECRET.as_bytes()).context("the HMAC key is not valid")?;
    let digest = mac.chain_update(body).finalize().into_bytes();
    Ok(format!("sha256={}", hex::encode(digest)))
}

fn callback(body: String) -> Result<Request> {
    Ok(Request {
        path: PATH.to_owned(),
        headers: vec![
            ("content-type", "application/json".to_owned()),
            ("x-hub-signature-256", signature(&body)?),
        ],
        body: Some(body),
    })
}

/// The callbacks of a completed campaign: three statuses per message, first all `sent`, then `delivered`, then `read`.
fn statuses(fixture: &Fixture, account: &str, campaign: &str) -> Result<Vec<String>> {
    let query = format!(
        "SELECT id::text, wa_message_id FROM campaign_sends
         WHERE account_id = '{account}' AND campaign_id = '{campaign}' AND status = 'sent' ORDER BY random()"
    );
    let rows = connect(&fixture.database())?
        .query(&query, &[])
        .context("cannot read the sends")?;
    let sends: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    if u32::try_from(sends.len()) != Ok(CONTACTS) {
        bail!("{} of {CONTACTS} messages were sent", sends.len());
    }
    let mut callbacks = Vec::new();
    for status in ["sent", "delivered", "read"] {
        for batch in sends.chunks(usize::try_from(BATCH).unwrap_or(usize::MAX)) {
            let statuses: Vec<Value> = batch
                .iter()
                .map(|(send, message)| {
                    json!({ "id": message, "status": status, "timestamp": "1780000000", "recipient_id": "5511960000000",
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
