//! Resource limits of unauthenticated callers: no body is read before the headers are valid, bodies share a memory
//! budget, and connections are limited.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::client::{Request, connect};
use crate::harness::users::now;
use crate::harness::{GATEWAY_TOKEN, Options, Server, eventually, text, until};

/// A well-formed but invalid signature.
const FORGED: &str = "sha256=0000000000000000000000000000000000000000000000000000000000000000";

const MIB: usize = 1024 * 1024;

/// Sends a request head without the body and returns status and error code of the response.
fn send_head_only(request: &Request) -> (u16, Value) {
    let mut stream = connect(request.port());
    let head = request.head("Content-Length: 1000000\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let status = response.split(' ').nth(1).unwrap().parse().unwrap();
    let body: Value = serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap();
    (status, body["error"]["code"].clone())
}

/// F38.
#[test]
fn callbacks_are_refused_by_their_headers_alone() {
    let server = Server::new();
    let ana = server.owner();
    let hook = json!({ "name": "Loja", "direction": "inbound", "events": ["*"] });
    let hook = format!("/api/hooks/{}", text(&ana.post("/api/webhooks", hook).created()["id"]));
    let whatsapp = || server.post("/api/whatsapp/webhook");
    let signed = |path: &str, id: &str, at: &str, signature: &str| {
        let request = server.post(path).header("webhook-id", id);
        let request = request.header("webhook-timestamp", at);
        request.header("webhook-signature", signature)
    };
    let (time, stale) = (now().to_string(), (now() - 3600).to_string());
    let nowhere = "/api/hooks/0190a1b2-0000-7000-8000-000000000000";
    for (request, status, code) in [
        (whatsapp(), 401, "AUTH_ERROR"),
        (whatsapp().header("X-Hub-Signature-256", "sha256=zz"), 401, "AUTH_ERROR"),
        (
            whatsapp().header("X-Hub-Signature-256", &FORGED[..40]),
            401,
            "AUTH_ERROR",
        ),
        (signed(nowhere, "m1", &time, "v1,AAAA"), 404, "NOT_FOUND"),
        (server.post(&hook), 401, "AUTH_ERROR"),
        (signed(&hook, "m1", &stale, "v1,AAAA"), 401, "AUTH_ERROR"),
        (signed(&hook, "m1", "yesterday", "v1,AAAA"), 401, "AUTH_ERROR"),
        (signed(&hook, "", &time, "v1,AAAA"), 401, "AUTH_ERROR"),
        (signed(&hook, "m1", &time, "v2,AAAA"), 401, "AUTH_ERROR"),
        (server.post("/api/billing/webhook"), 401, "AUTH_ERROR"),
        (
            server
                .post("/api/billing/webhook")
                .header("gateway-access-token", "wrong"),
            401,
            "AUTH_ERROR",
        ),
    ] {
        let line = request.head("");
        assert_eq!(send_head_only(&request), (status, json!(code)), "{line}");
    }
}

/// Sends valid headers and the first part of a body, which is never completed.
fn send_partial_body(request: &Request, bytes: usize) -> TcpStream {
    let mut stream = connect(request.port());
    let head = request.head(&format!("Content-Length: {}\r\n\r\n", bytes + 1000));
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b' '; bytes]).unwrap();
    stream
}

/// F38.
#[test]
fn bodies_of_callbacks_share_one_budget() {
    let server = Server::start(Options::default().with("CALLBACK_MEMORY", "4MiB"));
    let body = json!({ "entry": [], "filler": "x".repeat(MIB) });
    assert_eq!(server.callback(&body).status, 200);
    let gateway = server
        .post("/api/billing/webhook")
        .header("gateway-access-token", GATEWAY_TOKEN);
    let forged = server
        .post("/api/whatsapp/webhook")
        .header("X-Hub-Signature-256", FORGED);
    // Two partial bodies leave less than 1 MiB of the budget.
    let held = [
        send_partial_body(&forged, 3 * MIB / 2),
        send_partial_body(&gateway, 3 * MIB / 2),
    ];
    let reply = eventually("the memory budget is exhausted", || {
        // The server may reject the request and close the connection before the whole body is written.
        let reply = server.callback_request(&body).try_send().ok()?;
        (reply.status == 503).then_some(reply)
    });
    assert_eq!(reply.header("retry-after"), Some("1"));
    reply.refused(503, "UNAVAILABLE");
    // A small callback still fits, and other routes do not use the budget.
    assert_eq!(server.callback(&json!({ "entry": [] })).status, 200);
    server.owner().tag("elsewhere");
    drop(held);
    until("the budget is free again", || {
        let reply = server.callback_request(&body).try_send();
        reply.is_ok_and(|reply| reply.status == 200)
    });
}

/// Opens a keep-alive connection. Returns `Err` if no response comes in time.
fn open_connection(server: &Server) -> Result<TcpStream, TcpStream> {
    let mut stream = connect(server.port());
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    match stream.peek(&mut [0; 12]) {
        Ok(12) => Ok(stream),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Err(stream),
        other => panic!("{other:?}"),
    }
}

/// F38.
#[test]
fn connections_beyond_the_limit_wait_for_others_to_end() {
    const LIMIT: usize = 16;
    let server = Server::start(Options::default().with("MAX_CONNECTIONS", LIMIT.to_string()));
    let (mut open, mut waiting) = (Vec::new(), None);
    while waiting.is_none() {
        match open_connection(&server) {
            Ok(stream) => open.push(stream),
            Err(stream) => waiting = Some(stream),
        }
        assert!(open.len() <= LIMIT, "{} connections are open", open.len());
    }
    drop(open);
    let mut waiting = waiting.unwrap();
    waiting.set_read_timeout(Some(crate::harness::DEADLINE)).unwrap();
    let mut response = [0; 12];
    waiting.read_exact(&mut response).unwrap();
    assert_eq!(&response, b"HTTP/1.1 200");
}
