//! Rate limits: their counts, which callers share one, and the response headers.

use serde_json::json;

use crate::harness::client::Reply;
use crate::harness::process::own_redis;
use crate::harness::users::User;
use crate::harness::{Options, Server, users};

const HEADERS: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

fn numbers(reply: &Reply) -> [i64; 3] {
    HEADERS.map(|name| {
        reply
            .header(name)
            .unwrap_or_else(|| panic!("no {name}"))
            .parse()
            .unwrap()
    })
}

fn create(user: &User<'_>) -> Reply {
    user.post("/api/campaigns", json!({ "name": "C" }))
}

fn now_ms() -> i64 {
    i64::try_from(users::now() * 1000).unwrap()
}

#[test]
fn thirty_first_create_in_a_minute_is_limited() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    for count in 1..=30 {
        let reply = create(&ana);
        let [limit, remaining, reset] = numbers(&reply);
        assert_eq!((limit, remaining), (30, 30 - count));
        assert!(reset > now_ms() && reset <= now_ms() + 61_000, "{reset}");
        assert_eq!(reply.header("retry-after"), None);
        reply.created();
    }
    let refused = create(&ana);
    let [limit, remaining, reset] = numbers(&refused);
    assert_eq!((limit, remaining), (30, 0));
    let retry: i64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&retry), "{retry}");
    assert!((reset - now_ms() - retry * 1000).abs() <= 2000, "{reset} {retry}");
    refused.refused(429, "RATE_LIMIT");
    // The limit comes before the body, after the session and the role.
    ana.post("/api/campaigns", json!({})).refused(429, "RATE_LIMIT");
    server
        .post("/api/campaigns")
        .json(&json!({}))
        .send()
        .refused(401, "AUTH_ERROR");
    let viewer = server.member(&ana.account, "viewer");
    viewer.post("/api/campaigns", json!({})).refused(401, "AUTH_ERROR");
    // The members of an account share the limit. Another account has its own.
    let member = server.member(&ana.account, "member");
    create(&member).refused(429, "RATE_LIMIT");
    create(&bia).created();
    assert_eq!(
        server
            .db
            .count(&format!("FROM campaigns WHERE account_id = '{}'", ana.account)),
        30
    );
    // Other routes have separate limits or none.
    ana.put(&format!("/api/campaigns/{}", uuid::Uuid::now_v7()), json!({}))
        .refused(404, "NOT_FOUND");
}

#[test]
fn unlimited_route_sends_no_rate_limit_headers() {
    let server = Server::new();
    let ana = server.owner();
    for path in ["/api/campaigns", "/api/contacts", "/api/templates", "/api/accounts"] {
        let reply = ana.get(path);
        assert!(HEADERS.iter().all(|name| reply.header(name).is_none()), "{path}");
    }
    for number in 0..40 {
        ana.contact("C", &users::phone(number));
    }
}

#[test]
fn execute_is_limited_to_five_a_minute() {
    let server = Server::new();
    let ana = server.owner();
    let id = ana.campaign(json!({ "name": "C" }));
    for count in 1..=5 {
        let reply = ana.execute(&id);
        assert_eq!(numbers(&reply)[..2], [5, 5 - count]);
        reply.refused(400, "VALIDATION_ERROR");
    }
    ana.execute(&id).refused(429, "RATE_LIMIT");
}

#[test]
fn update_delete_and_cancel_share_one_limit() {
    let server = Server::new();
    let ana = server.owner();
    let id = ana.campaign(json!({ "name": "C" }));
    let path = format!("/api/campaigns/{id}");
    for _ in 0..10 {
        ana.put(&path, json!({ "name": "D" })).ok();
        ana.cancel(&id).refused(400, "VALIDATION_ERROR");
        ana.delete(&format!("/api/campaigns/{}", uuid::Uuid::now_v7()))
            .refused(404, "NOT_FOUND");
    }
    ana.put(&path, json!({ "name": "E" })).refused(429, "RATE_LIMIT");
    ana.cancel(&id).refused(429, "RATE_LIMIT");
    ana.delete(&path).refused(429, "RATE_LIMIT");
}

#[test]
fn concurrent_creates_stay_within_the_limit() {
    let server = Server::new();
    let ana = server.owner();
    let request = ana.request("POST", "/api/campaigns").json(&json!({ "name": "C" }));
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..45).map(|_| scope.spawn(|| request.clone().send().status)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // On a busy machine a request may find no free database connection, before or after it was counted.
    let count_of = |expected: u16| statuses.iter().filter(|status| **status == expected).count();
    assert_eq!(count_of(201) + count_of(429) + count_of(503), 45, "{statuses:?}");
    assert!(
        count_of(201) <= 30 && count_of(201) + count_of(503) >= 30,
        "{statuses:?}"
    );
}

#[test]
fn servers_share_one_limit_and_admit_all_without_redis() {
    let redis = own_redis();
    let server = Server::start(Options::default().with("REDIS_URL", redis.url()));
    let second_server = server.sibling();
    let ana = server.owner();
    let create_on_second = || {
        second_server
            .request("POST", "/api/campaigns")
            .bearer(&ana.token)
            .json(&json!({ "name": "C" }))
            .send()
    };
    for _ in 0..15 {
        create(&ana).created();
        create_on_second().created();
    }
    create(&ana).refused(429, "RATE_LIMIT");
    let refused = create_on_second();
    assert_eq!(numbers(&refused)[..2], [30, 0]);
    assert!(refused.header("retry-after").is_some());
    refused.refused(429, "RATE_LIMIT");
    drop(redis);
    for _ in 0..3 {
        create(&ana).created();
        create_on_second().created();
    }
}

#[test]
fn missing_redis_admits_all_requests() {
    let server = Server::start(Options::default().with("REDIS_URL", "redis://127.0.0.1:9"));
    let ana = server.owner();
    for _ in 0..35 {
        create(&ana).created();
    }
}
