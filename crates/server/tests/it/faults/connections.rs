//! Hostile HTTP clients: ambiguous requests, slow heads and bodies, and responses that are never read.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::users::User;
use crate::harness::{DEADLINE, Options, Server, eventually, until};

/// The median latency of other clients that F38 promises.
const MAX_MEDIAN_LATENCY: Duration = Duration::from_secs(2);

/// Connections whose request head is slow, whose body is slow, and that never read a response. All are below the usual
/// limit of 1,024 open files, which the tests of this process share.
const SLOW_CONNECTIONS: usize = 400;
const SLOW_BODIES: usize = 100;
const UNREAD: usize = 40;

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Reads until the connection closes or is reset.
fn read_to_end(mut stream: TcpStream) -> String {
    let mut response = Vec::new();
    stream.read_to_end(&mut response).ok();
    String::from_utf8_lossy(&response).into_owned()
}

/// The statuses of all responses in these bytes.
fn statuses(response: &str) -> Vec<u16> {
    let lines = response.split("HTTP/1.1 ").skip(1);
    lines.map(|line| line[..3].parse().unwrap()).collect()
}

/// The head of a request that creates a tag, with these header lines.
fn create_tag_head(user: &User<'_>, lines: &str) -> String {
    user.request("POST", "/api/tags")
        .head(&format!("Content-Type: application/json\r\n{lines}\r\n\r\n"))
}

/// A complete request that creates a tag. A desynchronized server would read it as the next request.
fn create_tag_request(user: &User<'_>, name: &str) -> String {
    let body = json!({ "name": name }).to_string();
    create_tag_head(user, &format!("Content-Length: {}", body.len())) + &body
}

/// F38.
#[test]
fn ambiguous_request_is_rejected_with_everything_behind_it() {
    let server = Server::new();
    let ana = server.owner();
    let smuggled = create_tag_request(&ana, "smuggled");
    let length = smuggled.len();
    let both = format!("Content-Length: {length}\r\nTransfer-Encoding: chunked");
    for lines in [
        both.clone(),
        "Transfer-Encoding: chunked\r\nContent-Length: 4".into(),
        "Content-Length: 2\r\nContent-Length: 500".into(),
        "Content-Length: 2, 500".into(),
        "Content-Length: +2".into(),
        "Content-Length: -2".into(),
        "Content-Length: 0x2".into(),
        "Content-Length: 2 2".into(),
        "Content-Length: 99999999999999999999".into(),
        "Transfer-Encoding: chunked, identity".into(),
        "Transfer-Encoding: xchunked".into(),
        "Transfer-Encoding: identity, chunked, identity".into(),
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x".into(),
        "Transfer-Encoding : chunked".into(),
        "Content-Length : 2".into(),
        "X-Folded: a\r\n b: c\r\nContent-Length: 2".into(),
        "Content-Length: 2\r\n\tContent-Length: 500".into(),
        "No colon at all".into(),
        "X-Nul: a\0b".into(),
    ] {
        let mut stream = connect(&server);
        let request = format!("{}0\r\n\r\n{smuggled}", create_tag_head(&ana, &lines));
        stream.write_all(request.as_bytes()).ok();
        let response = read_to_end(stream);
        assert_eq!(statuses(&response), [400], "{lines:?}: {response}");
        assert_eq!(server.db.count("FROM tags"), 0, "{lines:?}");
    }
    for chunk in [
        "zz\r\n",
        "-1\r\n",
        "fffffffffffffffff\r\n",
        "2\r\n{}0\r\n",
        "2 x\r\n{}\r\n",
    ] {
        let mut stream = connect(&server);
        let head = create_tag_head(&ana, "Transfer-Encoding: chunked");
        stream.write_all(format!("{head}{chunk}\r\n{smuggled}").as_bytes()).ok();
        let response = read_to_end(stream);
        assert!(
            statuses(&response).iter().all(|status| [400, 422].contains(status)),
            "{chunk:?}: {response}"
        );
        assert_eq!(server.db.count("FROM tags"), 0, "{chunk:?}");
    }
    // Sent on its own, the same request succeeds.
    let mut stream = connect(&server);
    stream.write_all(create_tag_request(&ana, "open").as_bytes()).unwrap();
    until("the tag is there", || server.db.count("FROM tags") == 1);
}

