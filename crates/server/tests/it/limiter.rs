//! The rate limiter: exact under a burst, independent of spoofed addresses, and open while Redis is down, hangs, is
//! full or has a key of the wrong type.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use crate::harness::client::{Reply, Request, connect};
use crate::harness::process::own_redis;
use crate::harness::users::{User, now};
use crate::harness::{Options, Server, until};

/// A request that the limiter counts, and that has no effect because its body is invalid.
fn with_invalid_body(request: Request) -> Request {
    request.json(&json!({}))
}

fn create_request(user: &User<'_>) -> Request {
    with_invalid_body(user.request("POST", "/api/campaigns"))
}

fn remaining(reply: &Reply) -> Option<i64> {
    let numbers = |header: &str| reply.number(header);
    check_limit_headers(reply.status, &numbers, reply.header("retry-after").is_some())
}

/// Checks the rate limit headers of a counted response. Returns the remaining requests, or `None` for a 429.
fn check_limit_headers(status: u16, number: &dyn Fn(&str) -> i64, has_retry_after: bool) -> Option<i64> {
    assert_eq!(number("x-ratelimit-limit"), 30);
    let (remaining, reset) = (number("x-ratelimit-remaining"), number("x-ratelimit-reset"));
    let in_ms = reset - i64::try_from(now() * 1000).unwrap();
    assert!((-10_000..=62_000).contains(&in_ms), "{in_ms}");
    assert_eq!(has_retry_after, status == 429);
    if status == 422 {
        return Some(remaining);
    }
    assert_eq!((status, remaining), (429, 0));
    let wait = number("retry-after");
    assert!((1..=61).contains(&wait), "{wait}");
    None
}

