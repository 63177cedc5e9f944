//! The limiter under pressure: exact for a crowd, deaf to what callers say of their address, and harmless when its
//! Redis is gone, silent, spoiled or emptied.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::client::{Reply, Request, connect};
use crate::harness::process::own_redis;
use crate::harness::users::{User, now};
use crate::harness::{Options, Server, shortest, until};

/// What a request may take while its counter is in trouble; the counter itself may cost it 50 ms.
const BOUND: Duration = Duration::from_secs(2);

/// A request that is counted and does nothing: its body is refused.
fn counted(request: Request) -> Request {
    request.json(&json!({}))
}

fn create(user: &User<'_>) -> Request {
    counted(user.request("POST", "/api/campaigns"))
}

/// Whether a reply was let pass, its headers checked either way.
fn passed(reply: &Reply) -> Option<i64> {
    let numbers = |header: &str| reply.number(header);
    checked(reply.status, &numbers, reply.header("retry-after").is_some())
}

/// Of a counted request: what was left when it was let pass; none where it was refused.
fn checked(status: u16, number: &dyn Fn(&str) -> i64, waits: bool) -> Option<i64> {
    assert_eq!(number("x-ratelimit-limit"), 30);
    let (remaining, reset) = (number("x-ratelimit-remaining"), number("x-ratelimit-reset"));
    let in_ms = reset - i64::try_from(now() * 1000).unwrap();
    assert!((-10_000..=62_000).contains(&in_ms), "{in_ms}");
    assert_eq!(waits, status == 429);
    if status == 422 {
        return Some(remaining);
    }
    assert_eq!((status, remaining), (429, 0));
    let wait = number("retry-after");
    assert!((1..=61).contains(&wait), "{wait}");
    None
}

/// Sends so many counted requests at once, each over a connection of its own, in turn to these ports. What was left at
/// each that was let pass; and how many were not counted at all.
fn crowd(ports: &[u16], user: &User<'_>, requests: usize) -> (Vec<i64>, usize) {
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
    // All of them stand at the door; now they are let go together.
    for stream in &mut streams {
        stream.write_all(b"{}").unwrap();
    }
    let (mut left, mut uncounted) = (vec![], 0);
    for mut stream in streams {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let answer = answer.to_lowercase();
        let header = |name: &str| {
            answer
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        };
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        if header("x-ratelimit-limit").is_none() {
            // Redis, or the database, did not keep up with this machine.
            assert!(matches!(status, 422 | 503), "{answer}");
            uncounted += 1;
            continue;
        }
        let number = |name: &str| header(name).unwrap().parse().unwrap();
        left.extend(checked(status, &number, header("retry-after").is_some()));
    }
    left.sort_unstable();
    (left, uncounted)
}

/// Of two hundred requests at once exactly thirty pass: never one more, and not one less where the machine has the time
/// to count them all.
fn exactly_thirty(server: &Server, ports: &[u16]) {
    until("a round in which every request was counted", || {
        let ana = server.owner();
        let (left, uncounted) = crowd(ports, &ana, 200);
        assert!(left.len() <= 30, "{left:?}");
        assert!(
            left.windows(2).all(|pair| pair[0] < pair[1]),
            "a place was taken twice: {left:?}"
        );
        assert!(uncounted > 0 || left == (0..30).collect::<Vec<_>>(), "{left:?}");
        uncounted == 0
    });
}

#[test]
fn of_two_hundred_at_once_exactly_thirty_pass() {
    let server = Server::new();
    exactly_thirty(&server, &[server.port()]);
}

#[test]
fn of_two_hundred_at_once_on_two_servers_exactly_thirty_pass() {
    let redis = own_redis();
    let server = Server::start(Options::default().with("REDIS_URL", redis.url()));
    let sibling = server.sibling();
    exactly_thirty(&server, &[server.port(), sibling.port()]);
}

#[test]
fn what_a_caller_says_of_its_address_changes_no_count() {
    for proxies in ["", "127.0.0.0/8"] {
        let server = Server::start(Options::default().with("TRUSTED_PROXIES", proxies));
        let ana = server.owner();
        let spoofed = |at: usize| {
            let address = format!("203.0.113.{at}");
            create(&ana)
                .header("X-Forwarded-For", &address)
                .header("X-Real-IP", &address)
                .header("Forwarded", &format!("for={address}"))
                .header("CF-Connecting-IP", &address)
                .send()
        };
        let let_through = (0..40).filter(|at| passed(&spoofed(*at)).is_some()).count();
        assert_eq!(let_through, 30, "an account's count is the account's");
    }
}

