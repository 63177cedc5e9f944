//! What the client says of calls that go wrong.

use std::time::{Duration, Instant};

use recado_gateways::http::{CallError, GatewayRequest, Http};
use recado_simulators::raw::{ANYWHERE, RawServer, Reply, closed_address};
use serde_json::json;
use tokio::net::TcpListener;

/// Short, for what is meant to run out.
const SHORT: Duration = Duration::from_millis(500);

fn client() -> Http {
    Http::new().unwrap()
}

async fn failed(reply: Reply, change: impl FnOnce(GatewayRequest) -> GatewayRequest) -> (CallError, usize) {
    let server = RawServer::replying(vec![reply]).unwrap();
    let request = GatewayRequest::post(format!("{}/x", server.origin()), &json!({ "a": 1 }));
    let error = client().call(change(request)).await.unwrap_err();
    (error, server.heads().len())
}

#[tokio::test]
async fn an_answer_is_read_and_the_connection_kept() {
    let server = RawServer::replying(vec![
        Reply::http("200 OK", "{\"a\":1}"),
        Reply::http("302 Found\r\nLocation: /y", ""),
    ])
    .unwrap();
    let client = client();
    let answer = client
        .call(GatewayRequest::get(format!("{}/x?y=1", server.origin())))
        .await
        .unwrap();
    assert_eq!(
        (answer.status, answer.json::<serde_json::Value>()),
        (200, Some(json!({ "a": 1 })))
    );
    let answer = client
        .call(GatewayRequest::get(format!("{}/x", server.origin())))
        .await
        .unwrap();
    assert_eq!(answer.status, 302, "redirects are not followed");
    let requests = server.heads();
    assert_eq!(requests.len(), 2);
    assert!(requests[0].starts_with("GET /x?y=1 HTTP/1.1"), "{}", requests[0]);
    assert!(
        requests[0].contains(&format!("user-agent: Recado/{}", env!("CARGO_PKG_VERSION"))),
        "{}",
        requests[0]
    );
}

#[tokio::test]
async fn without_a_connection_nothing_was_sent() {
    let refusing = closed_address(ANYWHERE).unwrap();
    // A label of more than 63 characters fails to resolve without asking anybody.
    let unresolvable = format!("http://{}.invalid/", "a".repeat(64));
    for url in [format!("http://{refusing}/"), unresolvable, "no address".into()] {
        let error = client().call(GatewayRequest::get(&url)).await.unwrap_err();
        assert!(matches!(error, CallError::NotSent(_)), "{url}: {error}");
    }
}

#[tokio::test]
async fn a_handshake_that_hangs_or_breaks_is_not_sent() {
    let listener = TcpListener::bind(ANYWHERE).await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let begun = Instant::now();
    let error = client()
        .connect_timeout(SHORT)
        .call(GatewayRequest::get(&url))
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::NotSent(_)), "{error}");
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "the time limit of connecting has to count"
    );
    // The call's own limit, when it is the shorter one.
    let error = client()
        .call(GatewayRequest::get(&url).timeout(SHORT))
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::NotSent(_)), "{error}");
    let server = RawServer::replying(vec![Reply::last("")]).unwrap();
    let url = server.origin().replace("http:", "https:");
    let error = client()
        .connect_timeout(SHORT)
        .call(GatewayRequest::get(url))
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::NotSent(_)), "{error}");
}

#[tokio::test]
async fn after_that_it_may_have_been_sent() {
    let broken = [
        (Reply::Silence, "time-out"),
        (Reply::last(""), "closed"),
        (Reply::bytes("SMTP\r\n\r\n"), "no HTTP"),
        (
            Reply::bytes("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"),
            "a body that stops",
        ),
    ];
    for (reply, what) in broken {
        let (error, requests) = failed(reply, |request| request.timeout(SHORT)).await;
        assert!(matches!(error, CallError::MaybeSent(_)), "{what}: {error}");
        assert_eq!(requests, 1, "{what}: sent once");
    }
}

#[tokio::test]
async fn too_large_an_answer_is_not_read() {
    let declared = Reply::bytes("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n");
    let chunked = Reply::bytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n");
    for reply in [declared, chunked] {
        let (error, _) = failed(reply, |request| request.cap(10)).await;
        assert!(matches!(error, CallError::MaybeSent(_)), "{error}");
    }
}

#[tokio::test]
async fn a_kept_connection_that_dies_under_a_request_is_not_tried_again() {
    let server = RawServer::replying(vec![Reply::http("200 OK", ""), Reply::last("")]).unwrap();
    let client = client();
    let url = format!("{}/x", server.origin());
    client.call(GatewayRequest::post(&url, &json!(1))).await.unwrap();
    let error = client.call(GatewayRequest::post(&url, &json!(2))).await.unwrap_err();
    assert!(matches!(error, CallError::MaybeSent(_)), "{error}");
    assert_eq!(server.heads().len(), 2, "each sent once");
}
