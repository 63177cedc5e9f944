//! Limits of API keys: scopes, expiry, networks and rotation, in force on every server within a second.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::client::{Reply, Request};
use crate::harness::stream::Stream;
use crate::harness::users::User;
use crate::harness::{Options, Server, eventually, text, until};

/// How long a change may take until it is in force on every server.
const IN_FORCE: Duration = Duration::from_secs(1);

fn create(owner: &User<'_>, fields: Value) -> Value {
    let mut body = json!({ "name": "CI" });
    body.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    owner.post("/api/api-keys", body).created()
}

fn path(key: &Value) -> String {
    format!("/api/api-keys/{}", text(&key["id"]))
}

fn rotate(owner: &User<'_>, key: &Value, body: Value) -> Value {
    owner.post(&format!("{}/rotate", path(key)), body).ok()
}

fn listed(user: &User<'_>, key: &Value) -> Value {
    let list = user.get("/api/api-keys").ok();
    let found = list.as_array().unwrap().iter().find(|listed| listed["id"] == key["id"]);
    found.unwrap().clone()
}

/// A time `ahead`, in the published format.
fn at(ahead: time::Duration) -> String {
    recado_domain::shared::timestamp::format(time::OffsetDateTime::now_utc() + ahead)
}

fn contacts(port: u16, secret: &str) -> Request {
    Request::new(port, "GET", "/api/contacts").bearer(secret)
}

/// Waits until the request gets this status. Requests that begin later than `IN_FORCE` after `since` must get it.
#[track_caller]
fn takes_effect(request: &Request, status: u16, since: Instant) {
    eventually("the change is in force", || {
        let sent_at = since.elapsed();
        let reply = request.clone().send();
        assert!(
            reply.status == status || sent_at < IN_FORCE,
            "{sent_at:?}: {}",
            reply.text
        );
        (reply.status == status).then_some(())
    });
}

/// The response without the headers that differ between any two requests.
fn comparable(reply: &Reply) -> (u16, Vec<(String, String)>, String) {
    let varies = |name: &str| ["x-request-id", "date"].contains(&name);
    let mut headers: Vec<(String, String)> = reply
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.to_str().unwrap().to_owned()))
        .filter(|(name, _)| !varies(name))
        .collect();
    headers.sort();
    (reply.status, headers, reply.text.clone())
}

#[test]
fn invalid_limits_are_named_by_field() {
    let server = Server::new();
    let ana = server.owner();
    let foreign = server.owner().template("foreign", "Oi", &[]);
    let own = ana.template("own", "Oi", &[]);
    let made = create(&ana, json!({}));
    let scope = |scope: &str| json!({ "scopes": ["contacts:read", scope] });
    for (fields, invalid) in [
        (json!({ "scopes": [] }), "scopes"),
        (json!({ "scopes": vec!["*"; 51] }), "scopes"),
        (json!({ "scopes": "*" }), "scopes"),
        (scope("contacts:delete"), "scopes[1]"),
        (scope("account:write"), "scopes[1]"),
        (scope("ingest:read"), "scopes[1]"),
        (scope(""), "scopes[1]"),
        (scope("trigger:7"), "scopes[1]"),
        (scope(&format!("trigger:{}", Uuid::now_v7())), "scopes[1]"),
        (scope(&format!("trigger:{foreign}")), "scopes[1]"),
        (json!({ "expires_at": "tomorrow" }), "expires_at"),
        (json!({ "expires_at": at(time::Duration::ZERO) }), "expires_at"),
        (json!({ "expires_at": at(time::Duration::seconds(58)) }), "expires_at"),
        (json!({ "expires_at": at(time::Duration::days(3660)) }), "expires_at"),
        (json!({ "allowed_cidrs": ["10.0.0.0/33"] }), "allowed_cidrs[0]"),
        (
            json!({ "allowed_cidrs": ["10.0.0.0/8", "example.com"] }),
            "allowed_cidrs[1]",
        ),
        (json!({ "allowed_cidrs": vec!["10.0.0.0/8"; 51] }), "allowed_cidrs"),
    ] {
        let mut body = fields.clone();
        assert_eq!(ana.put(&path(&made), fields.clone()).invalid(), [invalid], "{fields}");
        body["name"] = json!("CI");
        // Another account for creations, because creations and changes share one rate limit.
        let bia = server.owner();
        assert_eq!(bia.post("/api/api-keys", body).invalid(), [invalid], "{fields}");
    }
    let good = json!({ "scopes": [format!("trigger:{own}"), "campaigns:send"],
        "expires_at": at(time::Duration::days(3650)), "allowed_cidrs": ["203.0.113.0/24", "2001:db8::/32"] });
    let made = create(&ana, good.clone());
    for field in ["scopes", "expires_at", "allowed_cidrs"] {
        assert_eq!(
            (&made[field], &listed(&ana, &made)[field]),
            (&good[field], &good[field])
        );
    }
    // Null fields: an end may be removed, the others have no null.
    for field in ["name", "scopes", "allowed_cidrs"] {
        assert_eq!(ana.put(&path(&made), json!({ field: null })).invalid(), [field]);
    }
    let endless = ana.put(&path(&made), json!({ "expires_at": null })).ok();
    assert_eq!(
        (&endless["expires_at"], &endless["scopes"]),
        (&Value::Null, &good["scopes"])
    );
}

