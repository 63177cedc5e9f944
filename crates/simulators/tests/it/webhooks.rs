//! The receiver simulator: stored deliveries, verified signatures, scripted faults.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use recado_simulators::fault::{Fault, FaultKind};
use recado_simulators::receiver::{Receiver, ReceiverOptions};
use serde_json::json;

use crate::{Response, request, wait_until};

fn post(receiver: &Receiver, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Response, ureq::Error> {
    request("POST", &receiver.url(path), headers, Some(body))
}

/// Posts and returns all bytes up to the end of the connection.
fn post_raw(receiver: &Receiver) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(receiver.origin().trim_start_matches("http://"))?;
    stream.write_all(b"POST /raw HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    Ok(response)
}

#[test]
fn receiver_stores_deliveries_byte_for_byte() {
    let receiver = Receiver::start(ReceiverOptions::default()).unwrap();
    let body = b"{ \"a\" :\t1 }\xff";
    assert_eq!(
        post(&receiver, "/a/b", &[("Webhook-Id", "msg_1")], body)
            .unwrap()
            .status,
        200
    );
    assert_eq!(request("GET", &receiver.url("/a/b"), &[], None).unwrap().status, 405);
    let delivery = receiver.deliveries_to("/a/b").remove(0);
    assert_eq!(
        (delivery.body.as_slice(), delivery.id(), delivery.status),
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
fn receiver_site_is_encoded_in_its_declared_charset() {
    let receiver = Receiver::start(ReceiverOptions::default()).unwrap();
    let mut stream = TcpStream::connect(receiver.origin().trim_start_matches("http://")).unwrap();
    stream
        .write_all(b"GET /site HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    let contains = |part: &[u8]| response.windows(part.len()).any(|window| window == part);
    assert!(contains(b"200 OK") && contains(b"charset=\"iso-8859-1\"") && contains(b"<script>"));
    assert!(
        contains(b"P\xe3es de fermenta\xe7\xe3o natural"),
        "one byte per character"
    );
    assert!(String::from_utf8(response.clone()).is_err());
    assert!(!contains(b"?<"), "every character exists in the charset");
    assert_eq!(receiver.count(), 0, "a page view is not a delivery");
}

#[test]
fn receiver_with_secret_rejects_bad_signatures() {
    // The example of the contract: a valid signature with an expired timestamp.
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
fn receiver_faults_change_the_response() {
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
    let redirected = String::from_utf8(post_raw(&receiver).unwrap()).unwrap().to_lowercase();
    assert!(redirected.starts_with("http/1.1 307") && redirected.contains("location: http://127.0.0.1:1/x"));
    assert_eq!(post_raw(&receiver).unwrap(), b"", "the connection ends without a byte");
    assert_eq!(
        post_raw(&receiver).unwrap_err().kind(),
        std::io::ErrorKind::ConnectionReset
    );
    assert!(post_raw(&receiver).unwrap().ends_with(b"{\"received\":true}"));
    assert!(post_raw(&receiver).unwrap().len() > 200_000);
    assert_eq!(receiver.deliveries().len(), 5);
}

#[test]
fn receiver_fault_can_be_permanent_for_one_endpoint() {
    let receiver = Receiver::start(ReceiverOptions::default()).unwrap();
    let gone = FaultKind::status(410, json!(null));
    receiver.script(vec![Fault::new(gone).on("POST", "/dead").for_good()]);
    let status = |path| post(&receiver, path, &[], b"{}").unwrap().status;
    assert_eq!(
        [status("/dead"), status("/alive"), status("/dead"), status("/dead")],
        [410, 200, 410, 410]
    );
    receiver.clear_faults();
    assert_eq!(status("/dead"), 200);
}

#[test]
fn receiver_flood_ends_when_the_client_disconnects() {
    let receiver = Receiver::start(ReceiverOptions::default()).unwrap();
    receiver.script(vec![Fault::new(FaultKind::Flood { bytes: 10 << 30 })]);
    let mut stream = TcpStream::connect(receiver.origin().trim_start_matches("http://")).unwrap();
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    stream.read_exact(&mut [0; 100_000]).unwrap();
    drop(stream);
    wait_until("a response to the next POST", || {
        post(&receiver, "/", &[], b"").is_ok_and(|response| response.status == 200)
    });
}
