//! Requests with random bytes changed, at every route of the table: whatever is answered, it is no fault of the server's.
//!
//! `RECADO_RUNS` (requests; a million of them are a release's proof) and `RECADO_SEED` make the test longer, and another
//! one. A failure shows the request.

use std::io::{Read as _, Write as _};

use recado_server::routes::{Access, RouteSpec, TABLE};

use crate::harness::client::connect;
use crate::harness::rng::{TestRng, runs, seed};
use crate::harness::users::User;
use crate::harness::{Options, Server};
use crate::matrix::{Takes, belongings, path_of, row, with_body};

/// What is put between the bytes.
const WORDS: &[&str] = &[
    "\0",
    "\r\n",
    "\r\n\r\n",
    "%00",
    "%2f",
    "%ff",
    "../",
    "'",
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "-1",
    "1e400",
    "9223372036854775808",
    "99999999999999999999",
    "\u{feff}",
    "\u{202e}",
    "é",
    "\u{1F600}",
    "\\ud800",
    "\\u0000",
    "0190a1b2-0000-7000-8000-000000000000",
    "NaN",
    "true",
    "&",
    "=",
    "?",
    "#",
    ";",
    "chunked",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Host: x\r\n",
    "HTTP/2.0",
    "OPTIONS ",
];

/// How many threads ask.
const CLIENTS: u64 = 4;

/// After so many requests, new people with new things: the old ones may have removed themselves.
const GENERATION: u64 = 400;

/// What all of it may leave in memory, beside what a server has once it has seen everything.
const GROWTH: u64 = 32 * 1024 * 1024;

/// A route that the requests are made of, and its good request.
struct Sample {
    label: String,
    bytes: Vec<u8>,
    /// It calls somebody else, and tells what went wrong there.
    calls: bool,
    /// Its documented answer to whoever has no business there.
    fails: bool,
}

fn sample(spec: &RouteSpec, caller: &User<'_>, things: &[(&'static str, String)]) -> Option<Sample> {
    let takes = row(spec);
    // A page or a name of somebody's would be looked for outside this machine.
    let outside = matches!(takes, Takes::Unfetched(_)) || spec.path == "/api/notifications/stream";
    // What would end everything that the others ask for.
    let last = spec.method.as_str() == "DELETE" && spec.path.starts_with("/api/admin");
    if outside || last {
        return None;
    }
    let path = path_of(spec, things);
    let request = with_body(caller.request(spec.method.as_str(), &path), takes);
    let calling = [
        "/api/templates",
        "/api/whatsapp",
        "/api/billing",
        "/api/campaigns",
        "/api/conversations",
    ];
    Some(Sample {
        label: format!("{} {}", spec.method, spec.path),
        bytes: request.bytes(),
        calls: calling.iter().any(|start| spec.path.starts_with(start)),
        fails: spec.path == "/api/admin/stop-support",
    })
}

/// Every route once, for new people.
fn samples(server: &Server) -> Vec<Sample> {
    let (ana, root) = (server.owner(), server.root());
    server.db.run("UPDATE accounts SET plan = 'scale'");
    let mut things = belongings(&ana);
    things.push(("/api/admin/accounts/", ana.account.clone()));
    things.push(("/api/hooks/", ana.account.clone()));
    let caller = |spec: &RouteSpec| {
        if spec.access == Access::Administrator {
            &root
        } else {
            &ana
        }
    };
    TABLE
        .iter()
        .filter_map(|spec| sample(spec, caller(spec), &things))
        .collect()
}

