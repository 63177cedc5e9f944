//! The receiver simulator: what it keeps, what it verifies, what it does instead of answering.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use recado_simulators::fault::{Fault, FaultKind};
use recado_simulators::receiver::{Receiver, ReceiverOptions};
use serde_json::json;

use crate::{Response, request, until};

fn post(receiver: &Receiver, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Response, ureq::Error> {
    request("POST", &receiver.url(path), headers, Some(body))
}

/// What comes back to a POST, to the end of the connection.
fn raw(receiver: &Receiver) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(receiver.origin().trim_start_matches("http://"))?;
    stream.write_all(b"POST /raw HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

#[test]
fn everything_is_kept_byte_for_byte() {
    let receiver = Receiver::start(ReceiverOptions::default()).unwrap();
    let body = b"{ \"a\" :\t1 }\xff";
    assert_eq!(
        post(&receiver, "/a/b", &[("Webhook-Id", "msg_1")], body)
            .unwrap()
            .status,
        200
    );
    assert_eq!(request("GET", &receiver.url("/a/b"), &[], None).unwrap().status, 405);
    let came = receiver.deliveries_to("/a/b").remove(0);
    assert_eq!(
        (came.body.as_slice(), came.id(), came.status),
        (&body[..], Some("msg_1"), Some(200))
    );
    assert_eq!((receiver.count(), receiver.ledger().len()), (1, 2));
    let shown = request("GET", &receiver.url("/_sim/deliveries"), &[], None)
        .unwrap()
        .json();
    assert_eq!(shown[0]["body_base64"], "eyAiYSIgOgkxIH3/");
    request("POST", &receiver.url("/_sim/reset"), &[], None).unwrap();
    assert_eq!(receiver.count(), 0);
}

#[test]
fn a_shop_has_a_page_in_the_characters_that_it_names() {
    let receiver = Receiver::start(ReceiverOptions::default()).unwrap();
    let mut stream = TcpStream::connect(receiver.origin().trim_start_matches("http://")).unwrap();
    stream
        .write_all(b"GET /site HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let holds = |part: &[u8]| answer.windows(part.len()).any(|window| window == part);
    assert!(holds(b"200 OK") && holds(b"charset=\"iso-8859-1\"") && holds(b"<script>"));
    assert!(holds(b"P\xe3es de fermenta\xe7\xe3o natural"), "one byte a letter");
    assert!(String::from_utf8(answer.clone()).is_err());
    assert!(!holds(b"?<"), "every character is one of the set");
    assert_eq!(receiver.count(), 0, "a page is no delivery");
}

#[test]
fn a_signature_is_verified_by_the_library_of_the_standard() {
    // The contract's own example: right in every byte, and long past.
    let secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    let body = r#"{"type":"campaign.completed","timestamp":"2026-01-02T03:04:05Z","data":{"id":"11111111-1111-4111-8111-111111111111"}}"#;
    let headers = [
        ("webhook-id", "msg_test_1"),
        ("webhook-timestamp", "1767323045"),
        ("webhook-signature", "v1,WZEredzRFYANp8UrGiuHpdWs1P793MgX3wqDCSFhADM="),
    ];
    let receiver = Receiver::start(ReceiverOptions {
        secret: Some(secret.into()),
        ..ReceiverOptions::default()
    })
    .unwrap();
    let refused = post(&receiver, "/x", &headers, body.as_bytes()).unwrap();
    assert_eq!(
        (refused.status, &refused.json()["error"]),
        (401, &json!("signature timestamp too old"))
    );
    let unsigned = post(&receiver, "/x", &headers[..2], body.as_bytes()).unwrap();
    assert_eq!(unsigned.json()["error"], "missing header signature");
    assert_eq!(receiver.deliveries()[0].status, Some(401));
}

#[test]
fn scripted_answers() {
    let receiver = Receiver::start(ReceiverOptions::default()).unwrap();
    let location = "http://127.0.0.1:1/x".to_owned();
    receiver.script(vec![
        Fault::new(FaultKind::Redirect {
            http_status: 307,
            location,
        }),
        Fault::new(FaultKind::AcceptThenReset),
        Fault::new(FaultKind::AcceptThenBreakOff),
        Fault::new(FaultKind::Drip { ms: 1 }),
        Fault::new(FaultKind::Flood { bytes: 200_000 }),
    ]);
    let redirected = String::from_utf8(raw(&receiver).unwrap()).unwrap().to_lowercase();
    assert!(redirected.starts_with("http/1.1 307") && redirected.contains("location: http://127.0.0.1:1/x"));
    assert_eq!(raw(&receiver).unwrap(), b"", "an end, and nothing before it");
    assert_eq!(raw(&receiver).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert!(raw(&receiver).unwrap().ends_with(b"{\"received\":true}"));
    assert!(raw(&receiver).unwrap().len() > 200_000);
    assert_eq!(receiver.deliveries().len(), 5);
}

#[test]
fn a_fault_may_stay_for_one_endpoint() {
    let receiver = Receiver::start(ReceiverOptions::default()).unwrap();
    let gone = FaultKind::status(410, json!(null));
    receiver.script(vec![Fault::new(gone).on("POST", "/dead").for_good()]);
    let status = |path| post(&receiver, path, &[], b"{}").unwrap().status;
    assert_eq!(
        [status("/dead"), status("/alive"), status("/dead"), status("/dead")],
        [410, 200, 410, 410]
    );
    receiver.forget_faults();
    assert_eq!(status("/dead"), 200);
}

#[test]
fn a_flood_ends_with_whoever_has_had_enough() {
    let receiver = Receiver::start(ReceiverOptions::default()).unwrap();
    receiver.script(vec![Fault::new(FaultKind::Flood { bytes: 10 << 30 })]);
    let mut stream = TcpStream::connect(receiver.origin().trim_start_matches("http://")).unwrap();
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    stream.read_exact(&mut [0; 100_000]).unwrap();
    drop(stream);
    until("the next is answered", || {
        post(&receiver, "/", &[], b"").is_ok_and(|answer| answer.status == 200)
    });
}
