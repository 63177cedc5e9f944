//! Servers that are killed at random times of a mixed load of campaigns and direct messages: nothing is called twice,
//! nothing accepted is lost, a cancelled message never leaves, and the quota is what was sent.
//!
//! `RECADO_RUNS` sets the number of rounds (125 for a release: 500 kills), `RECADO_SEED` the seed, which a failure
//! prints.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use recado_simulators::whatsapp::{Inbound, Whatsapp, WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::harness::client::{Reply, Request};
use crate::harness::rng::{TestRng, runs, seed};
use crate::harness::runs::{assert_stats_add_up, calls, expire_leases, final_status, usage, wait_for_stat};
use crate::harness::users::{User, phone};
use crate::harness::{Options, Server, eventually, text, until};

/// Rounds by default.
const ROUNDS: u64 = 2;

/// Kills per round.
const KILLS: u64 = 4;

/// Clients that make direct messages at the same time.
const CLIENTS: usize = 3;

/// The most requests of a client, which end it also after a failed assertion.
const REQUESTS: usize = 300;

/// Contacts of each of the two campaigns of a round.
const AUDIENCE: usize = 150;

/// Contacts who have written, and get a text.
const WRITERS: usize = 4;

/// The positions of the clients' phone numbers: each message has its own.
const FIRST_PHONE: usize = 10_000;

/// The most outcomes that one kill leaves unknown: messages in flight of one number, of direct messages and campaigns.
const MAX_IN_FLIGHT: usize = 100;

/// A message as its client knows it.
#[derive(Default)]
struct Message {
    phone: String,
    reference: Option<String>,
    /// The time before which it may not be called, in milliseconds since 1970.
    not_before: u64,
    /// Whether the simulator refuses it, or does not answer as it should.
    has_fault: bool,
    expires: bool,
    /// Set if a response accepted it.
    id: Option<String>,
    /// A response refused it.
    is_refused: bool,
    /// The answer to its cancel: whether it is cancelled.
    cancelled: Option<bool>,
}

/// Makes messages until it is stopped.
struct Client<'a> {
    post: Request,
    template: String,
    whatsapp: &'a Whatsapp,
    rng: TestRng,
    number: usize,
    messages: Vec<Message>,
}

/// Repeats a request until a server answers it.
fn answered(request: &Request) -> Reply {
    eventually("the request is answered", || {
        let reply = request.clone().try_send().ok();
        let reply = reply.filter(|reply| ![429, 503].contains(&reply.status));
        if reply.is_none() {
            thread::sleep(Duration::from_millis(50));
        }
        reply
    })
}

fn accepted_id(reply: &Reply) -> String {
    assert!([200, 201].contains(&reply.status), "{}", reply.text);
    text(&reply.json()["data"]["id"])
}