#[test]
fn key_change_is_audited_and_needs_owner_or_admin() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let made = create(&ana, json!({}));
    let key = text(&made["full_key"]);
    let rotation = format!("{}/rotate", path(&made));
    for role in ["member", "viewer"] {
        let user = server.member(&ana.account, role);
        user.put(&path(&made), json!({ "name": "x" }))
            .refused(401, "AUTH_ERROR");
        user.post(&rotation, json!({})).refused(401, "AUTH_ERROR");
    }
    for request in [server.request("PUT", &path(&made)), server.post(&rotation)] {
        request
            .bearer(&key)
            .json(&json!({ "name": "x" }))
            .send()
            .refused(401, "AUTH_ERROR");
    }
    bia.put(&path(&made), json!({ "name": "x" })).refused(404, "NOT_FOUND");
    bia.post(&rotation, json!({})).refused(404, "NOT_FOUND");
    let unknown = format!("/api/api-keys/{}", Uuid::now_v7());
    ana.put(&unknown, json!({ "name": "x" })).refused(404, "NOT_FOUND");
    ana.put(&unknown, json!({ "name": "" })).invalid();
    ana.post(&format!("{unknown}/rotate"), json!({}))
        .refused(404, "NOT_FOUND");
    for wrong in [json!(-1), json!(169), json!("24"), json!(1.5)] {
        assert_eq!(
            ana.post(&rotation, json!({ "grace_hours": wrong })).invalid(),
            ["grace_hours"]
        );
    }

    let admin = server.member(&ana.account, "admin");
    let changed = admin
        .put(&path(&made), json!({ "name": " Loja ", "scopes": ["links:read"] }))
        .ok();
    assert_eq!(
        (&changed["name"], &changed["scopes"]),
        (&json!("Loja"), &json!(["links:read"]))
    );
    assert_eq!(changed.get("full_key"), None);
    assert_eq!((&changed["created_by"], &changed["id"]), (&json!(ana.id), &made["id"]));
    let rotated = admin.post(&rotation, json!({})).ok();
    for field in ["id", "name", "scopes", "created_by", "created_at"] {
        assert_eq!(rotated[field], changed[field], "{field}");
    }
    let log = ana.get("/api/audit-logs?entityType=api_key&action=update").ok();
    let entries = log["logs"].as_array().unwrap();
    let changes: Vec<&Value> = entries.iter().map(|entry| &entry["changes"]).collect();
    assert_eq!(changes.len(), 2, "{log}");
    assert_eq!(changes[0]["rotated"], true);
    assert_eq!(*changes[1], json!({ "name": "Loja", "scopes": ["links:read"] }));
    assert!(
        entries
            .iter()
            .all(|entry| entry["entity_id"] == made["id"] && entry["user_id"] == json!(admin.id))
    );
}