/// Sends `requests` concurrent requests over separate connections, spread over these ports. Returns the remaining
/// requests that each admitted response reported, and the number of uncounted responses.
fn send_burst(ports: &[u16], user: &User<'_>, requests: usize) -> (Vec<i64>, usize) {
    let head = format!(
        "POST /api/campaigns HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: 2\r\nAuthorization: Bearer {}\r\nX-Account-Id: {}\r\n\r\n",
        user.token, user.account
    );
    let open = |port: &u16| {
        let mut stream = connect(*port);
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let mut streams: Vec<TcpStream> = ports.iter().cycle().take(requests).map(open).collect();
    // Every head is sent. The bodies start all requests at the same time.
    for stream in &mut streams {
        stream.write_all(b"{}").unwrap();
    }
    let (mut left, mut uncounted) = (vec![], 0);
    for mut stream in streams {
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let response = response.to_lowercase();
        let header = |name: &str| {
            response
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        };
        let status = response.split(' ').nth(1).unwrap().parse().unwrap();
        if header("x-ratelimit-limit").is_none() {
            // On a busy machine Redis or the database may time out.
            assert!(matches!(status, 422 | 503), "{response}");
            uncounted += 1;
            continue;
        }
        let number = |name: &str| header(name).unwrap().parse().unwrap();
        left.extend(check_limit_headers(status, &number, header("retry-after").is_some()));
    }
    left.sort_unstable();
    (left, uncounted)
}

/// Sends bursts of 200 requests until every request of one is counted. Checks that at most 30 pass, and exactly 30 of
/// that burst.
pub(super) fn assert_thirty_pass(server: &Server, ports: &[u16]) {
    until("every request of a burst is counted", || {
        let ana = server.owner();
        let (left, uncounted) = send_burst(ports, &ana, 200);
        assert!(left.len() <= 30, "{left:?}");
        assert!(
            left.windows(2).all(|pair| pair[0] < pair[1]),
            "two responses reported the same remaining count: {left:?}"
        );
        assert!(uncounted > 0 || left == (0..30).collect::<Vec<_>>(), "{left:?}");
        uncounted == 0
    });
}

#[test]
fn limiter_admits_exactly_the_limit_under_burst() {
    let server = Server::new();
    assert_thirty_pass(&server, &[server.port()]);
}

#[test]
fn limiter_admits_the_limit_once_across_two_servers() {
    let redis = own_redis();
    let server = Server::start(Options::default().with("REDIS_URL", redis.url()));
    let sibling = server.sibling();
    assert_thirty_pass(&server, &[server.port(), sibling.port()]);
}

#[test]
fn spoofed_client_address_does_not_change_the_count() {
    for proxies in ["", "127.0.0.0/8"] {
        let server = Server::start(Options::default().with("TRUSTED_PROXIES", proxies));
        let ana = server.owner();
        let spoofed = |at: usize| {
            let address = format!("203.0.113.{at}");
            create_request(&ana)
                .header("X-Forwarded-For", &address)
                .header("X-Real-IP", &address)
                .header("Forwarded", &format!("for={address}"))
                .header("CF-Connecting-IP", &address)
                .send()
        };
        let admitted = (0..40).filter(|at| remaining(&spoofed(*at)).is_some()).count();
        assert_eq!(admitted, 30, "the limit is per account");
    }
}

#[test]
fn audit_address_comes_from_peer_or_trusted_proxy() {
    let cases = [
        ("", "6.6.6.6", "127.0.0.1"),
        ("10.0.0.0/8", "6.6.6.6", "127.0.0.1"),
        ("127.0.0.1", "6.6.6.6, 203.0.113.9:4711", "203.0.113.9"),
        (
            "127.0.0.0/8,10.0.0.0/8",
            "6.6.6.6, [2001:db8::1]:80, 10.1.1.1, 10.2.2.2:99",
            "2001:db8::1",
        ),
        ("::ffff:127.0.0.0/104", "::ffff:203.0.113.9", "203.0.113.9"),
        ("127.0.0.0/8", "6.6.6.6, unknown", "127.0.0.1"),
    ];
    for (proxies, forwarded, expected) in cases {
        let server = Server::start(Options::default().with("TRUSTED_PROXIES", proxies));
        let ana = server.owner();
        let request = ana.request("POST", "/api/campaigns").json(&json!({ "name": "C" }));
        let request = request
            .header("X-Forwarded-For", forwarded)
            .header("Forwarded", "for=6.6.6.6");
        request.header("X-Real-IP", "6.6.6.6").send().created();
        until("the audit entry is stored", || {
            server.db.count("FROM audit_logs WHERE entity_type = 'campaign'") == 1
        });
        let written = server
            .db
            .text("SELECT ip_address FROM audit_logs WHERE entity_type = 'campaign'");
        assert_eq!(written, expected, "{proxies} {forwarded}");
    }
}

/// Sends `requests` requests to a limited route. The limiter counts and refuses none of them. The tests of
/// `crates/redis` measure by how much it delays them.
fn assert_uncounted(user: &User<'_>, requests: usize) {
    for number in 0..requests {
        let reply = create_request(user).send();
        assert_eq!(reply.header("x-ratelimit-limit"), None, "{number}");
        assert_eq!(reply.invalid(), ["name"], "{number}");
    }
}

/// Waits until every thread of the server counts requests again and the limit is reached.
fn wait_for_limit(user: &User<'_>) {
    until("requests are counted and refused", || {
        (0..10).all(|_| create_request(user).send().status == 429)
    });
}

#[test]
fn redis_outage_opens_the_limits_until_redis_recovers() {
    let mut redis = own_redis();
    let server = Server::start(Options::default().with("REDIS_URL", redis.url()));
    let (ana, bia) = (server.owner(), server.owner());
    wait_for_limit(&ana);

    redis.signal("STOP");
    assert_uncounted(&ana, 40);
    redis.signal("CONT");
    wait_for_limit(&ana);

    // Redis dies and restarts without its data.
    redis.kill();
    assert_uncounted(&ana, 300);
    let log = server.log();
    let warnings = log
        .lines()
        .filter(|line| line.contains("unavailable, requests are not counted"))
        .count();
    assert!(
        (1..20).contains(&warnings),
        "{warnings} warnings for hundreds of requests"
    );
    redis.restart();
    wait_for_limit(&ana);

    // A key of the wrong type disables only its own limit.
    redis.command(&format!("SET recado:limit:camp-create:{} x", ana.account));
    assert_uncounted(&ana, 20);
    wait_for_limit(&bia);
    redis.command(&format!("DEL recado:limit:camp-create:{}", ana.account));
    wait_for_limit(&ana);

    redis.command("CONFIG SET maxmemory-policy noeviction");
    redis.command("CONFIG SET maxmemory 1");
    for _ in 0..20 {
        let status = create_request(&server.owner()).send().status;
        assert_eq!(status, 422);
    }
    redis.command("CONFIG SET maxmemory 0");
    wait_for_limit(&bia);
}

#[test]
fn flushed_redis_restarts_the_count_without_errors() {
    let redis = own_redis();
    let server = Server::start(Options::default().with("REDIS_URL", redis.url()));
    let ana = server.owner();
    wait_for_limit(&ana);
    std::thread::scope(|scope| {
        let traffic: Vec<_> = (0..4)
            .map(|_| {
                let request = create_request(&ana);
                scope.spawn(move || (0..40).map(|_| request.clone().send().status).collect::<Vec<_>>())
            })
            .collect();
        for _ in 0..10 {
            redis.command("FLUSHALL SYNC");
            redis.command("SCRIPT FLUSH SYNC");
        }
        for thread in traffic {
            let statuses = thread.join().unwrap();
            assert!(
                statuses.iter().all(|status| [422, 429].contains(status)),
                "{statuses:?}"
            );
        }
    });
    until("a request is the first of a new count", || {
        redis.command("FLUSHALL SYNC");
        // On a busy machine Redis may time out: then the request is not counted.
        let reply = create_request(&ana).send();
        reply.header("x-ratelimit-limit").is_some() && remaining(&reply) == Some(29)
    });
    wait_for_limit(&ana);
}

#[test]
fn limited_request_costs_one_redis_command() {
    let redis = own_redis();
    let server = Server::start(Options::default().with("REDIS_URL", redis.url()));
    let ana = server.owner();
    let campaign = ana.campaign(json!({ "name": "C" }));
    // After this, every thread has a connection and the script is loaded.
    wait_for_limit(&ana);
    redis.command("CONFIG RESETSTAT");
    for _ in 0..25 {
        ana.get("/api/contacts").ok();
        ana.get(&format!("/api/campaigns/{campaign}")).ok();
        ana.post("/api/tags", json!({})).invalid();
        ana.get("/api/accounts").ok();
    }
    assert_eq!(redis.calls(), []);
    until("every request of a round is counted", || {
        redis.command("FLUSHALL SYNC");
        redis.command("CONFIG RESETSTAT");
        let replies: Vec<Reply> = (0..40).map(|_| create_request(&ana).send()).collect();
        let counted = replies.iter().all(|reply| reply.header("x-ratelimit-limit").is_some());
        let calls = redis.calls();
        assert!(!counted || calls == [("evalsha".to_owned(), 40)], "{calls:?}");
        counted
    });
}
