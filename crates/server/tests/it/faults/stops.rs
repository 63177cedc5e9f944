//! Graceful shutdown under load and with a campaign in progress.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::client::{Request, connect};
use crate::harness::runs::{calls, usage, without_statuses};
use crate::harness::users::User;
use crate::harness::{DEADLINE, Server, Sibling, until};

/// The time after which another server could claim a run that was not released.
const LEASE: Duration = Duration::from_secs(30);

/// A keep-alive connection that has served one request.
fn idle_connection(server: &Server) -> TcpStream {
    let mut stream = connect(server.port());
    stream
        .write_all(server.get("/healthz").head("\r\n").as_bytes())
        .unwrap();
    let mut response = vec![0; 4096];
    let length = stream.read(&mut response).unwrap();
    assert!(response[..length].starts_with(b"HTTP/1.1 200"));
    stream
}

/// Sends requests, each on a new connection, until connections are refused. Every admitted request must get a response.
fn send_until_refused(request: &Request, answered: &AtomicUsize, stopping: &AtomicBool) {
    loop {
        let before = stopping.load(Ordering::SeqCst);
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", request.port())) else {
            assert!(stopping.load(Ordering::SeqCst), "connection refused before the stop");
            return;
        };
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
            .write_all(request.head("Connection: close\r\n\r\n").as_bytes())
            .ok();
        let mut response = Vec::new();
        let read = stream.read_to_end(&mut response);
        let is_complete = response.starts_with(b"HTTP/1.1 200") || response.starts_with(b"HTTP/1.1 503");
        if !is_complete {
            // The connection reached the listener after it had stopped accepting.
            assert!(
                stopping.load(Ordering::SeqCst),
                "before {before}: {read:?} {response:?}"
            );
            return;
        }
        answered.fetch_add(1, Ordering::SeqCst);
    }
}

/// Asserts that another server continues the released run long before the lease would have expired.
fn assert_run_continues(ana: &User<'_>, other_server: &Sibling, id: &str, sent_before: usize) {
    let campaign = || {
        let request = other_server
            .request("GET", &format!("/api/campaigns/{id}"))
            .bearer(&ana.token);
        request.send().ok()
    };
    let began = Instant::now();
    until("the other server continues the run", || {
        ana.server.whatsapp.sends().len() > sent_before + 5
    });
    assert!(began.elapsed() < LEASE, "{:?}", began.elapsed());
    until("the run ends", || campaign()["status"] != "sending");
    assert_eq!(campaign()["status"], json!("completed"), "no outcome is unknown");
}

/// F40a.
#[test]
fn stopping_server_answers_admitted_requests_and_yields_run() {
    const CONTACTS: usize = 150;
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "40"));
    let other_server = server.sibling();
    let ana = server.owner();
    ana.profile();
    ana.contacts(CONTACTS);
    let id = ana.plain_campaign();
    let run = ana.command(&id, "execute");
    let waiting = std::thread::spawn(move || run.send());
    until("some messages were sent", || server.whatsapp.counters().accepted >= 20);
    let mut idle: Vec<TcpStream> = (0..8).map(|_| idle_connection(&server)).collect();
    // A probe that sends part of its request before the stop.
    let mut probe = connect(server.port());
    probe.write_all(server.get("/readyz").head("").as_bytes()).unwrap();
    let (answered, stopping) = (AtomicUsize::new(0), AtomicBool::new(false));
    let load = ana.request("GET", "/api/contacts?limit=5");
    let sent_before = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| send_until_refused(&load, &answered, &stopping));
        }
        until("the load has started", || answered.load(Ordering::SeqCst) > 40);
        stopping.store(true, Ordering::SeqCst);
        server.terminate();
        // The server reports that it is not ready before it stops listening.
        until("the server is not ready", || {
            server.get("/readyz").try_send().is_ok_and(|reply| reply.status == 503)
        });
        // A request that began before the stop gets 503, or its connection is closed.
        probe.write_all(b"\r\n").ok();
        let before = server.whatsapp.sends().len();
        assert_eq!(server.wait(), Some(0));
        before
    });
    let mut response = Vec::new();
    probe.read_to_end(&mut response).ok();
    // On a busy machine the request head may have timed out.
    let statuses = [b"HTTP/1.1 503", b"HTTP/1.1 408"];
    assert!(
        response.is_empty() || statuses.iter().any(|status| response.starts_with(*status)),
        "{response:?}"
    );
    let reply = waiting.join().unwrap();
    assert_eq!(reply.header("retry-after"), Some("1"));
    reply.refused(503, "UNAVAILABLE");
    for stream in &mut idle {
        assert_eq!(
            stream.read(&mut [0; 64]).unwrap(),
            0,
            "an idle connection must be closed, not reset"
        );
    }
    assert!(sent_before < CONTACTS, "the run was over before");
    assert_run_continues(&ana, &other_server, &id, sent_before);
    let calls = calls(&server);
    assert!(
        calls.len() == CONTACTS && calls.values().all(|calls| *calls == 1),
        "{calls:?}"
    );
    assert_eq!(usage(&server, &ana.account), format!("{CONTACTS} 0"));
}