impl Client<'_> {
    /// A message to the next phone number, with a reference that only it has.
    fn next(&self) -> (Message, Value) {
        let position = FIRST_PHONE * (1 + self.number) + self.messages.len();
        let reference = format!("{}-{}", self.number, self.messages.len());
        let body = json!({ "to": { "phone": phone(position) }, "template": { "id": self.template },
            "client_reference": reference });
        let message = Message {
            phone: phone(position),
            reference: Some(reference),
            ..Message::default()
        };
        (message, body)
    }

    /// A time from now on, and its milliseconds since 1970.
    fn time_within(&mut self, milliseconds: u64) -> (String, u64) {
        let in_ms = 200 + self.rng.below(milliseconds);
        let at = OffsetDateTime::now_utc() + Duration::from_millis(in_ms);
        // Truncated as the API truncates it.
        let ms = at.unix_timestamp_nanos() / 1_000_000;
        (at.format(&Rfc3339).unwrap(), u64::try_from(ms).unwrap())
    }

    fn make(&mut self) {
        match self.rng.below(12) {
            0..=2 => self.make_plain(),
            3 => self.make_faulty(),
            4 => self.make_without_reference(false),
            5 => self.make_scheduled(),
            6 | 7 => self.make_and_cancel(2000),
            8 => self.make_and_cancel(0),
            9 => self.make_batch(),
            10 => self.make_without_reference(true),
            _ => self.make_twice(),
        }
    }

    /// Makes the message, and repeats the request until it is answered.
    fn accept(&mut self, mut message: Message, body: &Value) -> &mut Message {
        let reply = answered(&self.post.clone().json(body));
        message.id = Some(accepted_id(&reply));
        self.messages.push(message);
        self.messages.last_mut().unwrap()
    }

    fn make_plain(&mut self) {
        let (message, body) = self.next();
        self.accept(message, &body);
    }

    /// The simulator refuses the message, or gives no usable response.
    fn make_faulty(&mut self) {
        let (mut message, body) = self.next();
        message.has_fault = true;
        let kind = match self.rng.below(4) {
            0 => WhatsappFaultKind::error(131_026, "not on WhatsApp"),
            1 => WhatsappFaultKind::AcceptThenReset,
            2 => WhatsappFaultKind::AnswerWithoutId,
            _ => WhatsappFaultKind::Hang { ms: 1500 },
        };
        self.whatsapp.script(vec![WhatsappFault::send_to(&message.phone, kind)]);
        self.accept(message, &body);
    }

    /// A request without a reference is not repeated: it could make a second message.
    fn make_without_reference(&mut self, expires: bool) {
        let (mut message, mut body) = self.next();
        (message.reference, message.expires) = (None, expires);
        body["client_reference"] = Value::Null;
        if expires {
            body["expires_at"] = json!(self.time_within(800).0);
        }
        if let Ok(reply) = self.post.clone().json(&body).try_send() {
            match reply.status {
                // The message had expired before the request arrived.
                422 => message.is_refused = message.expires,
                429 | 503 => message.is_refused = true,
                _ => message.id = Some(accepted_id(&reply)),
            }
            assert!(message.id.is_some() || message.is_refused, "{}", reply.text);
        }
        self.messages.push(message);
    }

    fn make_scheduled(&mut self) {
        let (mut message, mut body) = self.next();
        let (send_at, not_before) = self.time_within(2500);
        (body["send_at"], message.not_before) = (json!(send_at), not_before);
        self.accept(message, &body);
    }

    /// Cancels a message before its time, or while it leaves.
    fn make_and_cancel(&mut self, ahead: u64) {
        let (mut message, mut body) = self.next();
        if ahead > 0 {
            let (send_at, not_before) = self.time_within(ahead);
            (body["send_at"], message.not_before) = (json!(send_at), not_before);
        }
        let wait = self.rng.duration_below(1000 * (ahead / 2 + 30));
        let post = self.post.clone();
        let message = self.accept(message, &body);
        thread::sleep(wait);
        let id = message.id.clone().unwrap();
        let reply = answered(&post.path(&format!("/api/messages/{id}/cancel")).json(&json!({})));
        message.cancelled = Some(reply.status == 200);
        match reply.status {
            200 => assert_eq!(reply.json()["data"]["status"], "cancelled"),
            _ => {
                let error = reply.refused(400, "VALIDATION_ERROR");
                assert_eq!(error["details"]["reason"], "already_left");
            }
        }
    }

    fn make_batch(&mut self) {
        let first = self.messages.len();
        let mut items = Vec::new();
        for _ in 0..5 {
            let (message, body) = self.next();
            self.messages.push(message);
            items.push(body);
        }
        items.push(items[0].clone());
        let batch = self.post.clone().path("/api/messages/batch");
        let report = answered(&batch.json(&json!({ "messages": items }))).ok();
        let results = report["results"].as_array().unwrap();
        assert_eq!((results.len(), &report["refused"]), (6, &json!(0)), "{report}");
        assert_eq!(results[5]["id"], results[0]["id"], "{report}");
        for (message, result) in self.messages[first..].iter_mut().zip(results) {
            message.id = Some(text(&result["id"]));
        }
    }

    fn make_twice(&mut self) {
        let (message, body) = self.next();
        let id = self.accept(message, &body).id.clone();
        let again = answered(&self.post.clone().json(&body));
        assert_eq!((again.status, Some(accepted_id(&again))), (200, id), "{}", again.text);
    }

    /// Sends a text to each contact who has written.
    fn answer_writers(&mut self) {
        for position in 0..WRITERS {
            let reference = format!("text-{position}");
            let body = json!({ "to": { "phone": phone(FIRST_PHONE - 1 - position) }, "text": "Oi",
                "client_reference": reference });
            let message = Message {
                phone: phone(FIRST_PHONE - 1 - position),
                reference: Some(reference),
                ..Message::default()
            };
            self.accept(message, &body);
        }
    }

    fn run(mut self, stop: &AtomicBool) -> Vec<Message> {
        if self.number == 0 {
            self.answer_writers();
        }
        while !stop.load(Ordering::SeqCst) && self.messages.len() < REQUESTS {
            self.make();
            thread::sleep(self.rng.duration_below(60_000));
        }
        self.messages
    }
}

/// Connects a number, and receives a message from each contact who gets a text.
fn connect(ana: &User<'_>, round: u64) {
    let server = ana.server;
    let number = format!("1065{round:08}");
    let profile = text(&ana.profile_at(&number)["id"]);
    if round % 2 == 1 {
        let send_rate = json!({ "messages_per_second": 100 });
        ana.put(&format!("/api/whatsapp/profiles/{profile}"), send_rate).ok();
    }
    for position in 0..WRITERS {
        let from = phone(FIRST_PHONE - 1 - position);
        server.whatsapp.inbound(&Inbound::text(&number, &from, "Oi"));
    }
    until("the contacts have written", || {
        let account = &ana.account;
        server
            .db
            .count(&format!("FROM conversations WHERE account_id = '{account}'"))
            == i64::try_from(WRITERS).unwrap()
    });
}

