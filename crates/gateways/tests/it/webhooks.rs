//! Tests of webhook deliveries. The receiver verifies signatures with the Standard Webhooks library, and injects every
//! fault that an endpoint can have.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use recado_domain::webhooks::{AttemptOutcome, DeliveryFailure, DeliveryGateway as _, DeliveryRequest};
use recado_gateways::webhooks::WebhookClient;
use recado_simulators::fault::{Fault, FaultKind};
use recado_simulators::raw::{ANY_FREE_PORT, RawServer, Reply, closed_address};
use recado_simulators::receiver::{Receiver, ReceiverOptions};
use recado_testkit::DEADLINE;
use serde_json::{Value, json};

use crate::egress::{Dns, egress};

const SHORT: Duration = Duration::from_millis(700);

const KEY: [u8; 32] = *b"0123456789abcdef0123456789abcdef";

fn client() -> WebhookClient {
    WebhookClient::new(egress(&["127.0.0.0/8"], Dns::default()))
}

fn receiver() -> Receiver {
    Receiver::start(ReceiverOptions {
        secret: Some(hex::encode(KEY)),
        ..ReceiverOptions::default()
    })
    .unwrap()
}

/// A request that is signed with the current time.
fn request(url: &str, id: &str) -> DeliveryRequest {
    let timestamp = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
        .try_into()
        .unwrap();
    let body = json!({ "id": id, "type": "test.ping", "data": { "text": "Olá\u{0}\u{1F600}" } }).to_string();
    let signed = hmac::sign(
        &hmac::Key::new(hmac::HMAC_SHA256, &KEY),
        format!("{id}.{timestamp}.{body}").as_bytes(),
    );
    DeliveryRequest {
        url: url.to_owned(),
        message_id: id.to_owned(),
        timestamp,
        signatures: format!("v1,{} v1,{}", STANDARD.encode([0; 32]), STANDARD.encode(signed)),
        body: body.into_bytes(),
    }
}

fn answered(status: u16) -> AttemptOutcome {
    AttemptOutcome::Answered {
        status,
        retry_after: None,
    }
}

fn status(http_status: u16, retry_after_s: Option<u32>) -> FaultKind {
    FaultKind::Status {
        http_status,
        body: Value::Null,
        retry_after_s,
    }
}

#[tokio::test]
async fn delivery_verifies_with_standard_webhooks_library() {
    let receiver = receiver();
    let request = request(&receiver.url("/hooks/1?a=b"), "msg_1");
    assert_eq!(client().deliver(&request).await, answered(200));
    let received = receiver.deliveries().remove(0);
    assert_eq!((received.path.as_str(), received.id()), ("/hooks/1", Some("msg_1")));
    assert_eq!(received.body, request.body, "the body is unchanged");
    for (name, value) in [
        ("content-type", "application/json"),
        ("user-agent", concat!("Recado-Webhooks/", env!("CARGO_PKG_VERSION"))),
        ("webhook-timestamp", &request.timestamp.to_string()),
        ("webhook-signature", &request.signatures),
        ("content-length", &request.body.len().to_string()),
    ] {
        assert_eq!(received.header(name), Some(value), "{name}");
    }
    for unwanted in ["cookie", "authorization", "accept-encoding", "transfer-encoding"] {
        assert_eq!(received.header(unwanted), None);
    }
    received.verify(&format!("whsec_{}", STANDARD.encode(KEY))).unwrap();
    received.verify(&hex::encode([7; 32])).unwrap_err();
    // The receiver rejects a body with one changed byte.
    let mut changed = request;
    changed.body[0] = b'[';
    assert_eq!(client().deliver(&changed).await, answered(401));
}

#[tokio::test]
async fn delivery_reports_response_status_and_delay() {
    let receiver = receiver();
    let throttled = AttemptOutcome::Answered {
        status: 429,
        retry_after: Some(Duration::from_secs(120)),
    };
    for (kind, outcome) in [
        (status(204, None), answered(204)),
        (status(410, None), answered(410)),
        (status(500, None), answered(500)),
        (status(429, Some(120)), throttled),
        (FaultKind::AcceptThenStatus500, answered(500)),
        (FaultKind::GarbageJson, answered(200)),
    ] {
        receiver.script(vec![Fault::new(kind.clone())]);
        let actual = client().deliver(&request(&receiver.url("/x"), "msg_1")).await;
        assert_eq!(actual, outcome, "{kind:?}");
    }
}

#[tokio::test]
async fn delivery_reports_redirects_without_following() {
    let (receiver, canary) = (
        receiver(),
        RawServer::replying(vec![Reply::http("200 OK", "caught")]).unwrap(),
    );
    for http_status in [301, 302, 303, 307, 308] {
        for location in [
            format!("{}/x", canary.origin()),
            "/elsewhere".into(),
            "file:///etc/passwd".into(),
        ] {
            receiver.script(vec![Fault::new(FaultKind::Redirect { http_status, location })]);
            let outcome = client().deliver(&request(&receiver.url("/x"), "msg_1")).await;
            assert_eq!(outcome, answered(http_status));
        }
    }
    assert_eq!(canary.connections(), 0);
    assert!(receiver.deliveries_to("/elsewhere").is_empty());
    assert_eq!(receiver.count(), 15);
}

