//! What one account, or one person, may hold at a time of what all share: streams, imports, uploads.

use std::io::Write as _;
use std::net::TcpStream;

use crate::harness::client::{Reply, Request, connect};
use crate::harness::stream::Stream;
use crate::harness::users::User;
use crate::harness::{Options, Server, until};

const STREAM: &str = "/api/notifications/stream";
const IMPORT: &str = "/api/contacts/import";
const UPLOAD: &str = "/api/templates/media/upload";

fn stream(user: &User<'_>) -> Stream {
    let stream = Stream::open(&user.request("GET", STREAM));
    assert_eq!(stream.status, 200, "{}", stream.head);
    stream
}

#[track_caller]
fn is_refused(reply: Reply) {
    assert!(reply.number("retry-after") >= 1);
    reply.refused(429, "RATE_LIMIT");
}

/// F38.
#[test]
fn a_person_has_three_streams_and_an_account_ten() {
    let server = Server::new();
    let (ana, other) = (server.owner(), server.owner());
    let mut of_ana: Vec<Stream> = (0..3).map(|_| stream(&ana)).collect();
    is_refused(ana.get(STREAM));
    let people = [(); 3].map(|()| server.member(&ana.account, "viewer"));
    let counts = [3, 3, 1];
    let streams: Vec<Stream> = people
        .iter()
        .zip(counts)
        .flat_map(|(person, count)| (0..count).map(|_| stream(person)).collect::<Vec<_>>())
        .collect();
    assert_eq!(of_ana.len() + streams.len(), 10);
    is_refused(people[2].get(STREAM));
    // Another account is another matter.
    let of_others = [stream(&other), stream(&other)];
    of_ana.pop();
    until("a place is given back", || {
        Stream::open(&people[2].request("GET", STREAM)).status == 200
    });
    drop((of_ana, streams, of_others));
}

/// Begins a request with a body in chunks, and does not end it.
fn begun(request: &Request, first: &str) -> TcpStream {
    let mut stream = connect(request.port());
    let head = request.head("Transfer-Encoding: chunked\r\n\r\n");
    let body = format!("{head}{:x}\r\n{first}\r\n", first.len());
    stream.write_all(body.as_bytes()).unwrap();
    stream
}

/// So many at a time are taken, of each account; one more is refused until one of them ends.
fn limited(server: &Server, most: usize, first: &str, request: impl Fn(&User<'_>) -> Request, whole: &str) {
    let (ana, other) = (server.owner(), server.owner());
    let complete = |user: &User<'_>| request(user).send_chunked(&[whole.as_bytes()]);
    let mut held: Vec<TcpStream> = (0..most).map(|_| begun(&request(&ana), first)).collect();
    // One that is complete may come before one of these, which is refused then: another one takes its share.
    until("one more is refused", || {
        let refused = complete(&ana).0 == 429;
        if !refused {
            held.push(begun(&request(&ana), first));
        }
        refused
    });
    let (_, body) = complete(&ana);
    assert!(body.contains("\"RATE_LIMIT\""), "{body}");
    assert_eq!(complete(&other).0, 200);
    ana.get("/api/contacts").ok();
    held.clear();
    until("a share is given back", || complete(&ana).0 == 200);
}

/// F38.
#[test]
fn an_account_has_two_imports_at_a_time() {
    let server = Server::new();
    let import = |user: &User<'_>| user.request("POST", IMPORT).header("Content-Type", "text/csv");
    limited(&server, 2, "name,phone\nAna,", import, "name,phone\n");
}

/// F38.
#[test]
fn an_account_has_three_uploads_at_a_time() {
    // A counter that is not there counts nobody out.
    let server = Server::start(Options::default().with("REDIS_URL", "redis://127.0.0.1:1"));
    let upload = |user: &User<'_>| {
        let request = user.request("POST", UPLOAD);
        request.header("Content-Type", "multipart/form-data; boundary=x")
    };
    let file = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.pdf\"\r\n\r\n%PDF-1.4\n";
    let whole = format!("{file}%%EOF\r\n--x--\r\n");
    limited(&server, 3, file, upload, &whole);
}
