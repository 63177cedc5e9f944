//! Clients whose bytes are no proper HTTP, come too slowly, or are never read.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::users::User;
use crate::harness::{DEADLINE, Options, Server, eventually, until};

/// How long a client may take over its request head; some more for a busy machine.
const HEAD_ENDS_WITHIN: Duration = Duration::from_secs(60);

/// The same for a whole body.
const BODY_ENDS_WITHIN: Duration = Duration::from_secs(120);

/// What anybody else may wait meanwhile.
const HEALTHY: Duration = Duration::from_secs(2);

const CROWD: usize = 400;

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Everything that is answered until the connection ends. A reset is an end, too.
fn rest(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok();
    String::from_utf8_lossy(&answer).into_owned()
}

/// The statuses of the answers in these bytes.
fn statuses(answer: &str) -> Vec<u16> {
    let lines = answer.split("HTTP/1.1 ").skip(1);
    lines.map(|line| line[..3].parse().unwrap()).collect()
}

/// The head of a request that makes a tag, with these lines.
fn make_tag(user: &User<'_>, lines: &str) -> String {
    user.request("POST", "/api/tags")
        .head(&format!("Content-Type: application/json\r\n{lines}\r\n\r\n"))
}

/// A whole request that makes a tag: what a desynchronised server would take for the next one.
fn hidden(user: &User<'_>, name: &str) -> String {
    let body = json!({ "name": name }).to_string();
    make_tag(user, &format!("Content-Length: {}", body.len())) + &body
}

/// F38.
#[test]
fn a_request_that_can_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_heard() {
    let server = Server::new();
    let ana = server.owner();
    let smuggled = hidden(&ana, "smuggled");
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
        let request = format!("{}0\r\n\r\n{smuggled}", make_tag(&ana, &lines));
        stream.write_all(request.as_bytes()).ok();
        let answer = rest(stream);
        assert_eq!(statuses(&answer), [400], "{lines:?}: {answer}");
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
        let head = make_tag(&ana, "Transfer-Encoding: chunked");
        stream.write_all(format!("{head}{chunk}\r\n{smuggled}").as_bytes()).ok();
        let answer = rest(stream);
        assert!(
            statuses(&answer).iter().all(|status| [400, 422].contains(status)),
            "{chunk:?}: {answer}"
        );
        assert_eq!(server.db.count("FROM tags"), 0, "{chunk:?}");
    }
    // The very requests are good ones, where they say what they are.
    let mut stream = connect(&server);
    stream.write_all(hidden(&ana, "open").as_bytes()).unwrap();
    until("the tag is there", || server.db.count("FROM tags") == 1);
}