#[tokio::test]
async fn delivery_without_usable_response_reports_its_failure() {
    let receiver = receiver();
    let client = client().timeout(SHORT);
    for (kind, failure) in [
        (FaultKind::Hang { ms: 60_000 }, DeliveryFailure::TimedOut),
        (FaultKind::Drip { ms: 200 }, DeliveryFailure::TimedOut),
        (FaultKind::AcceptThenReset, DeliveryFailure::Broken),
        (FaultKind::AcceptThenBreakOff, DeliveryFailure::Broken),
    ] {
        receiver.script(vec![Fault::new(kind.clone())]);
        let started = Instant::now();
        let outcome = client.deliver(&request(&receiver.url("/x"), "msg_1")).await;
        assert_eq!(outcome, AttemptOutcome::Unreachable(failure), "{kind:?}");
        assert!(started.elapsed() < DEADLINE, "{kind:?}: {:?}", started.elapsed());
    }
    assert_eq!(receiver.count(), 4, "each request was sent once");
    let raw = |text: &str| Reply::bytes(text);
    let replies = [
        (raw("SMTP ready\r\n\r\n"), DeliveryFailure::Broken),
        (
            raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"),
            DeliveryFailure::TimedOut,
        ),
        (
            Reply::endless("HTTP/1.1 200 OK\r\n", "x-a: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n"),
            DeliveryFailure::Broken,
        ),
        (
            Reply::endless("HTTP/1.1 200 OK\r\nx: ", "b".repeat(1000)),
            DeliveryFailure::Broken,
        ),
        (
            Reply::endless(String::new(), "HTTP/1.1 103 Early Hints\r\n\r\n"),
            DeliveryFailure::TimedOut,
        ),
    ];
    for (reply, failure) in replies {
        let server = RawServer::replying(vec![reply]).unwrap();
        let outcome = client.deliver(&request(server.origin(), "msg_1")).await;
        assert_eq!(outcome, AttemptOutcome::Unreachable(failure), "{:?}", server.heads());
    }
}

#[tokio::test]
async fn delivery_stops_reading_an_endless_response() {
    let receiver = receiver();
    receiver.script(vec![Fault::new(FaultKind::Flood { bytes: 10 << 30 })]);
    let started = Instant::now();
    let outcome = client().deliver(&request(&receiver.url("/x"), "msg_1")).await;
    assert_eq!(outcome, answered(200));
    assert!(started.elapsed() < DEADLINE, "{:?}", started.elapsed());
    // The same with a declared length.
    let server = RawServer::replying(vec![Reply::bytes(
        "HTTP/1.1 503 No\r\nRetry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\nContent-Length: 10737418240\r\n\r\n",
    )])
    .unwrap();
    let outcome = client().deliver(&request(server.origin(), "msg_1")).await;
    let retry_after = Some(Duration::ZERO);
    assert_eq!(
        outcome,
        AttemptOutcome::Answered {
            status: 503,
            retry_after
        }
    );
}

#[tokio::test]
async fn unreachable_endpoint_reports_its_failure() {
    let closed = closed_address(ANY_FREE_PORT).unwrap();
    let dns = Dns::default()
        .with_answers("private.example", &[&["10.0.0.1"]])
        .with_answers("silent.example", &[&[]]);
    let client = WebhookClient::new(egress(&["127.0.0.0/8"], dns));
    let plain_http = receiver();
    for (url, failure) in [
        ("http://10.0.0.1/".into(), DeliveryFailure::Refused),
        ("https://ana:senha@hooks.example/".into(), DeliveryFailure::Refused),
        ("ftp://hooks.example/".into(), DeliveryFailure::Refused),
        ("http://private.example/".into(), DeliveryFailure::Refused),
        ("http://unknown.example/".into(), DeliveryFailure::Resolution),
        ("http://silent.example/".into(), DeliveryFailure::Resolution),
        (format!("http://{closed}/"), DeliveryFailure::Connection),
        (plain_http.url("/").replace("http:", "https:"), DeliveryFailure::Tls),
    ] {
        let outcome = client.deliver(&request(&url, "msg_1")).await;
        assert_eq!(outcome, AttemptOutcome::Unreachable(failure), "{url}");
    }
}

#[tokio::test]
async fn delivery_to_this_machine_requires_an_allow_list() {
    let receiver = receiver();
    let client = WebhookClient::new(egress(&[], Dns::default()));
    let outcome = client.deliver(&request(&receiver.url("/x"), "msg_1")).await;
    assert_eq!(outcome, AttemptOutcome::Unreachable(DeliveryFailure::Refused));
    assert_eq!(receiver.count(), 0);
}

#[tokio::test]
async fn deliveries_share_connections() {
    let server = RawServer::replying(vec![Reply::http("200 OK", "{}")]).unwrap();
    let (client, url) = (client(), server.origin().to_owned());
    let deliveries = (0..1000).map(|number| {
        let (client, request) = (client.clone(), request(&url, &format!("msg_{number}")));
        async move { client.deliver(&request).await }
    });
    let outcomes: Vec<AttemptOutcome> = futures_util::stream::iter(deliveries)
        .buffer_unordered(16)
        .collect()
        .await;
    assert!(outcomes.iter().all(|outcome| *outcome == answered(200)), "{outcomes:?}");
    assert_eq!(server.heads().len(), 1000);
    assert!(server.connections() <= 32, "{}", server.connections());
}