#[test]
fn key_change_acts_on_every_server_within_a_second() {
    let server = Server::new();
    let sibling = server.sibling();
    let ana = server.owner();
    let made = create(&ana, json!({}));
    let secret = text(&made["full_key"]);
    let requests = [contacts(server.port(), &secret), contacts(sibling.port(), &secret)];
    for (fields, status) in [
        (json!({ "scopes": ["contacts:write"] }), 403),
        (json!({ "scopes": ["contacts:read"] }), 200),
        (json!({ "allowed_cidrs": ["203.0.113.0/24"] }), 401),
        (json!({ "allowed_cidrs": ["203.0.113.0/24", "127.0.0.0/8"] }), 200),
    ] {
        ana.put(&path(&made), fields).ok();
        let since = Instant::now();
        // The server that made the change applies it at once.
        assert_eq!(requests[0].clone().send().status, status);
        requests.iter().for_each(|request| takes_effect(request, status, since));
    }
}

#[test]
fn narrowed_key_loses_its_open_stream() {
    let server = Server::new();
    let ana = server.owner();
    let made = create(&ana, json!({}));
    server.db.wait_for_outbox();
    let request = server.get("/api/notifications/stream").bearer(&text(&made["full_key"]));
    let mut stream = Stream::open(&request);
    assert_eq!(stream.status, 200);
    ana.put(&path(&made), json!({ "scopes": ["contacts:read"] })).ok();
    assert_eq!(stream.end(), 0);
}

#[test]
fn expired_key_is_refused_on_every_server_within_a_second() {
    let server = Server::new();
    let sibling = server.sibling();
    let ana = server.owner();
    let made = create(&ana, json!({ "expires_at": at(time::Duration::HOUR) }));
    let secret = text(&made["full_key"]);
    let requests = [contacts(server.port(), &secret), contacts(sibling.port(), &secret)];
    for request in &requests {
        request.clone().send().ok();
    }
    // A key lives for a minute at least, so the test shortens it in the database.
    server
        .db
        .run("UPDATE api_keys SET expires_at = now() + interval '1500 milliseconds'");
    let expires_at = Instant::now() + Duration::from_millis(1500);
    until("the key expires", || {
        let statuses: Vec<u16> = requests.iter().map(|request| request.clone().send().status).collect();
        let is_early = Instant::now() + Duration::from_millis(200) < expires_at;
        assert!(!is_early || statuses == [200, 200], "{statuses:?}");
        Instant::now() >= expires_at
    });
    requests
        .iter()
        .for_each(|request| takes_effect(request, 401, expires_at));
    let error = ana
        .post(&format!("{}/rotate", path(&made)), json!({}))
        .refused(400, "VALIDATION_ERROR");
    assert_eq!(error["details"], json!({ "reason": "expired" }));
    ana.put(&path(&made), json!({ "expires_at": at(time::Duration::HOUR) }))
        .ok();
    requests[0].clone().send().ok();
}

#[test]
fn refused_key_is_indistinguishable_from_an_unknown_one() {
    let server = Server::start(Options::default().with("TRUSTED_PROXIES", "127.0.0.0/8"));
    let ana = server.owner();
    let networks = json!({ "allowed_cidrs": ["203.0.113.0/24", "2001:db8::/32"] });
    let secret = text(&create(&ana, networks)["full_key"]);
    let expired = create(&ana, json!({}));
    server.db.run(&format!(
        "UPDATE api_keys SET expires_at = now() WHERE id = '{}'",
        text(&expired["id"])
    ));
    let expired = text(&expired["full_key"]);
    let random = "svc_live_sk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let from = |address: &str, secret: &str, path: &str| {
        let request = server.get(path).header("X-API-Key", secret);
        request.header("X-Forwarded-For", address).send()
    };
    for inside in ["203.0.113.0", "203.0.113.255", "2001:db8:ffff::1"] {
        from(inside, &secret, "/api/contacts").ok();
    }
    for outside in ["203.0.114.0", "198.51.100.7", "2001:db9::1", "::1"] {
        for path in ["/api/contacts", "/api/audit-logs", "/api/team/invites"] {
            let unknown = comparable(&from(outside, random, path));
            assert_eq!(comparable(&from(outside, &secret, path)), unknown, "{outside} {path}");
            assert_eq!(comparable(&from(outside, &expired, path)), unknown, "{outside} {path}");
        }
    }
    // What the client itself writes to the left of the proxy's hop does not count.
    assert_eq!(from("203.0.113.7, 198.51.100.7", &secret, "/api/contacts").status, 401);
}