/// One change somewhere behind the position.
fn change(bytes: &mut Vec<u8>, from: usize, rng: &mut TestRng) {
    let random =
        |rng: &mut TestRng, bound: usize| usize::try_from(rng.below(bound.max(1).try_into().unwrap())).unwrap();
    let at = from + random(rng, bytes.len() - from);
    match rng.below(6) {
        0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
        1 if at < bytes.len() => bytes[at] = u8::try_from(rng.below(256)).unwrap(),
        2 if at < bytes.len() => {
            let end = (at + 1 + random(rng, 8)).min(bytes.len());
            bytes.drain(at..end);
        }
        3 if at < bytes.len() => {
            let end = (at + 1 + random(rng, 40)).min(bytes.len());
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        _ => {
            let word = WORDS[random(rng, WORDS.len())];
            bytes.splice(at.min(bytes.len())..at.min(bytes.len()), word.bytes());
        }
    }
}

/// The request with a few changes, and whether its head is still as it was.
fn mutated(sample: &Sample, rng: &mut TestRng) -> (Vec<u8>, bool) {
    let mut bytes = sample.bytes.clone();
    let head = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    let has_body = bytes.len() > head;
    let changes = 1 + rng.below(4);
    if has_body && rng.below(3) > 0 {
        let mut body = bytes.split_off(head);
        for _ in 0..changes {
            change(&mut body, 0, rng);
        }
        // The length that it has now: what is inside is to be read.
        let text = String::from_utf8(bytes).unwrap();
        let (before, after) = text.split_once("Content-Length: ").unwrap();
        let after = after.split_once("\r\n").unwrap().1;
        let mut bytes = format!("{before}Content-Length: {}\r\n{after}", body.len()).into_bytes();
        bytes.append(&mut body);
        return (bytes, true);
    }
    for _ in 0..changes {
        change(&mut bytes, 0, rng);
    }
    (bytes, false)
}

/// The status that is answered; none where the connection ended without a word.
fn answer(port: u16, bytes: &[u8]) -> Option<u16> {
    let mut stream = connect(port);
    stream.write_all(bytes).ok();
    // Whoever waits for more of it hears that there is no more.
    stream.shutdown(std::net::Shutdown::Write).ok();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok();
    let head = String::from_utf8_lossy(&answer[..answer.len().min(32)]).into_owned();
    head.split(' ').nth(1)?.parse().ok()
}

/// Which answers there may be: everything below 500, and what is documented of it.
fn documented(sample: &Sample, status: Option<u16>, whole_head: bool) -> bool {
    match status {
        None => !whole_head,
        Some(502) => sample.calls,
        Some(500) => sample.fails,
        Some(status) => status < 500,
    }
}

/// So many requests; what was wrong with the first wrong one.
fn client(port: u16, samples: &[Sample], seed: u64, numbers: std::ops::Range<u64>) -> Result<(), String> {
    for number in numbers {
        let mut rng = TestRng::of(seed, number);
        let which = usize::try_from(rng.below(samples.len().try_into().unwrap())).unwrap();
        let (bytes, whole_head) = mutated(&samples[which], &mut rng);
        let status = answer(port, &bytes);
        if !documented(&samples[which], status, whole_head) {
            let text = bytes.escape_ascii().to_string();
            let label = &samples[which].label;
            return Err(format!(
                "RECADO_SEED={seed}, number {number}, {label}: {status:?} to {text:.3000}"
            ));
        }
    }
    Ok(())
}

/// R5.
#[test]
fn whatever_bytes_are_changed_nothing_fails() {
    let (runs, seed) = (runs(3000), seed(7));
    // A counter that is not there counts nobody out.
    let server = Server::start(Options::default().with("REDIS_URL", "redis://127.0.0.1:1"));
    println!("{runs} requests of seed {seed}");
    let mut warm = 0;
    for first in (0..runs).step_by(usize::try_from(GENERATION * CLIENTS).unwrap()) {
        let (samples, port) = (samples(&server), server.port());
        let clients: Vec<_> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let begin = (first + client * GENERATION).min(runs);
                    let numbers = begin..(begin + GENERATION).min(runs);
                    let samples = &samples;
                    scope.spawn(move || self::client(port, samples, seed, numbers))
                })
                .collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        for told in clients {
            assert_eq!(told, Ok(()));
        }
        if first == 0 {
            warm = server.memory();
        }
    }
    server.get("/healthz").send().ok();
    let grown = server.memory().saturating_sub(warm);
    println!("{grown} bytes more than after the first {}", GENERATION * CLIENTS);
    assert!(grown < GROWTH, "{grown} bytes more");
    assert!(!server.log().contains("panicked"));
}
