//! Idempotency keys: a repeated request has one effect and gets the stored response.

use std::io::Write as _;

use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::harness::client::{Reply, Request, connect};
use crate::harness::runs::without_statuses;
use crate::harness::users::User;
use crate::harness::{Server, eventually, text};

fn with_key(user: &User<'_>, path: &str, key: &str) -> Request {
    user.request("POST", path).header("Idempotency-Key", key)
}

fn create_contact(user: &User<'_>, key: &str, name: &str) -> Reply {
    with_key(user, "/api/contacts", key)
        .json(&json!({ "name": name, "phone": "+5511961234567" }))
        .send()
}

fn is_replay(reply: &Reply) -> bool {
    reply.header("idempotent-replayed") == Some("true")
}

fn count_contacts(user: &User<'_>) -> i64 {
    let account = &user.account;
    user.server
        .db
        .count(&format!("FROM contacts WHERE account_id = '{account}'"))
}

#[test]
fn repeated_key_returns_the_stored_response() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let first = create_contact(&ana, "k1", "Ana");
    assert!(!is_replay(&first));
    let again = create_contact(&ana, "k1", "Ana");
    assert!(is_replay(&again));
    assert_eq!((again.status, &again.text), (201, &first.text));
    assert_eq!(again.header("content-type"), first.header("content-type"));
    assert_ne!(again.header("x-request-id"), first.header("x-request-id"));
    assert_eq!(count_contacts(&ana), 1);
    // The members of an account share its keys. Another account does not.
    let member = server.member(&ana.account, "member");
    assert!(is_replay(&create_contact(&member, "k1", "Ana")));
    assert!(!is_replay(&create_contact(&bia, "k1", "Ana")));
    // Another key runs the request again. Its error response is stored, too.
    for replayed in [false, true] {
        let duplicate = create_contact(&ana, "k2", "Ana");
        assert_eq!(is_replay(&duplicate), replayed);
        assert_eq!(duplicate.invalid(), ["phone"]);
    }
}

#[test]
fn key_reused_for_another_request_is_a_conflict() {
    let server = Server::new();
    let ana = server.owner();
    create_contact(&ana, "k", "Ana").created();
    create_contact(&ana, "k", "Bia").refused(409, "CONFLICT");
    let elsewhere = with_key(&ana, "/api/tags", "k").json(&json!({ "name": "vip" })).send();
    elsewhere.refused(409, "CONFLICT");
    assert_eq!((count_contacts(&ana), server.db.count("FROM tags")), (1, 0));
    // Routes that are idempotent by themselves ignore the key.
    ana.request("GET", "/api/contacts")
        .header("Idempotency-Key", "k")
        .send()
        .ok();
}

#[test]
fn key_length_outside_1_to_255_is_refused() {
    let server = Server::new();
    let ana = server.owner();
    for wrong in ["", " ", &"k".repeat(256)] {
        assert_eq!(
            create_contact(&ana, wrong, "Ana").invalid(),
            ["Idempotency-Key"],
            "{wrong}"
        );
    }
    let twice = with_key(&ana, "/api/contacts", "a").header("Idempotency-Key", "b");
    assert_eq!(
        twice.json(&json!({ "name": "Ana" })).send().invalid(),
        ["Idempotency-Key"]
    );
    let anonymous = server.post("/api/contacts").header("Idempotency-Key", "");
    anonymous.json(&json!({})).send().refused(401, "AUTH_ERROR");
    assert_eq!(count_contacts(&ana), 0);
    create_contact(&ana, &"k".repeat(255), "Ana").created();
}