#[test]
fn rotated_key_has_two_secrets_at_most() {
    let server = Server::new();
    let sibling = server.sibling();
    let ana = server.owner();
    let made = create(&ana, json!({ "scopes": ["contacts:read"] }));
    let secrets = std::cell::RefCell::new(vec![text(&made["full_key"])]);
    let check = |statuses: &[u16]| {
        let since = Instant::now();
        for (secret, status) in secrets.borrow().iter().zip(statuses) {
            assert_eq!(contacts(server.port(), secret).send().status, *status, "at once");
            for port in [server.port(), sibling.port()] {
                takes_effect(&contacts(port, secret), *status, since);
            }
        }
    };
    check(&[200]);
    let first = rotate(&ana, &made, json!({ "grace_hours": 168 }));
    secrets.borrow_mut().push(text(&first["full_key"]));
    check(&[200, 200]);
    let (hint, full) = (text(&first["key_hint"]), text(&first["full_key"]));
    assert!(full.ends_with(&hint) && full.starts_with("svc_live_sk_") && full.len() == 44);
    let shown = listed(&ana, &made);
    assert_eq!(
        (&shown["key_hint"], &shown["rotated_at"]),
        (&first["key_hint"], &first["rotated_at"])
    );
    assert_eq!(shown["previous_valid_until"], first["previous_valid_until"]);
    // The second rotation ends the oldest secret.
    secrets
        .borrow_mut()
        .push(text(&rotate(&ana, &made, json!({}))["full_key"]));
    check(&[401, 200, 200]);
    // Without a grace only the new secret works.
    secrets
        .borrow_mut()
        .push(text(&rotate(&ana, &made, json!({ "grace_hours": 0 }))["full_key"]));
    check(&[401, 401, 401, 200]);
    // The grace ends.
    secrets
        .borrow_mut()
        .push(text(&rotate(&ana, &made, json!({ "grace_hours": 1 }))["full_key"]));
    server
        .db
        .run("UPDATE api_key_hashes SET valid_until = now() WHERE valid_until IS NOT NULL");
    let since = Instant::now();
    takes_effect(&contacts(sibling.port(), &secrets.borrow()[3]), 401, since);
    check(&[401, 401, 401, 401, 200]);
}

#[test]
fn rotation_repeats_with_its_idempotency_key() {
    let server = Server::new();
    let ana = server.owner();
    let made = create(&ana, json!({}));
    let request = ana
        .request("POST", &format!("{}/rotate", path(&made)))
        .header("Idempotency-Key", "once")
        .json(&json!({ "grace_hours": 2 }));
    let first = request.clone().send();
    let again = request.send();
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(first.text, again.text);
    assert_eq!(server.db.count("FROM api_key_hashes"), 2);
    for secret in [&text(&made["full_key"]), &text(&first.ok()["full_key"])] {
        contacts(server.port(), secret).send().ok();
    }
}

