//! What the platform, or the way to it, makes of a message: no answer, half of one, nonsense, "later", "never".

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use recado_simulators::raw::{ANYWHERE, Acceptor, Reply};
use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind};
use serde_json::json;

use crate::harness::platform::{RawPlatform, accepted, json as answer};
use crate::harness::process::free_port;
use crate::harness::runs::{adds_up, calls, counted, ended, silent, status, statuses, usage, waits_end};
use crate::harness::users::phone;
use crate::harness::{Options, Server, text, until};

fn error(code: u32) -> WhatsappFaultKind {
    WhatsappFaultKind::error(code, "Said by the platform.")
}

/// Answers after which nobody can know whether the message went out.
fn spoiled() -> Vec<Reply> {
    let declared = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n";
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n22\r\n{\"messages\":[{\"id\":\"wamid.chunk\"}]}\r\n";
    let bytes = [
        String::new(),
        "HTTP/1.1 200 OK\r\nContent-Le".to_owned(),
        format!("{declared}{{\"messages\":[{{\"id\":\"wamid.half"),
        // A whole acceptance, of an answer that is not whole.
        format!("{declared}{{\"messages\":[{{\"id\":\"wamid.whole\"}}]}}"),
        chunked.to_owned(),
        "\u{16}\u{3}\u{1} no HTTP at all\r\n\r\n".to_owned(),
    ];
    let bodies = [
        "{\"mess",
        "",
        "{}",
        "[]",
        "<html>OK</html>",
        r#"{"messages":[]}"#,
        r#"{"messages":[{"id":""}]}"#,
        r#"{"messages":[{"id":null,"message_status":"accepted"}]}"#,
        r#"{"messages":"wamid.text"}"#,
    ];
    let mut answers = vec![Reply::Reset, answer("302 Found", ""), answer("503 Busy", "{}")];
    answers.extend(bytes.map(Reply::last));
    answers.extend(bodies.iter().map(|body| answer("200 OK", body)));
    answers
}

/// F03.
#[test]
fn no_answer_half_an_answer_and_nonsense_are_never_counted_as_sent_and_never_sent_again() {
    let answers: BTreeMap<String, Reply> = spoiled().into_iter().enumerate().map(|(n, a)| (phone(n), a)).collect();
    let doubtful = answers.len();
    let platform = RawPlatform::start(0, move |to| {
        let spoiled = answers.get(&format!("+{}", to.trim_start_matches('+'))).cloned();
        spoiled.unwrap_or_else(|| accepted("wamid.well"))
    });
    let options = silent().with("WHATSAPP_API_URL", platform.base_url());
    let server = Server::start(options.with("SEND_UNKNOWN_TTL", "3s"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(doubtful + 1);
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    let wanted =
        json!({ "total": doubtful + 1, "sent": 1, "failed": doubtful, "simulated": false, "status": "partial" });
    assert_eq!(report, wanted);
    let stats = ana.stats(&id);
    assert_eq!(
        (&stats["pending"], &stats["sent"]),
        (&json!(doubtful), &json!(1)),
        "{stats}"
    );
    assert_eq!(
        server.db.count("FROM campaign_sends WHERE wa_message_id IS NOT NULL"),
        1
    );
    assert_eq!(usage(&server, &ana.account), format!("1 {doubtful}"));
    let stats = counted(&ana, &id, "failed", i64::try_from(doubtful).unwrap());
    assert_eq!(stats["sent"], 1);
    let silent = ana.sends(&id).into_iter().filter(|send| send["status"] == "failed");
    assert!(
        silent
            .map(|send| text(&send["error_message"]))
            .all(|why| why.contains("unknown"))
    );
    let mut received = platform.received();
    received.sort();
    received.dedup();
    assert_eq!(
        (received.len(), platform.received().len()),
        (doubtful + 1, doubtful + 1)
    );
    assert_eq!(usage(&server, &ana.account), "1 0");
}

/// A proxy's page in place of the platform, and then the platform.
#[test]
fn a_refusal_that_nobody_can_read_pauses_the_run_and_is_never_sent_again() {
    const PEOPLE: usize = 120;
    let open = Arc::new(AtomicBool::new(false));
    let door = open.clone();
    let platform = RawPlatform::start(0, move |to| match door.load(Ordering::Relaxed) {
        true => accepted(&format!("wamid.{to}")),
        false => answer("403 Forbidden", "<html>Blocked by the proxy</html>"),
    });
    let server = Server::start(silent().with("WHATSAPP_API_URL", platform.base_url()));
    let ana = server.owner();
    ana.profile();
    ana.contacts(PEOPLE);
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    assert_eq!(
        (&report["status"], &report["paused"], &report["sent"]),
        (&json!("sending"), &json!(true), &json!(0)),
        "{report}"
    );
    let reason = text(&ana.get(&format!("/api/campaigns/{id}")).ok()["pause_reason"]);
    assert!(reason.contains("HTTP 403"), "{reason}");
    let doubtful = platform.received().len();
    assert!((1..=50).contains(&doubtful), "{doubtful} were called");
    let unknown = "FROM campaign_sends WHERE status = 'pending' AND unknown_at IS NOT NULL";
    assert_eq!(server.db.count(unknown), i64::try_from(doubtful).unwrap());
    open.store(true, Ordering::Relaxed);
    ana.command(&id, "resume").send().ok();
    assert_eq!(ended(&ana, &id), "partial");
    assert_eq!(ana.stats(&id)["sent"], json!(PEOPLE - doubtful));
    let mut received = platform.received();
    assert_eq!(received.len(), PEOPLE);
    received.sort();
    received.dedup();
    assert_eq!(received.len(), PEOPLE, "somebody was written to twice");
}

/// When the platform was called for a contact, in milliseconds.
fn moments(server: &Server, number: usize) -> Vec<u64> {
    let sends = server.whatsapp.sends().into_iter();
    sends
        .filter(|send| send.to.as_deref() == Some(&phone(number)))
        .map(|send| send.request.at_ms)
        .collect()
}

/// F04.
#[test]
fn what_the_platform_puts_off_is_sent_later_with_growing_waits_and_holds_up_no_other_number() {
    let server = Server::start(silent());
    let (ana, bia) = (server.owner(), server.owner());
    let number = "106500000022";
    ana.profile_at(number);
    bia.profile();
    ana.contacts(4);
    bia.tagged("eles", 1000..1030);
    let asked = WhatsappFaultKind::RateLimited { retry_after_s: 2 };
    let faults = [
        (0, WhatsappFaultKind::Throttle),
        (0, error(130_429)),
        (1, error(131_056)),
        (1, error(131_056)),
        (2, asked),
        // Under maintenance: it may have gone out all the same.
        (3, error(131_057)),
    ];
    server
        .whatsapp
        .script(faults.map(|(n, kind)| WhatsappFault::send_to(&phone(n), kind)).to_vec());
    let (id, other) = (ana.plain_campaign(), bia.plain_campaign());
    let request = ana.command(&id, "execute");
    let run = std::thread::spawn(move || request.send());
    until("the first was put off", || !moments(&server, 0).is_empty());
    assert_eq!(bia.execute(&other).ok()["status"], "completed");
    let report = run.join().unwrap().ok();
    assert_eq!((&report["sent"], &report["failed"]), (&json!(3), &json!(1)), "{report}");
    for n in [0, 1] {
        let at = moments(&server, n);
        assert_eq!(at.len(), 3);
        let (first, second) = (at[1] - at[0], at[2] - at[1]);
        // A number that is too fast slows down; only a recipient who gets too much waits longer each time.
        assert!(
            first >= 800 && (n == 0 || second > first),
            "{first} ms, then {second} ms"
        );
        assert!(
            (1000..1030).all(|other| moments(&server, other)[0] < at[2]),
            "others waited"
        );
    }
    let at = moments(&server, 2);
    assert!(at.len() == 2 && at[1] - at[0] >= 1900, "{at:?}");
    assert_eq!(moments(&server, 3).len(), 1);
    let stats = ana.stats(&id);
    assert_eq!((&stats["failed"], &stats["pending"]), (&json!(0), &json!(1)), "{stats}");
    let sends = ana.sends(&id);
    let doubtful = sends.iter().find(|send| send["status"] == "pending").unwrap();
    let news = status("wamid.late", "sent", Some(&text(&doubtful["id"])));
    server.callback(&statuses(number, &[news])).expect(200);
    assert_eq!(ana.stats(&id)["sent"], 4);
}

/// F04: the platform's own window.
#[test]
fn a_number_over_its_throughput_loses_nobody() {
    let options = Options::platform(|platform| {
        (platform.sent_ms, platform.delivered_ms, platform.read_ms) = (None, None, None);
        platform.number_rate = Some(20);
    });
    let server = Server::start(options);
    let ana = server.owner();
    ana.profile();
    ana.contacts(45);
    let id = ana.plain_campaign();
    assert_eq!(ana.execute(&id).ok()["status"], "completed");
    let counters = server.whatsapp.counters();
    assert!(counters.rejected > 0, "the window was never full");
    assert_eq!((counters.accepted, counters.per_recipient_max), (45, 1));
    assert_eq!(ana.stats(&id)["failed"], 0);
}

/// F04: a number is granted far less than its profile says. It slows down, and no send uses up its attempts.
#[test]
fn number_far_over_its_throughput_fails_no_send() {
    let options = Options::platform(|platform| {
        (platform.sent_ms, platform.delivered_ms, platform.read_ms) = (None, None, None);
        platform.number_rate = Some(10);
    });
    let server = Server::start(options);
    let ana = server.owner();
    let profile = ana.profile();
    ana.put(
        &format!("/api/whatsapp/profiles/{profile}"),
        json!({ "messages_per_second": 1000 }),
    )
    .ok();
    ana.contacts(150);
    let id = ana.plain_campaign();
    ana.send(&id);
    until("half is sent", || server.whatsapp.counters().accepted >= 75);
    assert_eq!(ended(&ana, &id), "completed");
    let counters = server.whatsapp.counters();
    assert!(counters.rejected > 0, "the number was never too fast");
    assert_eq!((counters.accepted, counters.per_recipient_max), (150, 1));
    assert_eq!(ana.stats(&id)["failed"], 0);
    assert_eq!(server.db.count("FROM campaign_sends WHERE attempts > 0"), 0);
    assert_eq!(
        server
            .db
            .count("FROM phone_number_send_slots WHERE throttled_rate < 500"),
        1
    );
}

/// The sends that surely did not leave and wait for another try.
fn put_off(server: &Server) -> i64 {
    server.db.count(
        "FROM campaign_sends WHERE status = 'pending' AND started_at IS NULL AND unknown_at IS NULL
           AND retry_at IS NOT NULL",
    )
}

/// F05.
#[test]
fn what_met_a_closed_door_is_sent_once_when_the_door_is_open() {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/v25.0");
    let server = Server::start(silent().with("WHATSAPP_API_URL", url));
    let ana = server.owner();
    ana.profile();
    let mut phones = ana.contacts(3);
    let id = ana.plain_campaign();
    ana.send(&id);
    until("all were refused and wait", || put_off(&server) == 3);
    let platform = RawPlatform::start(port, |to| accepted(&format!("wamid.{to}")));
    until("they are sent", || {
        waits_end(&server);
        ana.status(&id) != "sending"
    });
    assert_eq!(ana.status(&id), "completed");
    let mut received: Vec<String> = platform
        .received()
        .iter()
        .map(|to| format!("+{}", to.trim_start_matches('+')))
        .collect();
    received.sort();
    phones.sort();
    assert_eq!(received, phones);
    assert_eq!(usage(&server, &ana.account), "3 0");
}

/// Where somebody listens who knows no TLS; what each caller said first.
fn without_tls() -> (Acceptor, mpsc::Receiver<Vec<u8>>) {
    let (tell, hear) = mpsc::channel();
    let acceptor = Acceptor::start(ANYWHERE, move |mut stream| {
        let mut said = vec![0; 4096];
        let length = stream.read(&mut said).unwrap_or(0);
        said.truncate(length);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok();
        tell.send(said).unwrap();
    });
    (acceptor.unwrap(), hear)
}

/// A run whose platform cannot be reached: its sends are tried again and again, and none is ever in doubt.
fn never_reached(url: &str) {
    let server = Server::start(silent().with("WHATSAPP_API_URL", url));
    let ana = server.owner();
    ana.profile();
    ana.contacts(2);
    let id = ana.plain_campaign();
    ana.send(&id);
    until("they are tried again", || {
        put_off(&server) == 2 && server.db.count("FROM campaign_sends WHERE attempts >= 2") == 2
    });
    assert_eq!(usage(&server, &ana.account), "0 2");
    ana.cancel(&id).ok();
    until("what never left is given back", || {
        usage(&server, &ana.account) == "0 0"
    });
    assert_eq!(ana.stats(&id)["pending"], 2);
}

/// F05: two ways of never getting through, and a platform that keeps what it was told and says nothing for longer than
/// anybody waits.
#[test]
fn what_never_left_is_tried_again_and_what_hangs_is_not() {
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile();
    ana.contacts(5);
    server.whatsapp.script(vec![WhatsappFault::send_to(
        &phone(1),
        WhatsappFaultKind::Hang { ms: 300_000 },
    )]);
    let id = ana.plain_campaign();
    ana.send(&id);
    let (listener, said) = without_tls();
    never_reached(&format!("https://{}/v25.0", listener.address()));
    let said: Vec<Vec<u8>> = said.try_iter().collect();
    assert!(said.len() >= 4, "two sends, twice each at least: {}", said.len());
    assert!(
        said.iter().all(|said| said.first() == Some(&22)),
        "something was said before the handshake"
    );
    never_reached("http://platform.invalid/v25.0");
    assert_eq!(ended(&ana, &id), "partial");
    let stats = ana.stats(&id);
    assert_eq!(
        (&stats["sent"], &stats["pending"], &stats["failed"]),
        (&json!(4), &json!(1), &json!(0))
    );
    let calls = calls(&server);
    assert!(calls.len() == 5 && calls.values().all(|calls| *calls == 1), "{calls:?}");
}

/// F05.
#[test]
fn a_campaign_that_everybody_refuses_ends_with_each_reason_and_calls_each_once() {
    const PEOPLE: usize = 150;
    const CODES: [u32; 3] = [131_026, 131_047, 131_008];
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile();
    ana.contacts(PEOPLE);
    let refusals = (0..PEOPLE).map(|n| WhatsappFault::send_to(&phone(n), error(CODES[n % 3])));
    server.whatsapp.script(refusals.collect());
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    let wanted = json!({ "total": PEOPLE, "sent": 0, "failed": PEOPLE, "simulated": false, "status": "partial" });
    assert_eq!(report, wanted);
    adds_up(&ana.stats(&id));
    let calls = calls(&server);
    assert!(
        calls.len() == PEOPLE && calls.values().all(|calls| *calls == 1),
        "{calls:?}"
    );
    let sends = server.db.rows(&format!(
        "SELECT c.phone, s.error_code FROM campaign_sends s JOIN contacts c ON c.id = s.contact_id
         WHERE s.campaign_id = '{id}' AND s.status = 'failed' AND s.error_message <> ''"
    ));
    let codes: BTreeMap<_, _> = sends.into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    let wanted = (0..PEOPLE).map(|n| (Some(phone(n)), Some(CODES[n % 3].to_string())));
    assert_eq!(codes, wanted.collect());
    assert_eq!(usage(&server, &ana.account), "0 0");
}
