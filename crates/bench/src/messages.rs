//! Bench `messages`: the time from the response to a direct message until WhatsApp is called for it, on an idle number,
//! and beside a campaign that fills the number.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use recado_testkit::scratch::SERVER_LOG;
use recado_testkit::signals;
use serde_json::json;

use super::Options;
use super::data::accounts;
use super::fixture::Fixture;
use super::results::BenchResult;
use super::sending::{Sender, WhatsappSimulator, create_contacts};
use super::times::Latencies;

const NUMBER: &str = "106540352242925";

/// Messages per second of the number, and of the direct messages, a third of it.
const RATE: u32 = 45;
const DIRECT_RATE: u32 = RATE / 3;

/// Direct messages of a measurement. Two measurements stay below the route's limit of a minute.
const MESSAGES: u32 = 300;

/// The contacts of the campaign: more than the number can send to meanwhile.
const CONTACTS: u32 = MESSAGES / DIRECT_RATE * RATE * 4;

const END_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    let account = accounts().into_iter().nth(7).unwrap_or_default();
    create_contacts(fixture, &account, CONTACTS)?;
    let simulator = WhatsappSimulator::start(fixture)?;
    let server = simulator.serve(fixture, SERVER_LOG)?;
    let sender = Sender::new(fixture, &server, &account)?;
    let number = sender.connect_number(NUMBER, Some(RATE))?;
    send_directly(&sender, &simulator, 0, DIRECT_RATE)?;
    let idle = send_directly(&sender, &simulator, 1_000, MESSAGES)?;
    let campaign = sender.campaign()?;
    sender.begin(&campaign)?;
    let busy = send_directly(&sender, &simulator, 2_000, MESSAGES)?;
    if sender.processed(&campaign)? >= f64::from(CONTACTS) {
        bail!("the campaign ended before the direct messages");
    }
    sender.cancel(&campaign)?;
    sender.disconnect_number(&number)?;
    let result = |metric: &str, value: f64| BenchResult::less(format!("messages: {metric}"), value, "ms", 0);
    Ok(vec![
        result("p50 from response to call on an idle number", idle.p50()),
        result("p99 from response to call on an idle number", idle.p99()).target(500.0),
        result("p50 from response to call beside a campaign", busy.p50()),
        result("p99 from response to call beside a campaign", busy.p99()).target(500.0),
    ])
}

/// Sends this many direct messages to new contacts, `DIRECT_RATE` a second. Returns how long each took to leave.
fn send_directly(sender: &Sender, simulator: &WhatsappSimulator, first: u32, messages: u32) -> Result<Latencies> {
    let began = Instant::now();
    let mut responses = HashMap::new();
    for number in 0..messages {
        let due = Duration::from_secs(1) * number / DIRECT_RATE;
        sleep(due.saturating_sub(began.elapsed()));
        let phone = format!("+55119{}", 70_000_000 + first + number);
        let message = json!({ "to": { "phone": phone }, "template": { "id": sender.account } });
        sender.post(201, "/api/messages", &message)?;
        responses.insert(digits(&phone), SystemTime::now().duration_since(UNIX_EPOCH)?);
    }
    let calls = wait_for_calls(simulator, &responses)?;
    let mut latencies = Latencies::new()?;
    for (to, response) in &responses {
        let call = calls.get(to).copied().unwrap_or_default();
        latencies.record(Duration::from_millis(call).saturating_sub(*response));
    }
    Ok(latencies)
}

/// Waits until WhatsApp was called for all of them. Returns the time of each call by its recipient.
fn wait_for_calls(
    simulator: &WhatsappSimulator,
    responses: &HashMap<String, Duration>,
) -> Result<HashMap<String, u64>> {
    let began = Instant::now();
    loop {
        let calls: HashMap<String, u64> = simulator
            .sends()?
            .into_iter()
            .map(|(to, at)| (digits(&to), at))
            .collect();
        let missing = responses.keys().filter(|to| !calls.contains_key(*to)).count();
        if missing == 0 {
            return Ok(calls);
        }
        if began.elapsed() > END_TIMEOUT || signals::received() {
            bail!("{missing} direct messages did not leave");
        }
        sleep(Duration::from_millis(200));
    }
}

/// A phone number without its sign: WhatsApp accepts both spellings.
fn digits(phone: &str) -> String {
    phone.trim_start_matches('+').to_owned()
}
