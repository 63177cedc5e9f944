//! Idempotency keys: what is asked twice is done once, and answered twice.

use std::io::Write as _;

use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::harness::client::{Reply, Request, connect};
use crate::harness::runs::silent;
use crate::harness::users::User;
use crate::harness::{Server, eventually, text};

fn keyed(user: &User<'_>, path: &str, key: &str) -> Request {
    user.request("POST", path).header("Idempotency-Key", key)
}

fn contact(user: &User<'_>, key: &str, name: &str) -> Reply {
    keyed(user, "/api/contacts", key)
        .json(&json!({ "name": name, "phone": "+5511961234567" }))
        .send()
}

fn is_replay(reply: &Reply) -> bool {
    reply.header("idempotent-replayed") == Some("true")
}

fn contacts(user: &User<'_>) -> i64 {
    let account = &user.account;
    user.server
        .db
        .count(&format!("FROM contacts WHERE account_id = '{account}'"))
}

#[test]
fn a_repeated_request_gets_the_first_answer() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let first = contact(&ana, "k1", "Ana");
    assert!(!is_replay(&first));
    let again = contact(&ana, "k1", "Ana");
    assert!(is_replay(&again));
    assert_eq!((again.status, &again.text), (201, &first.text));
    assert_eq!(again.header("content-type"), first.header("content-type"));
    assert_ne!(again.header("x-request-id"), first.header("x-request-id"));
    assert_eq!(contacts(&ana), 1);
    // Everybody in the account together; nobody outside of it.
    let member = server.member(&ana.account, "member");
    assert!(is_replay(&contact(&member, "k1", "Ana")));
    assert!(!is_replay(&contact(&bia, "k1", "Ana")));
    // Another key asks anew, and is told so again.
    for replayed in [false, true] {
        let taken = contact(&ana, "k2", "Ana");
        assert_eq!(is_replay(&taken), replayed);
        assert_eq!(taken.invalid(), ["phone"]);
    }
}

#[test]
fn a_key_means_one_request() {
    let server = Server::new();
    let ana = server.owner();
    contact(&ana, "k", "Ana").created();
    contact(&ana, "k", "Bia").refused(409, "CONFLICT");
    let elsewhere = keyed(&ana, "/api/tags", "k").json(&json!({ "name": "vip" })).send();
    elsewhere.refused(409, "CONFLICT");
    assert_eq!((contacts(&ana), server.db.count("FROM tags")), (1, 0));
    // Routes that are idempotent by themselves take no notice.
    ana.request("GET", "/api/contacts")
        .header("Idempotency-Key", "k")
        .send()
        .ok();
}

#[test]
fn a_key_has_1_to_255_characters() {
    let server = Server::new();
    let ana = server.owner();
    for wrong in ["", " ", &"k".repeat(256)] {
        assert_eq!(contact(&ana, wrong, "Ana").invalid(), ["Idempotency-Key"], "{wrong}");
    }
    let twice = keyed(&ana, "/api/contacts", "a").header("Idempotency-Key", "b");
    assert_eq!(
        twice.json(&json!({ "name": "Ana" })).send().invalid(),
        ["Idempotency-Key"]
    );
    let nobody = server.post("/api/contacts").header("Idempotency-Key", "");
    nobody.json(&json!({})).send().refused(401, "AUTH_ERROR");
    assert_eq!(contacts(&ana), 0);
    contact(&ana, &"k".repeat(255), "Ana").created();
}

#[test]
fn a_replay_passes_the_door_first() {
    let server = Server::new();
    let ana = server.owner();
    let member = server.member(&ana.account, "member");
    contact(&member, "k", "Ana").created();
    server.db.run(&format!(
        "UPDATE account_users SET role = 'viewer' WHERE user_id = '{}'",
        member.id
    ));
    eventually("the member is a viewer", || {
        (contact(&member, "k", "Ana").status == 401).then_some(())
    });
    contact(&member, "k", "Ana").refused(401, "AUTH_ERROR");
    assert!(is_replay(&contact(&ana, "k", "Ana")));
    // It counts towards the limit like any other request.
    for _ in 0..30 {
        keyed(&ana, "/api/campaigns", "c")
            .json(&json!({ "name": "C" }))
            .send()
            .created();
    }
    let limited = keyed(&ana, "/api/campaigns", "c").json(&json!({ "name": "C" })).send();
    limited.refused(429, "RATE_LIMIT");
    assert_eq!(server.db.count("FROM campaigns"), 1);
}