/// F38.
#[test]
fn pipelined_requests_are_answered_in_order_after_half_close() {
    let server = Server::new();
    let ana = server.owner();
    let get_tags = |id: &str| {
        ana.request("GET", "/api/tags")
            .head(&format!("X-Request-Id: {id}\r\n\r\n"))
    };
    let mut stream = connect(&server);
    let together = format!(
        "{}{}{}",
        get_tags("first"),
        create_tag_request(&ana, "between"),
        get_tags("last")
    );
    stream.write_all(together.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let response = read_to_end(stream);
    assert_eq!(statuses(&response), [200, 201, 200], "{response}");
    let (first, last) = (response.find("first").unwrap(), response.rfind("last").unwrap());
    assert!(first < last && response[last..].contains("between"), "{response}");
    // A single request with an immediate half-close gets its response, even if the response is slow.
    server.db.run("BEGIN; LOCK TABLE tags IN ACCESS EXCLUSIVE MODE");
    let mut stream = connect(&server);
    stream.write_all(get_tags("slow").as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let waiting = "FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE d.datname = current_database() AND l.relation = 'tags'::regclass AND NOT l.granted";
    until("the request waits for the table", || server.db.count(waiting) > 0);
    server.db.run("COMMIT");
    assert_eq!(statuses(&read_to_end(stream)), [200]);
}

/// Asserts the median latency of another client. Single requests may be slow on a busy machine.
fn assert_median_latency(ana: &User<'_>) {
    let mut times: Vec<Duration> = (0..40)
        .map(|_| {
            let began = Instant::now();
            ana.get("/api/contacts?limit=5").ok();
            began.elapsed()
        })
        .collect();
    times.sort();
    assert!(times[20] < MAX_MEDIAN_LATENCY, "{times:?}");
}

/// F38: request heads that arrive in parts, and connections without any data.
#[test]
fn slow_request_heads_time_out_and_block_no_other_client() {
    let server = Server::start(Options::default().with("DATABASE_POOL_SIZE", "8"));
    let ana = server.owner();
    assert_median_latency(&ana);
    let before = server.memory();
    let mut slow: Vec<TcpStream> = (0..SLOW_CONNECTIONS).map(|_| connect(&server)).collect();
    let began = Instant::now();
    for (number, stream) in slow.iter_mut().enumerate().filter(|(number, _)| number % 4 > 0) {
        let head = ana.request("GET", "/api/contacts").head("X-Slow: ");
        stream
            .write_all(&head.as_bytes()[..head.len() * (number % 4) / 4])
            .unwrap();
    }
    assert_median_latency(&ana);
    let grown = server.memory().saturating_sub(before);
    assert!(
        grown < 32 * 1024 * 1024,
        "memory grew by {grown} bytes for {SLOW_CONNECTIONS} connections"
    );
    for stream in slow {
        let response = read_to_end(stream);
        assert!(
            response.is_empty() || response.starts_with("HTTP/1.1 408"),
            "{response}"
        );
    }
    assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
    assert_median_latency(&ana);
}

/// F38: clients that do not read their responses.
#[test]
fn unread_responses_block_no_other_client() {
    let server = Server::start(Options::default().with("DATABASE_POOL_SIZE", "8"));
    let ana = server.owner();
    ana.contacts(500);
    let request = ana.request("GET", "/api/contacts?limit=100");
    let unread: Vec<TcpStream> = (0..UNREAD)
        .map(|_| {
            let mut stream = connect(&server);
            let heads = request.head("\r\n").repeat(20);
            stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            stream.write_all(heads.as_bytes()).ok();
            stream
        })
        .collect();
    // The server processes pipelined requests until the socket buffers are full.
    until("another client gets fast responses", || {
        (0..20).all(|_| {
            let began = Instant::now();
            ana.get("/api/contacts?limit=5").status == 200 && began.elapsed() < MAX_MEDIAN_LATENCY
        })
    });
    until("no unread response holds a database connection", || {
        server.db.count(
            "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
               AND application_name LIKE 'recado %' AND state <> 'idle'",
        ) == 0
    });
    assert_median_latency(&ana);
    drop(unread);
}

/// Whether the server has responded, which it must do with 408.
fn is_given_up(stream: &TcpStream) -> bool {
    let mut response = [0; 12];
    match stream.peek(&mut response) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
        Ok(12) => assert_eq!(&response, b"HTTP/1.1 408"),
        _ => {}
    }
    true
}

/// F38: each byte of these bodies is in time, and the whole bodies are given up after half a minute.
#[test]
fn slow_request_bodies_time_out_and_block_no_other_client() {
    let server = Server::start(Options::default().with("DATABASE_POOL_SIZE", "8"));
    let ana = server.owner();
    let import = ana.request("POST", "/api/contacts/import");
    let import_head = import.head("Content-Type: text/csv\r\nContent-Length: 1000000\r\n\r\nname,phone\n");
    let heads = std::iter::repeat_n(create_tag_head(&ana, "Content-Length: 1000000"), SLOW_BODIES);
    let open_slow = |head: String| {
        let mut stream = connect(&server);
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let mut slow: Vec<TcpStream> = heads.chain([import_head]).map(open_slow).collect();
    assert_median_latency(&ana);
    until("every body is given up", || {
        for stream in &mut slow {
            stream.write_all(b" ").ok();
        }
        ana.get("/api/contacts?limit=5").ok();
        std::thread::sleep(Duration::from_millis(500));
        slow.iter().all(is_given_up)
    });
    assert_eq!(server.db.count("FROM tags"), 0);
    // The connections are closed, and the account may import again.
    for stream in &mut slow {
        let closed = eventually("the connection is closed", || stream.write_all(b"x").err());
        assert!(closed.raw_os_error().is_some(), "{closed}");
    }
    for _ in 0..3 {
        ana.import("name,phone\n").ok();
    }
}