/// Runs two campaigns and the clients through `KILLS` kills. Returns what the clients made.
fn run_with_kills(ana: &User<'_>, campaigns: &[String], seed: u64, round: u64) -> Vec<Message> {
    let (server, stop) = (ana.server, AtomicBool::new(false));
    let template = ana.approved("Oi", &[]);
    let mut rng = TestRng::of(seed, round * 100);
    let mut second = None;
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = Client {
                    post: ana.request("POST", "/api/messages"),
                    template: template.clone(),
                    whatsapp: &server.whatsapp,
                    rng: TestRng::of(seed, round * 100 + 1 + u64::try_from(number).unwrap()),
                    number,
                    messages: vec![],
                };
                let stop = &stop;
                scope.spawn(move || client.run(stop))
            })
            .collect();
        for kill in 0..KILLS {
            match kill {
                0 => ana.send(&campaigns[0]),
                2 => ana.send(&campaigns[1]),
                _ => {}
            }
            thread::sleep(rng.duration_below(700_000));
            if rng.below(3) == 0 {
                // Also a worker that lives may lose its lease.
                expire_leases(server);
                thread::sleep(rng.duration_below(100_000));
            }
            server.kill();
            drop(second.take());
            server.run(&["serve"]);
            second = (rng.below(2) == 1).then(|| server.sibling());
            expire_leases(server);
        }
        stop.store(true, Ordering::SeqCst);
        let messages: Vec<Message> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        wait_until_all_ended(ana, campaigns);
        messages
    })
}

fn wait_until_all_ended(ana: &User<'_>, campaigns: &[String]) {
    for campaign in campaigns {
        let status = final_status(ana, campaign);
        assert!(["completed", "partial"].contains(&status.as_str()), "{status}");
        assert_stats_add_up(&wait_for_stat(ana, campaign, "pending", 0));
    }
    until("every message has ended", || {
        ana.server.db.count("FROM direct_messages WHERE status = 'pending'") == 0
    });
    // Further workers find nothing to send.
    thread::sleep(Duration::from_millis(300));
}

/// A stored message, or a send of a campaign.
struct Stored {
    id: String,
    phone: String,
    status: String,
    error: String,
    reference: Option<String>,
}

impl Stored {
    fn is_sent(&self) -> bool {
        ["sent", "delivered", "read"].contains(&self.status.as_str())
    }

    fn is_unconfirmed(&self) -> bool {
        self.status == "failed" && self.error.contains("unknown")
    }
}

/// The account's rows of a table with contacts and statuses.
fn stored(ana: &User<'_>, table: &str, reference: &str) -> Vec<Stored> {
    let account = &ana.account;
    let rows = ana.server.db.rows(&format!(
        "SELECT m.id, c.phone, m.status, coalesce(m.error_message, ''), {reference} FROM {table} m
         JOIN contacts c ON c.account_id = m.account_id AND c.id = m.contact_id WHERE m.account_id = '{account}'"
    ));
    let rows = rows.into_iter().map(|mut row| {
        let reference = row.pop().unwrap();
        let [id, phone, status, error] = <[Option<String>; 4]>::try_from(row).unwrap().map(Option::unwrap);
        Stored {
            id,
            phone,
            status,
            error,
            reference,
        }
    });
    rows.collect()
}

/// The time of the call of each message or send.
fn calls_by_id(server: &Server) -> BTreeMap<String, u64> {
    let twice: Vec<_> = calls(server).into_iter().filter(|(_, calls)| *calls != 1).collect();
    assert!(twice.is_empty(), "recipients were called twice: {twice:?}");
    let mut by_id = BTreeMap::new();
    for send in server.whatsapp.sends() {
        let earlier = by_id.insert(send.callback_data.clone().unwrap(), send.request.at_ms);
        assert!(earlier.is_none(), "{:?} was called twice", send.callback_data);
    }
    by_id
}