#[test]
fn concurrent_rotations_leave_working_secrets() {
    let server = Server::new();
    let ana = server.owner();
    let made = create(&ana, json!({}));
    let path = format!("{}/rotate", path(&made));
    let secrets: Vec<String> = std::thread::scope(|scope| {
        let request = ana.request("POST", &path).json(&json!({}));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let request = request.clone();
                scope.spawn(move || text(&request.send().ok()["full_key"]))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let works = |secret: &&String| contacts(server.port(), secret).send().status == 200;
    assert_eq!(secrets.iter().filter(works).count(), 2);
    assert_eq!(server.db.count("FROM api_key_hashes"), 2);
}

#[test]
fn longest_lifetime_of_the_server_bounds_keys() {
    let server = Server::start(Options::default().with("API_KEY_MAX_DAYS", "30"));
    let ana = server.owner();
    let limit = |key: &Value| {
        let at = recado_domain::shared::timestamp::parse(&text(&key["expires_at"])).unwrap();
        let left = at - time::OffsetDateTime::now_utc();
        assert!(
            left <= time::Duration::days(30) && left > time::Duration::days(29),
            "{left}"
        );
    };
    let made = create(&ana, json!({}));
    limit(&made);
    limit(&create(&ana, json!({ "expires_at": null })));
    let week = at(time::Duration::WEEK);
    assert_eq!(
        ana.put(&path(&made), json!({ "expires_at": week })).ok()["expires_at"],
        json!(week)
    );
    assert_eq!(
        ana.put(&path(&made), json!({ "name": "x" })).ok()["expires_at"],
        json!(week)
    );
    limit(&ana.put(&path(&made), json!({ "expires_at": null })).ok());
    let later = json!({ "name": "CI", "expires_at": at(time::Duration::days(31)) });
    assert_eq!(ana.put(&path(&made), later.clone()).invalid(), ["expires_at"]);
    assert_eq!(ana.post("/api/api-keys", later).invalid(), ["expires_at"]);
}

#[test]
fn last_address_is_shown_to_owners_and_admins_only() {
    let server = Server::start(Options::default().with("TRUSTED_PROXIES", "127.0.0.0/8"));
    let ana = server.owner();
    let made = create(&ana, json!({}));
    let secret = text(&made["full_key"]);
    assert_eq!(listed(&ana, &made)["last_used_ip"], Value::Null);
    let request = server.get("/api/api-keys").bearer(&secret);
    let by_key = request.header("X-Forwarded-For", "203.0.113.7").send().ok();
    assert_eq!(by_key[0]["last_used_ip"], Value::Null);
    for (role, shown) in [
        ("admin", json!("203.0.113.7")),
        ("member", Value::Null),
        ("viewer", Value::Null),
    ] {
        let key = listed(&server.member(&ana.account, role), &made);
        assert!(key["last_used_at"].is_string());
        assert_eq!(key["last_used_ip"], shown, "{role}");
    }
    assert_eq!(listed(&ana, &made)["last_used_ip"], json!("203.0.113.7"));
}

#[test]
fn refused_scope_counts_towards_no_rate_limit() {
    let server = Server::new();
    let ana = server.owner();
    let secret = text(&create(&ana, json!({ "scopes": ["contacts:read"] }))["full_key"]);
    for _ in 0..1000 {
        let reply = server.get("/api/audit-logs").bearer(&secret).send();
        assert_eq!(reply.header("x-ratelimit-remaining"), None);
        reply.refused(403, "FORBIDDEN");
    }
    let counted = ana.get("/api/audit-logs");
    assert_eq!(counted.header("x-ratelimit-remaining"), Some("29"));
    // The body is not read either: the scope is decided with the role.
    let request = server.post("/api/campaigns").bearer(&secret);
    request.body("text/plain", "junk").send().refused(403, "FORBIDDEN");
}

/// A crash leaves the old secret valid alone, or both secrets; never none.
#[test]
fn rotation_of_killed_server_leaves_a_working_secret() {
    let server = Server::new();
    let ana = server.owner();
    let made = create(&ana, json!({}));
    let mut secret = text(&made["full_key"]);
    for round in 0..4 {
        let request = ana.request("POST", &format!("{}/rotate", path(&made))).json(&json!({}));
        let rotation = std::thread::spawn(move || request.try_send());
        std::thread::sleep(Duration::from_millis(3 * round));
        server.kill();
        let rotated = rotation.join().unwrap().ok().filter(|reply| reply.status == 200);
        server.run(&["serve"]);
        contacts(server.port(), &secret).send().ok();
        assert!((1..=2).contains(&server.db.count("FROM api_key_hashes")));
        assert_eq!(server.db.count("FROM api_key_hashes WHERE valid_until IS NULL"), 1);
        if let Some(rotated) = rotated {
            secret = text(&rotated.ok()["full_key"]);
            contacts(server.port(), &secret).send().ok();
        }
    }
}

/// A process that is killed between its commit and the storing of its response leaves no stored response.
#[test]
fn rotation_repeated_after_a_crash_keeps_the_old_secret() {
    let server = Server::new();
    let ana = server.owner();
    let made = create(&ana, json!({}));
    let request = ana
        .request("POST", &format!("{}/rotate", path(&made)))
        .header("Idempotency-Key", "once")
        .json(&json!({ "grace_hours": 5 }));
    let unanswered = request.clone().send().ok();
    server.db.run("DELETE FROM idempotency_keys");
    let answered = request.send().ok();
    assert_eq!(answered["previous_valid_until"], unanswered["previous_valid_until"]);
    let status = |key: &Value| contacts(server.port(), &text(&key["full_key"])).send().status;
    assert_eq!((status(&made), status(&unanswered), status(&answered)), (200, 401, 200));
}
