//! Concurrency limits per account and per user: streams, imports, uploads.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::harness::client::{Reply, Request, connect};
use crate::harness::stream::Stream;
use crate::harness::users::User;
use crate::harness::{Options, Server, until};

const STREAM: &str = "/api/notifications/stream";
const IMPORT: &str = "/api/contacts/import";
const UPLOAD: &str = "/api/templates/media/upload";

fn open_stream(user: &User<'_>) -> Stream {
    let stream = Stream::open(&user.request("GET", STREAM));
    assert_eq!(stream.status, 200, "{}", stream.head);
    stream
}

#[track_caller]
fn assert_rate_limited(reply: Reply, limit: i64) {
    let headers = ["x-ratelimit-limit", "x-ratelimit-remaining", "retry-after"];
    assert_eq!(headers.map(|name| reply.number(name)), [limit, 0, 5]);
    assert!(reply.number("x-ratelimit-reset") > 1_700_000_000_000);
    reply.refused(429, "RATE_LIMIT");
}

/// F38.
#[test]
fn streams_are_limited_per_user_and_per_account() {
    let server = Server::new();
    let (ana, other_owner) = (server.owner(), server.owner());
    let mut owner_streams: Vec<Stream> = (0..5).map(|_| open_stream(&ana)).collect();
    assert_rate_limited(ana.get(STREAM), 5);
    let members = [(); 4].map(|()| server.member(&ana.account, "viewer"));
    let counts = [5, 4, 1, 0];
    // A key has its own streams beside those of its creator.
    let key = crate::api_keys::create_key(&ana);
    let by_key = server.get(STREAM).bearer(&key);
    let key_streams: Vec<Stream> = (0..5).map(|_| Stream::open(&by_key)).collect();
    assert!(key_streams.iter().all(|stream| stream.status == 200));
    assert_rate_limited(by_key.send(), 5);
    let streams: Vec<Stream> = members
        .iter()
        .zip(counts)
        .flat_map(|(member, count)| (0..count).map(|_| open_stream(member)).collect::<Vec<_>>())
        .collect();
    assert_eq!(owner_streams.len() + key_streams.len() + streams.len(), 20);
    assert_rate_limited(members[3].get(STREAM), 20);
    // Another account has its own limit.
    let other_streams = [open_stream(&other_owner), open_stream(&other_owner)];
    owner_streams.pop();
    until("the closed stream is released", || {
        Stream::open(&members[3].request("GET", STREAM)).status == 200
    });
    drop((owner_streams, key_streams, streams, other_streams));
}

/// Sends the head and the first chunk of a body, which is never completed.
fn send_partial_body(request: &Request, first: &str) -> TcpStream {
    let mut stream = connect(request.port());
    let head = request.head("Transfer-Encoding: chunked\r\n\r\n");
    let body = format!("{head}{:x}\r\n{first}\r\n", first.len());
    stream.write_all(body.as_bytes()).unwrap();
    stream
}

/// Asserts that each account may have `limit` requests at a time. One more gets 429 until one of them ends.
fn assert_concurrency_limit(
    server: &Server,
    limit: usize,
    first: &str,
    request: impl Fn(&User<'_>) -> Request,
    whole: &str,
) {
    let (ana, other_owner) = (server.owner(), server.owner());
    let complete = |user: &User<'_>| request(user).send_chunked(&[whole.as_bytes()]);
    let mut held: Vec<TcpStream> = (0..limit).map(|_| send_partial_body(&request(&ana), first)).collect();
    // A complete request may take the permit of a partial one, which then gets 429. Another partial one replaces it.
    until("one more is refused", || {
        let refused = complete(&ana).0 == 429;
        if !refused {
            held.push(send_partial_body(&request(&ana), first));
        }
        refused
    });
    // Refused by the head alone: this request never sends its body.
    let mut refused = connect(server.port());
    let head = request(&ana).head("Content-Length: 1000000\r\n\r\n");
    refused.write_all(head.as_bytes()).unwrap();
    let mut response = vec![0; 4096];
    let length = refused.read(&mut response).unwrap();
    let response = String::from_utf8_lossy(&response[..length]).to_lowercase();
    assert!(response.starts_with("http/1.1 429 "), "{response}");
    for header in [
        format!("x-ratelimit-limit: {limit}"),
        "x-ratelimit-remaining: 0".into(),
        "retry-after: 5".into(),
    ] {
        assert!(response.contains(&format!("\r\n{header}\r\n")), "{header}: {response}");
    }
    assert!(
        response.contains("\r\nx-ratelimit-reset: ") && response.contains("rate_limit"),
        "{response}"
    );
    assert_eq!(complete(&other_owner).0, 200);
    ana.get("/api/contacts").ok();
    held.clear();
    until("a permit is released", || complete(&ana).0 == 200);
}

/// F38.
#[test]
fn imports_are_limited_to_three_per_account() {
    let server = Server::new();
    let import = |user: &User<'_>| user.request("POST", IMPORT).header("Content-Type", "text/csv");
    assert_concurrency_limit(&server, 3, "name,phone\nAna,", import, "name,phone\n");
}

/// F38.
#[test]
fn uploads_are_limited_to_five_per_account() {
    // Without a reachable Redis the rate limiter admits every request.
    let server = Server::start(Options::default().with("REDIS_URL", "redis://127.0.0.1:1"));
    let upload = |user: &User<'_>| {
        let request = user.request("POST", UPLOAD);
        request.header("Content-Type", "multipart/form-data; boundary=x")
    };
    let file = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.pdf\"\r\n\r\n%PDF-1.4\n";
    let whole = format!("{file}%%EOF\r\n--x--\r\n");
    assert_concurrency_limit(&server, 5, file, upload, &whole);
}
