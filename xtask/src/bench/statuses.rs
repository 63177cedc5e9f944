//! How fast the platform's statuses are taken in while a campaign is being sent: the platform tells three of each
//! message (sent, delivered, read), so that a server that sends a thousand a second has to take three thousand.
//!
//! One campaign is sent to the end, in silence. Then a second one is sent to the same contacts, and meanwhile the
//! statuses of the first come in, batch by batch, as fast as they are answered. What is compared happened in the same
//! seconds: what comes in after the last message has left does not count.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::{ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use super::Options;
use super::data::accounts;
use super::fixture::{Fixture, Server};
use super::results::BenchResult;
use super::sending::{APP_SECRET, Platform, Sender, people};
use crate::error::{Context, Result, fail};
use crate::scratch::{OTHER_LOG, SERVER_LOG};
use crate::secrets::hex;
use crate::services::postgres::connect;
use crate::signals;

const CONTACTS: u32 = 20_000;
const NUMBER: &str = "106540352242922";

/// Statuses in one callback, and callbacks under way at a time.
const BATCH: u32 = 50;
const CALLERS: usize = 4;

/// The longest that a campaign may take.
const PATIENCE: Duration = Duration::from_secs(180);

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    let account = accounts().into_iter().next().unwrap_or_default();
    people(fixture, &account, CONTACTS)?;
    let platform = Platform::start(fixture, OTHER_LOG)?;
    let server = platform.serve(fixture, SERVER_LOG)?;
    let sender = Sender::new(fixture, &server, &account)?;
    let number = sender.connect_number(NUMBER, None)?;
    println!("one campaign to {CONTACTS} contacts");
    let first = sender.send(PATIENCE)?;
    let callbacks = statuses(fixture, &account, &first)?;
    println!("another one, and {} statuses of the first", CONTACTS * 3);
    let second = sender.campaign()?;
    let told = Told::default();
    let before = platform.accepted()?;
    let began = Instant::now();
    sender.begin(&second)?;
    let meanwhile = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| scope.spawn(|| tell(&server, &callbacks, &told)))
            .collect();
        let mut meanwhile = told.meanwhile(began, 0);
        while meanwhile.sent < CONTACTS && !callers.iter().all(ScopedJoinHandle::is_finished) {
            sleep(Duration::from_millis(5));
            meanwhile = told.meanwhile(began, platform.accepted()? - before);
        }
        callers.into_iter().try_for_each(|caller| match caller.join() {
            Ok(done) => done,
            Err(_) => fail("a caller panicked"),
        })?;
        Ok(meanwhile)
    })?;
    sender.wait_for_end(&second, PATIENCE)?;
    sender.disconnect_number(&number)?;
    Ok(results(&told, &meanwhile))
}

/// What was done until there was nothing left to send, or nothing left to tell.
struct Meanwhile {
    seconds: f64,
    taken: u32,
    sent: u32,
}

fn results(told: &Told, meanwhile: &Meanwhile) -> Vec<BenchResult> {
    let (taken, sent) = (f64::from(meanwhile.taken), f64::from(meanwhile.sent));
    let mut times = told.times.lock().map(|times| times.clone()).unwrap_or_default();
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY);
    let late = times.iter().filter(|seconds| **seconds > 1.0).count().to_string();
    let share =
        late.parse::<f64>().unwrap_or_default() * 100.0 / times.len().max(1).to_string().parse::<f64>().unwrap_or(1.0);
    vec![
        BenchResult::more(
            "statuses: messages sent a second meanwhile",
            sent / meanwhile.seconds,
            "",
            0,
        ),
        BenchResult::more("statuses: taken in a second", taken / meanwhile.seconds, "", 0),
        BenchResult::more(
            "statuses: taken in for each that the sending causes",
            taken / (3.0 * sent),
            "",
            2,
        )
        .floor(1.0)
        .target(1.5),
        BenchResult::less(
            "statuses: half of the callbacks answered within",
            median * 1000.0,
            " ms",
            0,
        )
        .floor(250.0)
        .target(50.0),
        BenchResult::less("statuses: callbacks that took more than a second", share, " %", 1)
            .floor(1.0)
            .target(0.1),
    ]
}

/// What the callers did together.
#[derive(Default)]
struct Told {
    next: AtomicUsize,
    taken: AtomicU32,
    times: Mutex<Vec<f64>>,
}

impl Told {
    fn meanwhile(&self, began: Instant, sent: u32) -> Meanwhile {
        Meanwhile {
            seconds: began.elapsed().as_secs_f64(),
            taken: self.taken.load(Ordering::Relaxed),
            sent,
        }
    }
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
            return fail(format!("a callback was answered with {}", answer.status()));
        }
        told.taken.fetch_add(BATCH, Ordering::Relaxed);
        if let Ok(mut times) = told.times.lock() {
            times.push(began.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

/// The callbacks of a campaign that was sent: three statuses of each message, all `sent` before all `delivered`.
fn statuses(fixture: &Fixture, account: &str, campaign: &str) -> Result<Vec<String>> {
    let query = format!(
        "SELECT id::text, wa_message_id FROM campaign_sends
         WHERE account_id = '{account}' AND campaign_id = '{campaign}' AND status = 'sent' ORDER BY random()"
    );
    let rows = connect(&fixture.database())?
        .query(&query, &[])
        .context(|| "cannot read the sends".to_owned())?;
    let sends: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    if u32::try_from(sends.len()) != Ok(CONTACTS) {
        return fail(format!("{} of {CONTACTS} messages were sent", sends.len()));
    }
    let mut callbacks = Vec::new();
    for word in ["sent", "delivered", "read"] {
        for batch in sends.chunks(usize::try_from(BATCH).unwrap_or(usize::MAX)) {
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