#[test]
fn replay_runs_the_access_check_and_counts_to_the_limit() {
    let server = Server::new();
    let ana = server.owner();
    let member = server.member(&ana.account, "member");
    create_contact(&member, "k", "Ana").created();
    server.db.run(&format!(
        "UPDATE account_users SET role = 'viewer' WHERE user_id = '{}'",
        member.id
    ));
    eventually("the member is a viewer", || {
        (create_contact(&member, "k", "Ana").status == 401).then_some(())
    });
    create_contact(&member, "k", "Ana").refused(401, "AUTH_ERROR");
    assert!(is_replay(&create_contact(&ana, "k", "Ana")));
    // A replay counts towards the rate limit.
    for _ in 0..30 {
        with_key(&ana, "/api/campaigns", "c")
            .json(&json!({ "name": "C" }))
            .send()
            .created();
    }
    let limited = with_key(&ana, "/api/campaigns", "c")
        .json(&json!({ "name": "C" }))
        .send();
    limited.refused(429, "RATE_LIMIT");
    assert_eq!(server.db.count("FROM campaigns"), 1);
}

#[test]
fn key_without_account_is_scoped_to_the_user() {
    let server = Server::new();
    let (ana, bia) = (server.stranger(), server.stranger());
    let create = |user: &User<'_>| {
        let request = with_key(user, "/api/accounts", "k");
        request.json(&json!({ "name": "Loja" })).send()
    };
    let (first, again) = (create(&ana), create(&ana));
    assert!(is_replay(&again) && !is_replay(&first));
    assert!(first.header("set-cookie").is_some());
    assert_eq!(again.header("set-cookie"), first.header("set-cookie"));
    assert_eq!(again.text, first.text);
    assert!(!is_replay(&create(&bia)));
    assert_eq!(server.db.count("FROM accounts"), 2);
}

#[test]
fn concurrent_requests_with_one_key_run_once() {
    let server = Server::new();
    let ana = server.owner();
    let request = with_key(&ana, "/api/tags", "k").json(&json!({ "name": "vip" }));
    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..30).map(|_| scope.spawn(|| request.clone().send())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut ids = std::collections::BTreeSet::new();
    for reply in replies {
        match reply.status {
            201 => drop(ids.insert(text(&reply.created()["id"]))),
            // On a busy machine a request may find no free database connection.
            503 => drop(reply.refused(503, "UNAVAILABLE")),
            _ => drop(reply.refused(409, "CONFLICT")),
        }
    }
    assert_eq!((ids.len(), server.db.count("FROM tags")), (1, 1));
    assert!(is_replay(&request.send()));
}

#[test]
fn failed_request_leaves_the_key_free() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let template = ana.template("t", "Oi {{1}}, tudo bem?", &["Ana"]);
    let fault = WhatsappFaultKind::Error {
        code: 1,
        http_status: 500,
        details: String::new(),
    };
    server.whatsapp.script(vec![WhatsappFault::template(fault)]);
    let submit = || {
        with_key(&ana, &format!("/api/templates/{template}/submit"), "k")
            .json(&json!({}))
            .send()
    };
    submit().refused(502, "WHATSAPP_ERROR");
    let done = submit();
    assert!(!is_replay(&done));
    done.ok();
    assert!(is_replay(&submit()));
}

#[test]
fn response_that_was_not_stored_is_stored_later() {
    let server = Server::new();
    let ana = server.owner();
    server
        .db
        .run("ALTER TABLE idempotency_keys ADD CONSTRAINT broken CHECK (response IS NULL)");
    let first = create_contact(&ana, "k", "Ana");
    assert_eq!(first.status, 201);
    server.db.run("ALTER TABLE idempotency_keys DROP CONSTRAINT broken");
    let again = eventually("the response is stored", || {
        Some(create_contact(&ana, "k", "Ana")).filter(|reply| reply.status != 409)
    });
    assert!(is_replay(&again), "{}", again.text);
    assert_eq!((again.status, &again.text), (201, &first.text));
}

