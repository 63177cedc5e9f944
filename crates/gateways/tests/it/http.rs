//! Tests of the HTTP client's errors.

use std::time::{Duration, Instant};

use recado_gateways::http::{CallError, GatewayRequest, Http};
use recado_simulators::raw::{ANY_FREE_PORT, RawServer, Reply, closed_address};
use recado_testkit::DEADLINE;
use serde_json::json;
use tokio::net::TcpListener;

/// A timeout that is expected to expire.
const SHORT: Duration = Duration::from_millis(500);

fn client() -> Http {
    Http::new().unwrap()
}

async fn error_and_request_count(
    reply: Reply,
    change: impl FnOnce(GatewayRequest) -> GatewayRequest,
) -> (CallError, usize) {
    let server = RawServer::replying(vec![reply]).unwrap();
    let request = GatewayRequest::post(format!("{}/x", server.origin()), &json!({ "a": 1 }));
    let error = client().call(change(request)).await.unwrap_err();
    (error, server.heads().len())
}

#[tokio::test]
async fn http_client_reads_response_and_reuses_connection() {
    let server = RawServer::replying(vec![
        Reply::http("200 OK", "{\"a\":1}"),
        Reply::http("302 Found\r\nLocation: /y", ""),
    ])
    .unwrap();
    let client = client();
    let response = client
        .call(GatewayRequest::get(format!("{}/x?y=1", server.origin())))
        .await
        .unwrap();
    assert_eq!(
        (response.status, response.json::<serde_json::Value>()),
        (200, Some(json!({ "a": 1 })))
    );
    let response = client
        .call(GatewayRequest::get(format!("{}/x", server.origin())))
        .await
        .unwrap();
    assert_eq!(response.status, 302, "redirects are not followed");
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
async fn http_call_without_connection_is_not_sent() {
    let refusing = closed_address(ANY_FREE_PORT).unwrap();
    // A label of more than 63 characters fails to resolve without a DNS query.
    let unresolvable = format!("http://{}.invalid/", "a".repeat(64));
    for url in [format!("http://{refusing}/"), unresolvable, "not a URL".into()] {
        let error = client().call(GatewayRequest::get(&url)).await.unwrap_err();
        assert!(matches!(error, CallError::NotSent(_)), "{url}: {error}");
    }
}

#[tokio::test]
async fn http_call_with_failed_handshake_is_not_sent() {
    let listener = TcpListener::bind(ANY_FREE_PORT).await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let started = Instant::now();
    let error = client()
        .connect_timeout(SHORT)
        .call(GatewayRequest::get(&url))
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::NotSent(_)), "{error}");
    assert!(started.elapsed() < DEADLINE, "the connect timeout must apply");
    // The call's timeout applies if it is shorter.
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
async fn http_call_that_fails_after_connecting_is_maybe_sent() {
    let cases = [
        (Reply::NoResponse, "timeout"),
        (Reply::last(""), "closed"),
        (Reply::bytes("SMTP\r\n\r\n"), "no HTTP"),
        (
            Reply::bytes("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"),
            "a body that stops",
        ),
    ];
    for (reply, case) in cases {
        let (error, requests) = error_and_request_count(reply, |request| request.timeout(SHORT)).await;
        assert!(matches!(error, CallError::MaybeSent(_)), "{case}: {error}");
        assert_eq!(requests, 1, "{case}: sent once");
    }
}

#[tokio::test]
async fn http_response_over_the_limit_is_refused() {
    let declared = Reply::bytes("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n");
    let chunked = Reply::bytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n");
    for reply in [declared, chunked] {
        let (error, _) = error_and_request_count(reply, |request| request.max_response_bytes(10)).await;
        assert!(matches!(error, CallError::MaybeSent(_)), "{error}");
    }
}

#[tokio::test]
async fn http_request_on_dying_pooled_connection_is_not_retried() {
    let server = RawServer::replying(vec![Reply::http("200 OK", ""), Reply::last("")]).unwrap();
    let client = client();
    let url = format!("{}/x", server.origin());
    client.call(GatewayRequest::post(&url, &json!(1))).await.unwrap();
    let error = client.call(GatewayRequest::post(&url, &json!(2))).await.unwrap_err();
    assert!(matches!(error, CallError::MaybeSent(_)), "{error}");
    assert_eq!(server.heads().len(), 2, "each sent once");
}

#[test]
fn connection_outlives_the_runtime_that_asked_for_it() {
    let server = RawServer::replying(vec![Reply::http("200 OK", ""), Reply::http("200 OK", "")]).unwrap();
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .worker_threads(1)
            .build()
            .unwrap()
    };
    let (owner, asking) = (runtime(), runtime());
    let client = owner.block_on(async { client() });
    let call = || async { client.call(GatewayRequest::get(server.origin())).await };
    assert_eq!(asking.block_on(call()).unwrap().status, 200);
    drop(asking);
    assert_eq!(owner.block_on(call()).unwrap().status, 200);
    assert_eq!((server.heads().len(), server.connections()), (2, 1));
}
