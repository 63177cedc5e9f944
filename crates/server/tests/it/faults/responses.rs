//! Failing calls to WhatsApp: no response, a partial or malformed response, throttling, rejection, no connection.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use recado_simulators::raw::{ANY_FREE_PORT, Acceptor, Reply};
use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind};
use recado_testkit::services::ReservedPort;
use serde_json::json;

use crate::harness::raw_whatsapp::{RawWhatsapp, accepted, json as json_response};
use crate::harness::runs::{
    assert_stats_add_up, calls, final_status, make_retries_due, status, statuses, usage, wait_for_stat,
    without_statuses,
};
use crate::harness::users::phone;
use crate::harness::{Options, Server, text, until};

fn error(code: u32) -> WhatsappFaultKind {
    WhatsappFaultKind::error(code, "An error of WhatsApp.")
}

/// Responses that do not show whether WhatsApp accepted the message.
fn unusable_responses() -> Vec<Reply> {
    let declared = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n";
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n22\r\n{\"messages\":[{\"id\":\"wamid.chunk\"}]}\r\n";
    let bytes = [
        String::new(),
        "HTTP/1.1 200 OK\r\nContent-Le".to_owned(),
        format!("{declared}{{\"messages\":[{{\"id\":\"wamid.half"),
        // A complete JSON body that is shorter than the declared length.
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
    let mut responses = vec![
        Reply::Reset,
        json_response("302 Found", ""),
        json_response("503 Busy", "{}"),
    ];
    responses.extend(bytes.map(Reply::last));
    responses.extend(bodies.iter().map(|body| json_response("200 OK", body)));
    responses
}

/// F03.
#[test]
fn send_with_unusable_response_is_unknown_and_not_resent() {
    let responses = unusable_responses();
    let unknown = responses.len();
    let responses: BTreeMap<String, Reply> = (0..).map(phone).zip(responses).collect();
    let whatsapp = RawWhatsapp::start(0, move |to| {
        let unusable = responses.get(&format!("+{}", to.trim_start_matches('+'))).cloned();
        unusable.unwrap_or_else(|| accepted("wamid.well"))
    });
    let options = without_statuses().with("WHATSAPP_API_URL", whatsapp.base_url());
    let server = Server::start(options.with("SEND_UNKNOWN_TTL", "3s"));
    let ana = server.owner();
    ana.profile_without_check();
    ana.contacts(unknown + 1);
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    let expected =
        json!({ "total": unknown + 1, "sent": 1, "failed": unknown, "simulated": false, "status": "partial" });
    assert_eq!(report, expected);
    let stats = ana.stats(&id);
    assert_eq!(
        (&stats["pending"], &stats["sent"]),
        (&json!(unknown), &json!(1)),
        "{stats}"
    );
    assert_eq!(
        server.db.count("FROM campaign_sends WHERE wa_message_id IS NOT NULL"),
        1
    );
    assert_eq!(usage(&server, &ana.account), format!("1 {unknown}"));
    let stats = wait_for_stat(&ana, &id, "failed", i64::try_from(unknown).unwrap());
    assert_eq!(stats["sent"], 1);
    let failed_sends = ana.sends(&id).into_iter().filter(|send| send["status"] == "failed");
    assert!(
        failed_sends
            .map(|send| text(&send["error_message"]))
            .all(|why| why.contains("unknown"))
    );
    let mut received = whatsapp.received();
    received.sort();
    received.dedup();
    assert_eq!((received.len(), whatsapp.received().len()), (unknown + 1, unknown + 1));
    assert_eq!(usage(&server, &ana.account), "1 0");
}

/// A proxy rejects the calls with an HTML page; after the resume WhatsApp accepts the rest.
#[test]
fn unreadable_rejection_pauses_run_and_is_not_resent() {
    const CONTACTS: usize = 120;
    let open = Arc::new(AtomicBool::new(false));
    let is_open = open.clone();
    let whatsapp = RawWhatsapp::start(0, move |to| match is_open.load(Ordering::Relaxed) {
        true => accepted(&format!("wamid.{to}")),
        false => json_response("403 Forbidden", "<html>Blocked by the proxy</html>"),
    });
    let server = Server::start(without_statuses().with("WHATSAPP_API_URL", whatsapp.base_url()));
    let ana = server.owner();
    ana.profile_without_check();
    ana.contacts(CONTACTS);
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    assert_eq!(
        (&report["status"], &report["paused"], &report["sent"]),
        (&json!("sending"), &json!(true), &json!(0)),
        "{report}"
    );
    let reason = text(&ana.get(&format!("/api/campaigns/{id}")).ok()["pause_reason"]);
    assert!(reason.contains("HTTP 403"), "{reason}");
    let rejected = whatsapp.received().len();
    assert!((1..=50).contains(&rejected), "{rejected} calls before the pause");
    let unknown = "FROM campaign_sends WHERE status = 'pending' AND unknown_at IS NOT NULL";
    assert_eq!(server.db.count(unknown), i64::try_from(rejected).unwrap());
    open.store(true, Ordering::Relaxed);
    ana.command(&id, "resume").send().ok();
    assert_eq!(final_status(&ana, &id), "partial");
    assert_eq!(ana.stats(&id)["sent"], json!(CONTACTS - rejected));
    let mut received = whatsapp.received();
    assert_eq!(received.len(), CONTACTS);
    received.sort();
    received.dedup();
    assert_eq!(received.len(), CONTACTS, "a recipient was called twice");
}

/// The times of the calls to WhatsApp for a contact, in milliseconds.
fn call_times(server: &Server, number: usize) -> Vec<u64> {
    let sends = server.whatsapp.sends().into_iter();
    sends
        .filter(|send| send.to.as_deref() == Some(&phone(number)))
        .map(|send| send.request.at_ms)
        .collect()
}

/// F04.
#[test]
fn throttled_send_is_retried_and_delays_no_other_number() {
    let server = Server::start(without_statuses());
    let (ana, bia) = (server.owner(), server.owner());
    let number = "106500000022";
    ana.profile_at(number);
    bia.profile();
    ana.contacts(4);
    bia.tagged("eles", 1000..1030);
    let rate_limited = WhatsappFaultKind::RateLimited { retry_after_s: 2 };
    let faults = [
        (0, WhatsappFaultKind::Throttle),
        (0, error(130_429)),
        (1, error(131_056)),
        (1, error(131_056)),
        (2, rate_limited),
        // WhatsApp is under maintenance: the message may have been sent, so its outcome is unknown.
        (3, error(131_057)),
    ];
    server
        .whatsapp
        .script(faults.map(|(n, kind)| WhatsappFault::send_to(&phone(n), kind)).to_vec());
    let (id, other_campaign) = (ana.plain_campaign(), bia.plain_campaign());
    let request = ana.command(&id, "execute");
    let run = std::thread::spawn(move || request.send());
    until("the first send was throttled", || !call_times(&server, 0).is_empty());
    assert_eq!(bia.execute(&other_campaign).ok()["status"], "completed");
    let report = run.join().unwrap().ok();
    assert_eq!((&report["sent"], &report["failed"]), (&json!(3), &json!(1)), "{report}");
    for n in [0, 1] {
        let at = call_times(&server, n);
        assert_eq!(at.len(), 3);
        let (first, second) = (at[1] - at[0], at[2] - at[1]);
        // Throttling of the number reduces its send rate. Only throttling of the pair makes each wait longer.
        assert!(
            first >= 800 && (n == 0 || second > first),
            "{first} ms, then {second} ms"
        );
        assert!(
            (1000..1030).all(|contact| call_times(&server, contact)[0] < at[2]),
            "another number waited"
        );
    }
    let at = call_times(&server, 2);
    assert!(at.len() == 2 && at[1] - at[0] >= 1900, "{at:?}");
    assert_eq!(call_times(&server, 3).len(), 1);
    let stats = ana.stats(&id);
    assert_eq!((&stats["failed"], &stats["pending"]), (&json!(0), &json!(1)), "{stats}");
    let sends = ana.sends(&id);
    let unknown = sends.iter().find(|send| send["status"] == "pending").unwrap();
    let update = status("wamid.late", "sent", Some(&text(&unknown["id"])));
    server.callback(&statuses(number, &[update])).expect(200);
    assert_eq!(ana.stats(&id)["sent"], 4);
}

/// F04: the number exceeds WhatsApp's rate limit.
#[test]
fn number_over_its_throughput_sends_every_message_once() {
    let options = Options::with_whatsapp(|whatsapp| {
        (whatsapp.sent_ms, whatsapp.delivered_ms, whatsapp.read_ms) = (None, None, None);
        whatsapp.number_rate = Some(20);
    });
    let server = Server::start(options);
    let ana = server.owner();
    ana.profile_without_check();
    ana.contacts(45);
    let id = ana.plain_campaign();
    assert_eq!(ana.execute(&id).ok()["status"], "completed");
    let counters = server.whatsapp.counters();
    assert!(counters.rejected > 0, "WhatsApp never throttled the number");
    assert_eq!((counters.accepted, counters.per_recipient_max), (45, 1));
    assert_eq!(ana.stats(&id)["failed"], 0);
}

/// F04: WhatsApp grants a number far less than its profile states. The number slows down without using up attempts.
#[test]
fn number_far_over_its_throughput_fails_no_send() {
    let options = Options::with_whatsapp(|whatsapp| {
        (whatsapp.sent_ms, whatsapp.delivered_ms, whatsapp.read_ms) = (None, None, None);
        whatsapp.number_rate = Some(10);
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
    assert_eq!(final_status(&ana, &id), "completed");
    let counters = server.whatsapp.counters();
    assert!(counters.rejected > 0, "WhatsApp never throttled the number");
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

/// The number of sends that did not reach WhatsApp and wait for a retry.
fn waiting_for_retry(server: &Server) -> i64 {
    server.db.count(
        "FROM campaign_sends WHERE status = 'pending' AND started_at IS NULL AND unknown_at IS NULL
           AND retry_at IS NOT NULL",
    )
}

/// F05.
#[test]
fn send_with_refused_connection_is_retried_and_sent_once() {
    let port = ReservedPort::new().unwrap();
    let url = format!("http://{}/v25.0", port.address());
    let server = Server::start(without_statuses().with("WHATSAPP_API_URL", url));
    let ana = server.owner();
    ana.profile_without_check();
    let mut phones = ana.contacts(3);
    let id = ana.plain_campaign();
    ana.send(&id);
    until("all sends were refused a connection and wait", || {
        waiting_for_retry(&server) == 3
    });
    let whatsapp = RawWhatsapp::start(port.number(), |to| accepted(&format!("wamid.{to}")));
    until("all sends are sent", || {
        make_retries_due(&server);
        ana.status(&id) != "sending"
    });
    assert_eq!(ana.status(&id), "completed");
    let mut received: Vec<String> = whatsapp
        .received()
        .iter()
        .map(|to| format!("+{}", to.trim_start_matches('+')))
        .collect();
    received.sort();
    phones.sort();
    assert_eq!(received, phones);
    assert_eq!(usage(&server, &ana.account), "3 0");
}

/// A listener without TLS, and the first bytes that each client sent.
fn listener_without_tls() -> (Acceptor, mpsc::Receiver<Vec<u8>>) {
    let (sender, receiver) = mpsc::channel();
    let acceptor = Acceptor::start(ANY_FREE_PORT, move |mut stream| {
        let mut bytes = vec![0; 4096];
        let length = stream.read(&mut bytes).unwrap_or(0);
        bytes.truncate(length);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok();
        sender.send(bytes).unwrap();
    });
    (acceptor.unwrap(), receiver)
}

/// Runs a campaign while WhatsApp is unreachable: its sends are retried, and no outcome is unknown.
fn assert_unreachable_is_retried(url: &str) {
    let server = Server::start(without_statuses().with("WHATSAPP_API_URL", url));
    let ana = server.owner();
    ana.profile_without_check();
    ana.contacts(2);
    let id = ana.plain_campaign();
    ana.send(&id);
    until("both sends are retried", || {
        waiting_for_retry(&server) == 2 && server.db.count("FROM campaign_sends WHERE attempts >= 2") == 2
    });
    assert_eq!(usage(&server, &ana.account), "0 2");
    ana.cancel(&id).ok();
    until("the reservation is released", || usage(&server, &ana.account) == "0 0");
    assert_eq!(ana.stats(&id)["pending"], 2);
}

/// F05: two ways in which no connection succeeds, and a WhatsApp that receives the message and hangs longer than the
/// timeout.
#[test]
fn send_that_never_left_is_retried_and_hanging_one_is_not() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_without_check();
    ana.contacts(5);
    server.whatsapp.script(vec![WhatsappFault::send_to(
        &phone(1),
        WhatsappFaultKind::Hang { ms: 300_000 },
    )]);
    let id = ana.plain_campaign();
    ana.send(&id);
    let (listener, receiver) = listener_without_tls();
    assert_unreachable_is_retried(&format!("https://{}/v25.0", listener.address()));
    let received: Vec<Vec<u8>> = receiver.try_iter().collect();
    assert!(
        received.len() >= 4,
        "each of the two sends needs at least two connections: {}",
        received.len()
    );
    assert!(
        received.iter().all(|bytes| bytes.first() == Some(&22)),
        "data was sent before the TLS handshake"
    );
    assert_unreachable_is_retried("https://whatsapp.invalid/v25.0");
    assert_eq!(final_status(&ana, &id), "partial");
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
fn campaign_with_all_sends_rejected_stores_every_reason() {
    const CONTACTS: usize = 150;
    const CODES: [u32; 3] = [131_026, 131_047, 131_008];
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_without_check();
    ana.contacts(CONTACTS);
    let refusals = (0..CONTACTS).map(|n| WhatsappFault::send_to(&phone(n), error(CODES[n % 3])));
    server.whatsapp.script(refusals.collect());
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    let expected = json!({ "total": CONTACTS, "sent": 0, "failed": CONTACTS, "simulated": false, "status": "partial" });
    assert_eq!(report, expected);
    assert_stats_add_up(&ana.stats(&id));
    let calls = calls(&server);
    assert!(
        calls.len() == CONTACTS && calls.values().all(|calls| *calls == 1),
        "{calls:?}"
    );
    let sends = server.db.rows(&format!(
        "SELECT c.phone, s.error_code FROM campaign_sends s JOIN contacts c ON c.id = s.contact_id
         WHERE s.campaign_id = '{id}' AND s.status = 'failed' AND s.error_message <> ''"
    ));
    let codes: BTreeMap<_, _> = sends.into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    let expected = (0..CONTACTS).map(|n| (Some(phone(n)), Some(CODES[n % 3].to_string())));
    assert_eq!(codes, expected.collect());
    assert_eq!(usage(&server, &ana.account), "0 0");
}