#[test]
fn refused_or_broken_body_leaves_the_key_free() {
    let server = Server::new();
    let ana = server.owner();
    let body = json!({ "name": "Ana", "phone": "+5511961234567" }).to_string();
    let refused = with_key(&ana, "/api/contacts", "k")
        .body("text/plain", body.clone())
        .send();
    refused.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    let huge = format!("{{\"x\":\"{}\"}}", "a".repeat(1024 * 1024));
    let refused = with_key(&ana, "/api/contacts", "k")
        .body("application/json", huge)
        .send();
    refused.refused(413, "PAYLOAD_TOO_LARGE");
    let mut stream = connect(server.port());
    let head = format!(
        "POST /api/contacts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nIdempotency-Key: k\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        ana.token,
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body.as_bytes()[..10]).unwrap();
    drop(stream);
    let done = eventually("the key is free", || {
        Some(create_contact(&ana, "k", "Ana")).filter(|reply| reply.status != 409)
    });
    assert!(!is_replay(&done), "{}", done.text);
    done.created();
}

#[test]
fn repeated_import_returns_the_first_report() {
    let server = Server::new();
    let ana = server.owner();
    let import = |csv: &str| with_key(&ana, "/api/contacts/import", "k").body("text/csv", csv).send();
    let file = "name,phone\nAna,+5511961234567\nBia,+5511961234568\nbad,1\n";
    let first = import(file).ok();
    assert_eq!((&first["imported"], &first["skipped"]), (&json!(2), &json!(1)));
    let again = import(file);
    assert!(is_replay(&again));
    assert_eq!(again.ok(), first);
    import("name,phone\nCaio,+5511961234569\n").refused(409, "CONFLICT");
    assert_eq!(count_contacts(&ana), 2);
}

/// Sends a request and closes the connection without reading the response.
fn send_and_hang_up(user: &User<'_>, path: &str, key: &str) {
    let mut stream = connect(user.server.port());
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {key}\r\n\
         Content-Length: 0\r\n\r\n",
        user.token
    );
    stream.write_all(head.as_bytes()).unwrap();
}

#[test]
fn client_that_hung_up_gets_the_response_on_retry() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "100"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(8);
    let campaign = ana.plain_campaign();
    let path = format!("/api/campaigns/{campaign}/execute");
    send_and_hang_up(&ana, &path, "k");
    eventually("the run has begun", || (ana.status(&campaign) != "draft").then_some(()));
    with_key(&ana, &path, "k").send().refused(409, "CONFLICT");
    eventually("the run is over", || {
        (ana.status(&campaign) == "completed").then_some(())
    });
    // Polling the route itself would hit its rate limit.
    eventually("the response is stored", || {
        let stored = server.db.count("FROM idempotency_keys WHERE response IS NOT NULL");
        (stored == 1).then_some(())
    });
    let reply = with_key(&ana, &path, "k").send();
    assert!(is_replay(&reply));
    assert_eq!(reply.ok()["status"], "completed");
    assert_eq!(server.whatsapp.sends().len(), 8);
}

#[test]
fn key_of_a_dead_server_is_free_after_its_lease() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "1000"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(20);
    let campaign = ana.plain_campaign();
    let path = format!("/api/campaigns/{campaign}/execute");
    send_and_hang_up(&ana, &path, "k");
    eventually("the run has begun", || {
        (ana.status(&campaign) == "sending").then_some(())
    });
    server.kill();
    server.run(&["serve"]);
    with_key(&ana, &path, "k").send().refused(409, "CONFLICT");
    server.db.run("UPDATE idempotency_keys SET leased_until = now()");
    // The request runs again and is refused, because the first one has started the run.
    let refused = with_key(&ana, &path, "k").send();
    assert!(!is_replay(&refused));
    refused.refused(400, "VALIDATION_ERROR");
}

#[test]
fn stored_response_is_sealed() {
    let server = Server::new();
    let ana = server.owner();
    create_contact(&ana, "k", "Very Recognisable").created();
    let stored = server
        .db
        .text("SELECT encode(response, 'escape') FROM idempotency_keys");
    assert!(stored.len() > 50 && !stored.contains("Recognisable"), "{stored}");
    let rows: Value = json!(server.db.rows("SELECT length(request_hash) FROM idempotency_keys"));
    assert_eq!(rows, json!([["32"]]));
}
