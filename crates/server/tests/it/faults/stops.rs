//! A server that is asked to end, under load and with a campaign under way.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::client::{Request, connect};
use crate::harness::runs::{calls, silent, usage};
use crate::harness::users::User;
use crate::harness::{DEADLINE, Server, Sibling, until};

const EXIT_WITHIN: Duration = Duration::from_secs(60);

/// How long a run that nobody gave back would be left alone.
const LEASE: Duration = Duration::from_secs(30);

/// A connection that was used once and is kept.
fn idle(server: &Server) -> TcpStream {
    let mut stream = connect(server.port());
    stream
        .write_all(server.get("/healthz").head("\r\n").as_bytes())
        .unwrap();
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).unwrap();
    assert!(answer[..length].starts_with(b"HTTP/1.1 200"));
    stream
}

/// Asks again and again, each time on a connection of its own, until nobody listens any more. Whoever was let in is
/// answered.
fn ask(request: &Request, asked: &AtomicUsize, stopping: &AtomicBool) {
    loop {
        let before = stopping.load(Ordering::SeqCst);
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", request.port())) else {
            assert!(stopping.load(Ordering::SeqCst), "refused by a server that nobody stops");
            return;
        };
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
            .write_all(request.head("Connection: close\r\n\r\n").as_bytes())
            .ok();
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let answered = answer.starts_with(b"HTTP/1.1 200") || answer.starts_with(b"HTTP/1.1 503");
        if !answered {
            // It came to the door after the door was closed.
            assert!(stopping.load(Ordering::SeqCst), "before {before}: {read:?} {answer:?}");
            return;
        }
        asked.fetch_add(1, Ordering::SeqCst);
    }
}

/// The run that a server gave back goes on with another one, long before its lease would have ended.
fn goes_on_elsewhere(ana: &User<'_>, other: &Sibling, id: &str, handed_over: usize) {
    let campaign = || {
        let request = other.request("GET", &format!("/api/campaigns/{id}")).bearer(&ana.token);
        request.send().ok()
    };
    let began = Instant::now();
    until("the other server goes on", || {
        ana.server.whatsapp.sends().len() > handed_over + 5
    });
    assert!(began.elapsed() < LEASE, "{:?}", began.elapsed());
    until("the run ends", || campaign()["status"] != "sending");
    assert_eq!(campaign()["status"], json!("completed"), "nothing is left in doubt");
}

/// F40a.
#[test]
fn a_server_that_ends_under_load_answers_whom_it_let_in_and_hands_its_run_on_at_once() {
    const CONTACTS: usize = 150;
    let server = Server::start(silent().with("CAMPAIGN_MESSAGE_DELAY_MS", "40"));
    let other = server.sibling();
    let ana = server.owner();
    ana.profile();
    ana.contacts(CONTACTS);
    let id = ana.plain_campaign();
    let run = ana.command(&id, "execute");
    let waiting = std::thread::spawn(move || run.send());
    until("some were sent", || server.whatsapp.counters().accepted >= 20);
    let mut kept: Vec<TcpStream> = (0..8).map(|_| idle(&server)).collect();
    // A probe that had begun to speak before.
    let mut probe = connect(server.port());
    probe.write_all(server.get("/readyz").head("").as_bytes()).unwrap();
    let (asked, stopping) = (AtomicUsize::new(0), AtomicBool::new(false));
    let load = ana.request("GET", "/api/contacts?limit=5");
    let handed_over = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| ask(&load, &asked, &stopping));
        }
        until("the load is there", || asked.load(Ordering::SeqCst) > 40);
        let began = Instant::now();
        stopping.store(true, Ordering::SeqCst);
        server.terminate();
        // It says so before the door is closed.
        until("it is not ready", || {
            server.get("/readyz").try_send().is_ok_and(|reply| reply.status == 503)
        });
        // Whoever had begun to ask before gets the same word, or a closed door.
        probe.write_all(b"\r\n").ok();
        let before = server.whatsapp.sends().len();
        assert_eq!(server.wait(), Some(0));
        assert!(began.elapsed() < EXIT_WITHIN, "{:?}", began.elapsed());
        before
    });
    let mut answer = Vec::new();
    probe.read_to_end(&mut answer).ok();
    // On a busy machine its head took longer than a head may.
    let words = [b"HTTP/1.1 503", b"HTTP/1.1 408"];
    assert!(
        answer.is_empty() || words.iter().any(|word| answer.starts_with(*word)),
        "{answer:?}"
    );
    let told = waiting.join().unwrap();
    assert_eq!(told.header("retry-after"), Some("1"));
    told.refused(503, "UNAVAILABLE");
    for stream in &mut kept {
        assert_eq!(
            stream.read(&mut [0; 64]).unwrap(),
            0,
            "a kept connection ends with a farewell, not with a reset"
        );
    }
    assert!(handed_over < CONTACTS, "the run was over before");
    goes_on_elsewhere(&ana, &other, &id, handed_over);
    let calls = calls(&server);
    assert!(
        calls.len() == CONTACTS && calls.values().all(|calls| *calls == 1),
        "{calls:?}"
    );
    assert_eq!(usage(&server, &ana.account), format!("{CONTACTS} 0"));
}