/// Asserts what the row of a message must be.
fn assert_message(message: &Message, row: &Stored, called_at: Option<u64>) {
    let Message { phone, cancelled, .. } = message;
    assert_eq!(row.reference, message.reference, "{phone}");
    assert!(message.id.as_ref().is_none_or(|id| *id == row.id), "{phone}");
    assert!(!message.is_refused, "{phone}: a refused message is stored");
    assert_eq!(
        row.status == "cancelled",
        *cancelled == Some(true),
        "{phone} is {}",
        row.status
    );
    assert!(
        called_at.is_none_or(|at| at >= message.not_before),
        "{phone} left before its time"
    );
    match row.status.as_str() {
        "cancelled" => assert_eq!(called_at, None, "{phone} was called and is cancelled"),
        "failed" if row.is_unconfirmed() => {}
        "failed" if message.expires && row.error.contains("expired") => {
            assert_eq!(called_at, None, "{phone} was called and has expired");
        }
        "failed" => assert!(message.has_fault, "{phone}: {}", row.error),
        _ => assert!(
            row.is_sent() && called_at.is_some(),
            "{phone} is {} and was not called",
            row.status
        ),
    }
}

/// Asserts one row for each accepted message, one call at most for each row, and the quota of what was sent.
fn assert_exactly_once(ana: &User<'_>, messages: &[Message]) -> String {
    let (server, calls) = (ana.server, calls_by_id(ana.server));
    let direct = stored(ana, "direct_messages", "m.client_reference");
    let sends = stored(ana, "campaign_sends", "NULL");
    let ids: BTreeSet<&String> = direct.iter().chain(&sends).map(|row| &row.id).collect();
    let unknown: Vec<_> = calls.keys().filter(|id| !ids.contains(id)).collect();
    assert!(unknown.is_empty(), "called without a row: {unknown:?}");
    let rows: BTreeMap<&str, &Stored> = direct.iter().map(|row| (row.phone.as_str(), row)).collect();
    assert_eq!(rows.len(), direct.len(), "two messages were made for one request");
    let made: BTreeSet<&str> = messages.iter().map(|message| message.phone.as_str()).collect();
    assert!(direct.iter().all(|row| made.contains(row.phone.as_str())));
    for message in messages {
        match rows.get(message.phone.as_str()) {
            Some(row) => assert_message(message, row, calls.get(&row.id).copied()),
            None => assert!(message.id.is_none(), "the message to {} is lost", message.phone),
        }
    }
    assert_eq!(sends.len(), 2 * AUDIENCE, "one row each");
    for send in &sends {
        let is_called = calls.contains_key(&send.id);
        assert!(
            send.is_unconfirmed() || send.is_sent() && is_called,
            "{}: {}",
            send.status,
            send.error
        );
    }
    let unconfirmed = direct.iter().chain(&sends).filter(|row| row.is_unconfirmed()).count();
    let faults = messages.iter().filter(|message| message.has_fault).count();
    let most = usize::try_from(KILLS).unwrap() * 2 * MAX_IN_FLIGHT + faults;
    assert!(unconfirmed <= most, "{unconfirmed} outcomes were unknown");
    let sent = |rows: &[Stored]| rows.iter().filter(|row| row.is_sent()).count();
    assert_eq!(
        usage(server, &ana.account),
        format!("{} 0", sent(&sends)),
        "sent by campaigns, and reserved"
    );
    let used = ana.get("/api/billing/subscription").ok()["usage"]["messages"].clone();
    assert_eq!(used, sent(&sends) + sent(&direct), "quota of all messages");
    let cancelled = direct.iter().filter(|row| row.status == "cancelled").count();
    let of_messages = direct.iter().filter(|row| row.is_unconfirmed()).count();
    format!(
        "{} messages, {} sends, {} calls, {cancelled} cancelled, {unconfirmed} never confirmed ({of_messages} messages)",
        direct.len(),
        sends.len(),
        calls.len(),
    )
}

/// F41c.
#[test]
fn direct_messages_and_campaigns_survive_server_kills() {
    let (rounds, seed) = (runs(ROUNDS), seed(20_261_128));
    let options = Options::with_whatsapp(|whatsapp| whatsapp.latency_ms = 20);
    let server = Server::start(options.with("SEND_UNKNOWN_TTL", "2s"));
    for round in 0..rounds {
        println!("round {round} of seed {seed}");
        let ana = server.owner();
        server.db.run("UPDATE accounts SET plan = 'scale'");
        let campaigns = [0, 1].map(|number| {
            let audience = number * AUDIENCE..(number + 1) * AUDIENCE;
            ana.campaign_to(&format!("c{number}"), audience)
        });
        server.whatsapp.reset();
        // Every other round gets no status updates, so that only `SEND_UNKNOWN_TTL` resolves unknown outcomes.
        server.whatsapp.set_options(|whatsapp| {
            let after = (round % 2 == 0).then_some(20);
            (whatsapp.sent_ms, whatsapp.delivered_ms, whatsapp.read_ms) = (after, after, None);
        });
        connect(&ana, round);
        let messages = run_with_kills(&ana, &campaigns, seed, round);
        println!("{}", assert_exactly_once(&ana, &messages));
    }
}