#[test]
fn on_routes_without_an_account_a_key_is_the_users() {
    let server = Server::new();
    let (ana, bia) = (server.stranger(), server.stranger());
    let create = |user: &User<'_>| {
        let request = keyed(user, "/api/accounts", "k");
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
fn of_many_at_once_one_is_carried_out() {
    let server = Server::new();
    let ana = server.owner();
    let request = keyed(&ana, "/api/tags", "k").json(&json!({ "name": "vip" }));
    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..30).map(|_| scope.spawn(|| request.clone().send())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut ids = std::collections::BTreeSet::new();
    for reply in replies {
        match reply.status {
            201 => drop(ids.insert(text(&reply.created()["id"]))),
            // Where the machine is busy, one may not have found a connection.
            503 => drop(reply.refused(503, "UNAVAILABLE")),
            _ => drop(reply.refused(409, "CONFLICT")),
        }
    }
    assert_eq!((ids.len(), server.db.count("FROM tags")), (1, 1));
    assert!(is_replay(&request.send()));
}

#[test]
fn a_fault_is_no_answer() {
    let server = Server::start(silent());
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
        keyed(&ana, &format!("/api/templates/{template}/submit"), "k")
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
fn a_body_that_broke_off_or_was_not_taken_leaves_the_key_free() {
    let server = Server::new();
    let ana = server.owner();
    let body = json!({ "name": "Ana", "phone": "+5511961234567" }).to_string();
    let refused = keyed(&ana, "/api/contacts", "k")
        .body("text/plain", body.clone())
        .send();
    refused.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    let huge = format!("{{\"x\":\"{}\"}}", "a".repeat(1024 * 1024));
    let refused = keyed(&ana, "/api/contacts", "k").body("application/json", huge).send();
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
        Some(contact(&ana, "k", "Ana")).filter(|reply| reply.status != 409)
    });
    assert!(!is_replay(&done), "{}", done.text);
    done.created();
}

#[test]
fn an_import_is_repeated_without_importing() {
    let server = Server::new();
    let ana = server.owner();
    let import = |csv: &str| keyed(&ana, "/api/contacts/import", "k").body("text/csv", csv).send();
    let file = "name,phone\nAna,+5511961234567\nBia,+5511961234568\nbad,1\n";
    let first = import(file).ok();
    assert_eq!((&first["imported"], &first["skipped"]), (&json!(2), &json!(1)));
    let again = import(file);
    assert!(is_replay(&again));
    assert_eq!(again.ok(), first);
    import("name,phone\nCaio,+5511961234569\n").refused(409, "CONFLICT");
    assert_eq!(contacts(&ana), 2);
}

/// Sends a request and hangs up without waiting for the answer.
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
fn a_client_that_hung_up_gets_its_answer_when_it_asks_again() {
    let server = Server::start(silent().with("CAMPAIGN_MESSAGE_DELAY_MS", "100"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(8);
    let campaign = ana.plain_campaign();
    let path = format!("/api/campaigns/{campaign}/execute");
    send_and_hang_up(&ana, &path, "k");
    eventually("the run has begun", || (ana.status(&campaign) != "draft").then_some(()));
    keyed(&ana, &path, "k").send().refused(409, "CONFLICT");
    eventually("the run is over", || {
        (ana.status(&campaign) == "completed").then_some(())
    });
    // Asking for it again and again would be refused for its number.
    eventually("the answer is kept", || {
        let kept = server.db.count("FROM idempotency_keys WHERE response IS NOT NULL");
        (kept == 1).then_some(())
    });
    let answer = keyed(&ana, &path, "k").send();
    assert!(is_replay(&answer));
    assert_eq!(answer.ok()["status"], "completed");
    assert_eq!(server.whatsapp.sends().len(), 8);
}

#[test]
fn a_server_that_died_frees_its_keys_when_their_lease_is_over() {
    let server = Server::start(silent().with("CAMPAIGN_MESSAGE_DELAY_MS", "1000"));
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
    keyed(&ana, &path, "k").send().refused(409, "CONFLICT");
    server.db.run("UPDATE idempotency_keys SET leased_until = now()");
    // Carried out anew, and so refused for what the first one did.
    let refused = keyed(&ana, &path, "k").send();
    assert!(!is_replay(&refused));
    refused.refused(400, "VALIDATION_ERROR");
}

#[test]
fn nothing_of_an_answer_is_kept_in_clear() {
    let server = Server::new();
    let ana = server.owner();
    contact(&ana, "k", "Very Recognisable").created();
    let kept = server
        .db
        .text("SELECT encode(response, 'escape') FROM idempotency_keys");
    assert!(kept.len() > 50 && !kept.contains("Recognisable"), "{kept}");
    let rows: Value = json!(server.db.rows("SELECT length(request_hash) FROM idempotency_keys"));
    assert_eq!(rows, json!([["32"]]));
}
