//! Fuzzing of every route: requests with random mutations cause no undocumented server error.
//!
//! `RECADO_RUNS` sets the number of requests (1,000,000 for a release), `RECADO_SEED` the seed. A failure prints the
//! request.

use std::io::{Read as _, Write as _};

use recado_api::routes::{Access, RouteSpec, TABLE};

use crate::costs;
use crate::harness::client::connect;
use crate::harness::rng::{TestRng, runs, seed};
use crate::harness::users::User;
use crate::harness::{Options, Server};
use crate::matrix::{RouteInput, create_resources, resource_path, row, with_body};

/// Tokens that a mutation inserts.
const TOKENS: &[&str] = &[
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

/// Requests by default.
const REQUESTS: u64 = 3000;

/// Concurrent clients.
const CLIENTS: u64 = 4;

/// Requests per client before new users and resources are created: mutated requests may have deleted the old ones.
const GENERATION: u64 = 400;

/// Upper bound of the memory growth after the first generation, in bytes.
const MAX_GROWTH: u64 = 32 * 1024 * 1024;

/// A valid request to a route, the base of mutations.
struct Sample {
    label: String,
    bytes: Vec<u8>,
    /// The route calls another system and may respond with 502.
    calls_gateway: bool,
    /// The route is documented to respond with 500 to an unauthorized caller.
    may_fail: bool,
}

fn sample(spec: &RouteSpec, caller: &User<'_>, resources: &[(&'static str, String)]) -> Option<Sample> {
    let takes = row(spec);
    // A mutated host would be resolved outside of this machine, and a stream does not end.
    if matches!(takes, RouteInput::Refused(_)) || spec.path == "/api/notifications/stream" {
        return None;
    }
    let path = resource_path(spec, resources);
    let request = with_body(caller.request(spec.method.as_str(), &path), takes);
    let gateway_paths = [
        "/api/templates",
        "/api/whatsapp",
        "/api/billing",
        "/api/campaigns",
        "/api/conversations",
    ];
    Some(Sample {
        label: format!("{} {}", spec.method, spec.path),
        bytes: request.bytes(),
        calls_gateway: gateway_paths.iter().any(|start| spec.path.starts_with(start)),
        may_fail: spec.path == "/api/admin/stop-support",
    })
}

/// One sample per route, for new users.
fn samples(server: &Server) -> Vec<Sample> {
    let (ana, root) = (server.owner(), server.root());
    server.db.run("UPDATE accounts SET plan = 'scale'");
    let mut resources = create_resources(&ana);
    // Administrators delete and suspend another account than that of the other requests.
    resources.push(("/api/admin/accounts/", server.owner().account));
    resources.push(("/api/admin/users/", ana.id.to_string()));
    let rate_card = costs::add_card(server, "BR,USD,marketing,0.06,2026-01-01,,,\n");
    resources.push(("/api/admin/rate-cards/", rate_card));
    resources.push(("/api/hooks/", ana.account.clone()));
    let caller = |spec: &RouteSpec| {
        if spec.access == Access::Administrator {
            &root
        } else {
            &ana
        }
    };
    TABLE
        .iter()
        .filter_map(|spec| sample(spec, caller(spec), &resources))
        .collect()
}

/// Applies one random mutation at or after `from`.
fn mutate_bytes(bytes: &mut Vec<u8>, from: usize, rng: &mut TestRng) {
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
            let repeated = bytes[at..end].to_vec();
            bytes.splice(at..at, repeated);
        }
        _ => {
            let token = TOKENS[random(rng, TOKENS.len())];
            bytes.splice(at.min(bytes.len())..at.min(bytes.len()), token.bytes());
        }
    }
}

/// The request with a few mutations, and whether its head is unchanged.
fn mutated(sample: &Sample, rng: &mut TestRng) -> (Vec<u8>, bool) {
    let mut bytes = sample.bytes.clone();
    let head = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    let has_body = bytes.len() > head;
    let changes = 1 + rng.below(4);
    if has_body && rng.below(3) > 0 {
        let mut body = bytes.split_off(head);
        for _ in 0..changes {
            mutate_bytes(&mut body, 0, rng);
        }
        // Corrects the length, so that the server reads the whole body.
        let text = String::from_utf8(bytes).unwrap();
        let (before, after) = text.split_once("Content-Length: ").unwrap();
        let after = after.split_once("\r\n").unwrap().1;
        let mut bytes = format!("{before}Content-Length: {}\r\n{after}", body.len()).into_bytes();
        bytes.append(&mut body);
        return (bytes, true);
    }
    for _ in 0..changes {
        mutate_bytes(&mut bytes, 0, rng);
    }
    (bytes, false)
}

/// The status of the response; `None` if the connection ended without one.
fn send_raw(port: u16, bytes: &[u8]) -> Option<u16> {
    let mut stream = connect(port);
    stream.write_all(bytes).ok();
    // Half-closes the connection, so that the server does not wait for more bytes.
    stream.shutdown(std::net::Shutdown::Write).ok();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).ok();
    let head = String::from_utf8_lossy(&response[..response.len().min(32)]).into_owned();
    head.split(' ').nth(1)?.parse().ok()
}

/// Whether the status is allowed: any status below 500, and the documented errors of the route.
fn is_documented(sample: &Sample, status: Option<u16>, whole_head: bool) -> bool {
    match status {
        None => !whole_head,
        Some(502) => sample.calls_gateway,
        Some(500) => sample.may_fail,
        Some(status) => status < 500,
    }
}

/// Sends the mutated requests with these numbers and returns the first failure.
fn run_client(port: u16, samples: &[Sample], seed: u64, numbers: std::ops::Range<u64>) -> Result<(), String> {
    for number in numbers {
        let mut rng = TestRng::of(seed, number);
        let index = usize::try_from(rng.below(samples.len().try_into().unwrap())).unwrap();
        let (bytes, whole_head) = mutated(&samples[index], &mut rng);
        let status = send_raw(port, &bytes);
        if !is_documented(&samples[index], status, whole_head) {
            let text = bytes.escape_ascii().to_string();
            let label = &samples[index].label;
            return Err(format!(
                "RECADO_SEED={seed}, number {number}, {label}: {status:?} to {text:.3000}"
            ));
        }
    }
    Ok(())
}

/// R5.
#[test]
fn mutated_requests_cause_no_server_error() {
    let (runs, seed) = (runs(REQUESTS), seed(7));
    // Without a reachable Redis the rate limiter admits every request.
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
                    scope.spawn(move || run_client(port, samples, seed, numbers))
                })
                .collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        for result in clients {
            assert_eq!(result, Ok(()));
        }
        if first == 0 {
            warm = server.memory();
        }
    }
    server.get("/healthz").send().ok();
    let grown = server.memory().saturating_sub(warm);
    println!("memory grew by {grown} bytes after the first {}", GENERATION * CLIENTS);
    assert!(grown < MAX_GROWTH, "memory grew by {grown} bytes");
    assert!(!server.log().contains("panicked"));
}
