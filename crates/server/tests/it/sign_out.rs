//! Sign-out everywhere: earlier tokens of the user end on every server, and nothing else does.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::api_keys;
use crate::harness::admin::{Browser, ROOT};
use crate::harness::client::Reply;
use crate::harness::stream::Stream;
use crate::harness::users::{User, now, sign};
use crate::harness::{Server, eventually, text, until};

const PATH: &str = "/api/auth/sign-out-everywhere";

/// A token of the user that was issued at this time.
fn token_of(user: &User<'_>, issued_at: u64) -> String {
    sign(&json!({ "sub": user.id, "email": user.email, "iat": issued_at, "exp": now() + 3600 }))
}

/// Gives the user a token that says when it was issued.
fn with_issue_time<'a>(mut user: User<'a>) -> User<'a> {
    user.token = token_of(&user, now());
    user
}

/// The names of the cookies that a response removes.
fn removed_cookies(reply: &Reply) -> Vec<String> {
    let lines = reply.headers.get_all("set-cookie").iter();
    let lines = lines.map(|line| line.to_str().unwrap().to_owned());
    let removed = lines.filter(|line| line.contains("Max-Age=0"));
    let mut names: Vec<String> = removed.map(|line| line.split('=').next().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn sign_out_everywhere_ends_earlier_tokens_on_every_server() {
    let server = Server::new();
    let sibling = server.sibling();
    let ana = with_issue_time(server.owner());
    let bia = with_issue_time(server.member(&ana.account, "member"));
    let second = token_of(&ana, now() - 100);
    let key = api_keys::create_key(&ana);
    let call = |port: u16, token: &str, path: &str| server.get(path).at(port).bearer(token).send().status;
    let ports = [server.port(), sibling.port()];
    let paths = ["/api/accounts", "/api/contacts"];
    for (port, path) in ports.iter().flat_map(|port| paths.map(|path| (*port, path))) {
        for token in [&ana.token, &second, &bia.token] {
            assert_eq!(call(port, token, path), 200);
        }
    }
    let before = now();
    let reply = ana.request("POST", PATH).send();
    assert_eq!(reply.header("x-ratelimit-limit"), Some("5"));
    assert_eq!(removed_cookies(&reply), ["svc-active-account-id", "svc-support-mode"]);
    let data = reply.ok();
    assert_eq!(data.as_object().unwrap().len(), 1, "{data}");
    assert!(text(&data["signed_out_at"]).ends_with('Z'));
    // At once on this server.
    for token in [&ana.token, &second] {
        for path in paths {
            assert_eq!(call(server.port(), token, path), 401);
        }
    }
    until("the tokens are refused by the other server", || {
        paths.iter().all(|path| {
            let tokens = [&ana.token, &second];
            tokens.iter().all(|token| call(sibling.port(), token, path) == 401)
        })
    });
    // A token that no one used before is refused, too, and so is one without the time of its issue.
    let unseen = token_of(&ana, before - 1);
    let timeless = sign(&json!({ "sub": ana.id, "email": ana.email, "exp": now() + 3600 }));
    // A token of a later sign-in works; other users and API keys are untouched.
    until("two seconds have passed", || now() >= before + 2);
    let later = token_of(&ana, now());
    for port in ports {
        for token in [&unseen, &timeless] {
            assert_eq!(call(port, token, "/api/accounts"), 401);
        }
        for token in [&later, &bia.token, &key] {
            assert_eq!(call(port, token, "/api/contacts"), 200);
        }
    }
    // The refusal says what to do.
    let error = server
        .get("/api/accounts")
        .bearer(&unseen)
        .send()
        .refused(401, "AUTH_ERROR");
    assert!(error["message"].as_str().unwrap().contains("sign in again"), "{error}");
}

#[test]
fn sign_out_everywhere_checks_session_limit_and_token() {
    let server = Server::new();
    let ana = server.owner();
    let key = api_keys::create_key(&ana);
    server.post(PATH).send().refused(401, "AUTH_ERROR");
    server.post(PATH).bearer(&key).send().refused(401, "AUTH_ERROR");
    // Without the time of its issue, no token could ever be valid again.
    assert_eq!(ana.request("POST", PATH).send().invalid(), ["iat"]);
    ana.get("/api/contacts").ok();
    for _ in 1..5 {
        assert_eq!(ana.request("POST", PATH).send().status, 422);
    }
    ana.request("POST", PATH).send().refused(429, "RATE_LIMIT");
    // By cookie, and counted by user.
    let bia = with_issue_time(server.owner());
    let cookie = format!("svc-session={}", bia.token);
    let foreign = server
        .post(PATH)
        .cookie(&cookie)
        .header("Origin", "https://evil.example");
    foreign.send().refused(403, "FORBIDDEN");
    server.post(PATH).cookie(&cookie).send().ok();
    server
        .get("/api/accounts")
        .cookie(&cookie)
        .send()
        .refused(401, "AUTH_ERROR");
}

#[test]
fn sign_out_everywhere_closes_streams_of_that_user() {
    let server = Server::new();
    let sibling = server.sibling();
    let ana = with_issue_time(server.owner());
    let bia = with_issue_time(server.member(&ana.account, "member"));
    let open = |user: &User<'_>, port: u16| {
        let stream = Stream::open(&user.request("GET", "/api/notifications/stream").at(port));
        assert_eq!(stream.status, 200);
        stream
    };
    let (mut here, mut elsewhere) = (open(&ana, server.port()), open(&ana, sibling.port()));
    let mut other = open(&bia, server.port());
    ana.request("POST", PATH).send().ok();
    // Each ends: reading them to their end returns.
    for stream in [&mut here, &mut elsewhere] {
        while stream.next().is_some() {}
    }
    let contact = json!({ "status": "open" });
    assert_eq!(bia.get("/api/notifications").status, 200, "{contact}");
    assert!(other.next().is_some());
}

#[test]
fn sign_out_everywhere_ends_support_mode() {
    let server = Server::new();
    let ana = server.owner();
    let browser = Browser::new(with_issue_time(server.root()));
    browser.support(&ana.account);
    let cookie = browser.cookie("svc-support-mode").unwrap();
    browser.get("/api/contacts").ok();
    browser.send(browser.request("POST", PATH)).ok();
    assert_eq!(browser.cookie("svc-support-mode"), None);
    assert_eq!(server.db.count("FROM account_users WHERE is_support"), 0);
    // The cookie of before has no effect in a later session either.
    let later = now() + 2;
    until("two seconds have passed", || now() >= later);
    let token = token_of(&browser.user, now());
    let request = |path: &str| {
        let request = server.get(path).bearer(&token);
        request.cookie(&format!(
            "svc-support-mode={cookie}; svc-active-account-id={}",
            ana.account
        ))
    };
    assert_eq!(request("/api/accounts").send().ok()["support_mode"], json!(null));
    request("/api/contacts").send().refused(401, "AUTH_ERROR");
}

#[test]
fn administrator_signs_another_user_out() {
    let server = Server::new();
    let sibling = server.sibling();
    let root = server.root();
    let ana = with_issue_time(server.owner());
    let path = format!("/api/admin/users/{}/sign-out", ana.id);
    let elsewhere = || {
        server
            .get("/api/contacts")
            .at(sibling.port())
            .bearer(&ana.token)
            .send()
            .status
    };
    assert_eq!(elsewhere(), 200);
    ana.request("POST", &path).send().refused(401, "AUTH_ERROR");
    let reply = root.request("POST", &path).send();
    assert_eq!(reply.header("x-ratelimit-limit"), Some("30"));
    let data = reply.ok();
    assert_eq!(
        (data["user_id"].clone(), data.as_object().unwrap().len()),
        (json!(ana.id), 2)
    );
    assert!(text(&data["signed_out_at"]).ends_with('Z'));
    ana.get("/api/contacts").refused(401, "AUTH_ERROR");
    eventually("the other server refuses the user", || {
        (elsewhere() == 401).then_some(())
    });
    root.get("/api/admin/stats").ok();
    let unknown = format!("/api/admin/users/{}/sign-out", Uuid::now_v7());
    root.request("POST", &unknown).send().refused(404, "NOT_FOUND");
    let invalid = root.request("POST", "/api/admin/users/7/sign-out").send().invalid();
    assert_eq!(invalid, ["id"]);
    let logs: Value = root.get("/api/admin/audit-logs?entity_type=user_sessions").ok();
    assert_eq!(logs["total"], json!(1));
    let entry = &logs["logs"][0];
    assert_eq!(
        (
            &entry["action"],
            &entry["entity_id"],
            &entry["account_id"],
            &entry["email"]
        ),
        (&json!("update"), &json!(ana.id), &json!(null), &json!(ROOT))
    );
}