#[test]
fn the_address_in_the_audit_is_the_peers_or_what_a_trusted_proxy_says() {
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
    for (proxies, forwarded, wanted) in cases {
        let server = Server::start(Options::default().with("TRUSTED_PROXIES", proxies));
        let ana = server.owner();
        let request = ana.request("POST", "/api/campaigns").json(&json!({ "name": "C" }));
        let request = request
            .header("X-Forwarded-For", forwarded)
            .header("Forwarded", "for=6.6.6.6");
        request.header("X-Real-IP", "6.6.6.6").send().created();
        until("the entry is there", || {
            server.db.count("FROM audit_logs WHERE entity_type = 'campaign'") == 1
        });
        let written = server
            .db
            .text("SELECT ip_address FROM audit_logs WHERE entity_type = 'campaign'");
        assert_eq!(written, wanted, "{proxies} {forwarded}");
    }
}

/// So many limited requests, none of which is counted, refused or kept waiting.
fn uncounted(user: &User<'_>, requests: usize) {
    let mut times = Vec::new();
    for number in 0..requests {
        let began = Instant::now();
        let reply = create(user).send();
        times.push(began.elapsed());
        assert_eq!(reply.header("x-ratelimit-limit"), None, "{number}");
        assert_eq!(reply.invalid(), ["name"], "{number}");
    }
    assert!(shortest(times) < BOUND);
}

/// Waits until requests are counted again by every thread of the server, and that the limit then holds.
fn limited_again(user: &User<'_>) {
    until("requests are counted and refused again", || {
        (0..10).all(|_| create(user).send().status == 429)
    });
}

#[test]
fn a_redis_in_trouble_stops_nobody_and_the_limits_come_back_with_it() {
    let mut redis = own_redis();
    let server = Server::start(Options::default().with("REDIS_URL", redis.url()));
    let (ana, bia) = (server.owner(), server.owner());
    limited_again(&ana);

    redis.signal("STOP");
    uncounted(&ana, 40);
    redis.signal("CONT");
    limited_again(&ana);

    // Gone, and back with nothing of what it knew.
    redis.kill();
    uncounted(&ana, 300);
    let log = server.log();
    let warnings = log
        .lines()
        .filter(|line| line.contains("rate counter is unavailable"))
        .count();
    assert!(
        (1..20).contains(&warnings),
        "{warnings} warnings for hundreds of requests"
    );
    redis.restart();
    limited_again(&ana);

    // A spoiled key opens its own count alone.
    redis.say(&format!("SET recado:limit:camp-create:{} x", ana.account));
    uncounted(&ana, 20);
    limited_again(&bia);
    redis.say(&format!("DEL recado:limit:camp-create:{}", ana.account));
    limited_again(&ana);

    redis.say("CONFIG SET maxmemory-policy noeviction");
    redis.say("CONFIG SET maxmemory 1");
    for _ in 0..20 {
        let status = create(&server.owner()).send().status;
        assert_eq!(status, 422);
    }
    redis.say("CONFIG SET maxmemory 0");
    limited_again(&bia);
}

#[test]
fn an_emptied_redis_counts_from_the_start_and_fails_nothing() {
    let redis = own_redis();
    let server = Server::start(Options::default().with("REDIS_URL", redis.url()));
    let ana = server.owner();
    limited_again(&ana);
    std::thread::scope(|scope| {
        let traffic: Vec<_> = (0..4)
            .map(|_| {
                let request = create(&ana);
                scope.spawn(move || (0..40).map(|_| request.clone().send().status).collect::<Vec<_>>())
            })
            .collect();
        for _ in 0..10 {
            redis.say("FLUSHALL SYNC");
            redis.say("SCRIPT FLUSH SYNC");
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
        redis.say("FLUSHALL SYNC");
        // Not counted: this machine kept Redis from answering in time.
        let reply = create(&ana).send();
        reply.header("x-ratelimit-limit").is_some() && passed(&reply) == Some(29)
    });
    limited_again(&ana);
}

#[test]
fn a_limited_request_is_one_command_and_any_other_none() {
    let redis = own_redis();
    let server = Server::start(Options::default().with("REDIS_URL", redis.url()));
    let ana = server.owner();
    let campaign = ana.campaign(json!({ "name": "C" }));
    // Until both threads have their connection and the script is loaded.
    limited_again(&ana);
    redis.say("CONFIG RESETSTAT");
    for _ in 0..25 {
        ana.get("/api/contacts").ok();
        ana.get(&format!("/api/campaigns/{campaign}")).ok();
        ana.post("/api/tags", json!({})).invalid();
        ana.get("/api/accounts").ok();
    }
    assert_eq!(redis.calls(), []);
    until("a round in which this machine let Redis answer every one", || {
        redis.say("FLUSHALL SYNC");
        redis.say("CONFIG RESETSTAT");
        let replies: Vec<Reply> = (0..40).map(|_| create(&ana).send()).collect();
        let counted = replies.iter().all(|reply| reply.header("x-ratelimit-limit").is_some());
        let calls = redis.calls();
        assert!(!counted || calls == [("evalsha".to_owned(), 40)], "{calls:?}");
        counted
    });
}