/// F38.
#[test]
fn requests_in_one_go_are_answered_in_their_order_also_to_who_has_stopped_speaking() {
    let server = Server::new();
    let ana = server.owner();
    let ask = |id: &str| {
        ana.request("GET", "/api/tags")
            .head(&format!("X-Request-Id: {id}\r\n\r\n"))
    };
    let mut stream = connect(&server);
    let together = format!("{}{}{}", ask("first"), hidden(&ana, "between"), ask("last"));
    stream.write_all(together.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let answer = rest(stream);
    assert_eq!(statuses(&answer), [200, 201, 200], "{answer}");
    let (first, last) = (answer.find("first").unwrap(), answer.rfind("last").unwrap());
    assert!(first < last && answer[last..].contains("between"), "{answer}");
    // And to who speaks alone and stops in the same moment, however slow the answer is.
    server.db.run("BEGIN; LOCK TABLE tags IN ACCESS EXCLUSIVE MODE");
    let mut stream = connect(&server);
    stream.write_all(ask("patient").as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let waiting = "FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE d.datname = current_database() AND l.relation = 'tags'::regclass AND NOT l.granted";
    until("it waits for the table", || server.db.count(waiting) > 0);
    server.db.run("COMMIT");
    assert_eq!(statuses(&rest(stream)), [200]);
}

/// Others are served as ever: half of them at least, since a busy machine makes some wait.
fn healthy(ana: &User<'_>) {
    let mut times: Vec<Duration> = (0..40)
        .map(|_| {
            let began = Instant::now();
            ana.get("/api/contacts?limit=5").ok();
            began.elapsed()
        })
        .collect();
    times.sort();
    assert!(times[20] < HEALTHY, "{times:?}");
}

/// F38: heads that come a piece at a time, and people who connect and say nothing.
#[test]
fn heads_that_do_not_come_hold_up_nobody_and_are_given_up() {
    let server = Server::start(Options::default().with("DATABASE_POOL_SIZE", "8"));
    let ana = server.owner();
    healthy(&ana);
    let before = server.memory();
    let mut slow: Vec<TcpStream> = (0..CROWD).map(|_| connect(&server)).collect();
    let began = Instant::now();
    for (number, stream) in slow.iter_mut().enumerate().filter(|(number, _)| number % 4 > 0) {
        let head = ana.request("GET", "/api/contacts").head("X-Slow: ");
        stream
            .write_all(&head.as_bytes()[..head.len() * (number % 4) / 4])
            .unwrap();
    }
    healthy(&ana);
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 32 * 1024 * 1024, "{grown} bytes more for {CROWD} connections");
    for stream in slow {
        let answer = rest(stream);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    assert!(began.elapsed() < HEAD_ENDS_WITHIN, "{:?}", began.elapsed());
    healthy(&ana);
}

/// F38: answers that nobody reads.
#[test]
fn answers_that_are_not_read_hold_up_nobody() {
    let server = Server::start(Options::default().with("DATABASE_POOL_SIZE", "8"));
    let ana = server.owner();
    ana.contacts(500);
    let request = ana.request("GET", "/api/contacts?limit=100");
    let deaf: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = connect(&server);
            let heads = request.head("\r\n").repeat(20);
            stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            stream.write_all(heads.as_bytes()).ok();
            stream
        })
        .collect();
    // While there is room for answers, all of them ask for one after the other.
    until("the others are served as ever", || {
        (0..20).all(|_| {
            let began = Instant::now();
            ana.get("/api/contacts?limit=5").status == 200 && began.elapsed() < HEALTHY
        })
    });
    until("none of them holds a connection to the database", || {
        server.db.count(
            "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
               AND application_name LIKE 'recado %' AND state <> 'idle'",
        ) == 0
    });
    healthy(&ana);
    drop(deaf);
}

/// F38: bodies that drip, which are given up after half a minute.
#[test]
#[ignore = "takes half a minute: cargo xtask stress connections"]
fn bodies_that_drip_hold_up_nobody_and_are_given_up() {
    let server = Server::start(Options::default().with("DATABASE_POOL_SIZE", "8"));
    let ana = server.owner();
    let mut slow: Vec<TcpStream> = (0..CROWD).map(|_| connect(&server)).collect();
    for (number, stream) in slow.iter_mut().enumerate() {
        let head = make_tag(&ana, "Content-Length: 1000000");
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        // The door asks the database who they are: all at once they would be a crowd at its few connections, and some
        // would be told so instead of being let in.
        if number % 8 == 7 {
            ana.get("/api/contacts?limit=5").ok();
        }
    }
    let began = Instant::now();
    let mut open = slow.len();
    while open > 0 {
        assert!(began.elapsed() < BODY_ENDS_WITHIN, "{open} are open");
        healthy(&ana);
        open = 0;
        for stream in &mut slow {
            stream.write_all(b" ").ok();
            let mut answer = [0; 12];
            match stream.peek(&mut answer) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => open += 1,
                Ok(12) => assert_eq!(&answer, b"HTTP/1.1 408"),
                _ => {}
            }
        }
    }
    assert_eq!(server.db.count("FROM tags"), 0);
}

/// F38: a file that drips within the time of each piece.
#[test]
#[ignore = "takes half a minute: cargo xtask stress connections"]
fn an_import_that_drips_is_given_up() {
    let server = Server::new();
    let ana = server.owner();
    let import = ana.request("POST", "/api/contacts/import");
    let mut stream = connect(&server);
    let head = import.head("Content-Type: text/csv\r\nContent-Length: 1000000\r\n\r\nname,phone\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.set_nonblocking(true).unwrap();
    let answer = eventually("it is given up", || {
        stream.write_all(b"x").ok();
        std::thread::sleep(Duration::from_millis(500));
        let mut answer = [0; 12];
        (stream.peek(&mut answer).ok()? == 12).then_some(answer)
    });
    assert_eq!(&answer, b"HTTP/1.1 408");
}
