//! Invites: made, taken back, accepted, by whom and how often.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::api_keys;
use crate::harness::client::{Reply, Request};
use crate::harness::users::{User, token};
use crate::harness::{Options, Server, text};
use crate::team::audited;

fn invite(owner: &User<'_>, email: &str, role: &str) -> Reply {
    owner.post("/api/team/invites", json!({ "email": email, "role": role }))
}

/// A new invite's token.
fn invited(owner: &User<'_>, email: &str, role: &str) -> String {
    text(&invite(owner, email, role).created()["token"])
}

/// A new invite's id.
pub fn id_of(owner: &User<'_>, email: &str) -> String {
    text(&invite(owner, email, "member").created()["id"])
}

/// A server that believes what is said about addresses, so that tests are not counted together.
fn server() -> Server {
    Server::start(Options::default().with("TRUSTED_PROXIES", "127.0.0.0/8"))
}

/// From an address of its own.
fn accepting(user: &User<'_>, token: &str) -> Request {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let [_, a, b, c] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    user.request("POST", "/api/auth/accept-invite")
        .header("X-Forwarded-For", &format!("10.{a}.{b}.{c}"))
        .json(&json!({ "token": token }))
}

fn accept(user: &User<'_>, token: &str) -> Reply {
    accepting(user, token).send()
}

fn cookie(reply: &Reply) -> Option<String> {
    reply.header("set-cookie").map(str::to_owned)
}

fn status(server: &Server, email: &str) -> String {
    server.db.text(&format!(
        "SELECT string_agg(status, ' ' ORDER BY id) FROM team_invites WHERE lower(email) = lower('{email}')"
    ))
}

fn memberships(user: &User<'_>, account: &str) -> i64 {
    user.server.db.count(&format!(
        "FROM account_users WHERE account_id = '{account}' AND user_id = '{}'",
        user.id
    ))
}

/// Everything that the tables about invites hold, every byte of it readable.
fn everything(server: &Server) -> String {
    let dump = |table: &str| {
        let rows = server.db.rows(&format!("SELECT t::text FROM {table} t"));
        rows.into_iter().filter_map(|row| row[0].clone()).collect::<String>()
    };
    let bytes = "SELECT string_agg(encode(token_hash, 'escape'), '') FROM invite_tokens";
    let mail = "SELECT string_agg(encode(content, 'escape'), '') FROM outgoing_mail";
    let tables = [
        "team_invites",
        "invite_tokens",
        "outgoing_mail",
        "audit_logs",
        "outbox_events",
    ];
    let mut all: String = tables.map(dump).concat();
    all.push_str(&server.db.text(bytes));
    all.push_str(&server.db.text(mail));
    all
}

#[test]
fn an_invite_is_told_with_its_token_once_and_stored_without() {
    let server = server();
    let ana = server.owner();
    let bia = server.stranger();
    let made = invite(&ana, &format!(" {} ", bia.email), "admin").created();
    let secret = text(&made["token"]);
    assert_eq!(secret.len(), 43, "32 bytes in base64url");
    let url = format!("http://127.0.0.1:{}/accept-invite?token={secret}", server.port());
    assert_eq!(made["accept_url"], json!(url));
    assert_eq!(
        (&made["email"], &made["role"], &made["status"]),
        (&json!(bia.email), &json!("admin"), &json!("pending"))
    );
    let hours = "SELECT extract(epoch FROM expires_at - created_at)::bigint / 3600 FROM team_invites";
    assert_eq!(server.db.text(hours), "168");
    let listed = ana.get("/api/team/invites").ok();
    let mut expected = made;
    for field in ["token", "accept_url"] {
        expected.as_object_mut().unwrap().remove(field);
    }
    assert_eq!(
        listed,
        json!({ "data": [expected], "nextCursor": null, "hasMore": false })
    );
    assert_eq!(expected.as_object().unwrap().len(), 6, "{expected}");
    assert!(!everything(&server).contains(&secret));
    accept(&bia, &secret).ok();
    assert_eq!(audited(&server, &ana.account).len(), 1);
    assert!(!everything(&server).contains(&secret));
    assert!(!server.log().contains(&secret));
}

#[test]
fn whoever_accepts_is_a_member_and_the_token_is_used_up() {
    let server = server();
    let ana = server.owner();
    let bia = server.stranger();
    bia.get("/api/contacts").refused(401, "AUTH_ERROR");
    let made = invite(&ana, &bia.email, "viewer").created();
    let reply = accepting(&bia, &text(&made["token"]))
        .header("X-Forwarded-For", "10.9.9.9")
        .send();
    let cookie = cookie(&reply).unwrap();
    assert!(
        cookie.starts_with(&format!("svc-active-account-id={}; ", ana.account)),
        "{cookie}"
    );
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("Max-Age=31536000"),
        "{cookie}"
    );
    let accepted = reply.ok();
    assert_eq!(
        (&accepted["account_id"], &accepted["role"]),
        (&json!(ana.account), &json!("viewer"))
    );
    assert!(!text(&accepted["message"]).is_empty() && accepted.as_object().unwrap().len() == 3);
    bia.get("/api/contacts").ok();
    bia.post("/api/tags", json!({ "name": "x" })).refused(401, "AUTH_ERROR");
    assert_eq!(status(&server, &bia.email), "accepted");
    let expected = format!(
        r#"create {0} {0} {{"role": "viewer", "invite_id": "{1}", "invited_by": "{2}", "invited_by_email": "{3}"}} 10.9.9.9"#,
        bia.id,
        text(&made["id"]),
        ana.id,
        ana.email
    );
    assert_eq!(audited(&server, &ana.account), [expected]);
    accept(&bia, &text(&made["token"])).refused(404, "NOT_FOUND");
    ana.delete(&format!("/api/team/invites/{}", text(&made["id"])))
        .refused(404, "NOT_FOUND");
}

#[test]
fn the_active_account_is_set_for_those_who_had_none() {
    let server = server();
    let (ana, foreign) = (server.owner(), server.owner());
    let with_cookie = |user: &User<'_>, value: &str| {
        let secret = invited(&ana, &user.email, "member");
        let request = accepting(user, &secret).cookie(&format!("svc-active-account-id={value}"));
        let reply = request.send();
        let cookie = cookie(&reply);
        reply.ok();
        cookie
    };
    let own = server.owner();
    assert_eq!(with_cookie(&own, &own.account), None);
    for value in [foreign.account.as_str(), "garbage", ""] {
        let set = with_cookie(&server.owner(), value).unwrap_or_else(|| panic!("{value}"));
        assert!(set.contains(&ana.account), "{set}");
    }
    // A refused attempt sets nothing.
    let refused = accept(&server.stranger(), "unknown");
    assert_eq!(cookie(&refused), None);
    refused.refused(404, "NOT_FOUND");
}

#[test]
fn fifty_at_once_make_one_member() {
    let server = server();
    let ana = server.owner();
    let mut bia = server.stranger();
    bia.email = bia.email.to_uppercase();
    bia.token = token(bia.id, &bia.email);
    let secret = invited(&ana, &bia.email.to_lowercase(), "member");
    let calls: Vec<Request> = (0..50).map(|_| accepting(&bia, &secret)).collect();
    let mut statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = calls
            .iter()
            .map(|call| scope.spawn(|| call.clone().send().status))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    statuses.sort_unstable();
    assert_eq!(statuses[0], 200);
    assert!(
        statuses[1..].iter().all(|status| [404, 422].contains(status)),
        "{statuses:?}"
    );
    assert_eq!(memberships(&bia, &ana.account), 1);
    assert_eq!(audited(&server, &ana.account).len(), 1);
    accept(&bia, &secret).refused(404, "NOT_FOUND");
}

#[test]
fn an_expired_invite_is_refused_once_as_such_and_then_unknown() {
    let server = server();
    let ana = server.owner();
    // Long over, and over at this very moment.
    for expiry in ["now() - interval '1 day'", "now()"] {
        let bia = server.stranger();
        let secret = invited(&ana, &bia.email, "member");
        server.db.run(&format!(
            "UPDATE team_invites SET expires_at = {expiry} WHERE email = '{}'",
            bia.email
        ));
        assert_eq!(accept(&bia, &secret).invalid(), ["token"]);
        assert_eq!(status(&server, &bia.email), "expired");
        accept(&bia, &secret).refused(404, "NOT_FOUND");
        assert_eq!(memberships(&bia, &ana.account), 0);
        // Another one can be made.
        accept(&bia, &invited(&ana, &bia.email, "member")).ok();
    }
    assert_eq!(audited(&server, &ana.account).len(), 2);
}

#[test]
fn neither_somebody_else_nor_a_member_uses_an_invite_up() {
    let server = server();
    let ana = server.owner();
    let (bia, caio) = (server.stranger(), server.stranger());
    let secret = invited(&ana, &bia.email, "member");
    accept(&caio, &secret).refused(403, "FORBIDDEN");
    assert_eq!(status(&server, &bia.email), "pending");
    // They came in by another way.
    let id = bia.id;
    bia.get("/api/accounts").ok();
    server.db.run(&format!(
        "INSERT INTO account_users (account_id, user_id, role) VALUES ('{}', '{id}', 'viewer')",
        ana.account
    ));
    assert_eq!(accept(&bia, &secret).invalid(), ["token"]);
    assert_eq!(status(&server, &bia.email), "pending");
    server
        .db
        .run(&format!("DELETE FROM account_users WHERE user_id = '{id}'"));
    accept(&bia, &secret).ok();
    assert_eq!(audited(&server, &ana.account).len(), 1);
}

#[test]
fn a_new_invite_to_an_address_ends_the_one_before() {
    let server = server();
    let (ana, other) = (server.owner(), server.owner());
    let bia = server.stranger();
    let elsewhere = invited(&other, &bia.email, "member");
    let first = invited(&ana, &bia.email, "viewer");
    let second = invited(&ana, &bia.email.to_uppercase(), "admin");
    accept(&bia, &first).refused(404, "NOT_FOUND");
    assert_eq!(accept(&bia, &second).ok()["role"], "admin");
    assert_eq!(accept(&bia, &elsewhere).ok()["account_id"], json!(other.account));
    // A member may be invited, and is told when they accept.
    for member in [&bia, &ana] {
        let secret = invited(&ana, &member.email.to_uppercase(), "viewer");
        assert_eq!(accept(member, &secret).invalid(), ["token"]);
        assert_eq!(memberships(member, &ana.account), 1);
    }
}

#[test]
fn a_pending_invite_can_be_taken_back() {
    let server = server();
    let (ana, other) = (server.owner(), server.owner());
    let bia = server.stranger();
    let made = invite(&ana, &bia.email, "member").created();
    let path = format!("/api/team/invites/{}", text(&made["id"]));
    other.delete(&path).refused(404, "NOT_FOUND");
    ana.delete(&format!("/api/team/invites/{}", Uuid::now_v7()))
        .refused(404, "NOT_FOUND");
    ana.delete(&path).gone();
    ana.delete(&path).refused(404, "NOT_FOUND");
    assert_eq!(status(&server, &bia.email), "revoked");
    accept(&bia, &text(&made["token"])).refused(404, "NOT_FOUND");
    assert_eq!(server.db.count("FROM invite_tokens"), 0);
    assert_eq!(audited(&server, &ana.account), Vec::<String>::new());
}

#[test]
fn only_owners_and_admins_invite_and_only_owners_an_owner() {
    let server = server();
    let ana = server.owner();
    for (role, status) in [("admin", 401), ("owner", 201)] {
        let actor = server.member(&ana.account, role);
        assert_eq!(invite(&actor, "o@example.com", "owner").status, status, "{role}");
        invite(&actor, &format!("{role}@example.com"), "admin").created();
    }
    for role in ["member", "viewer"] {
        let actor = server.member(&ana.account, role);
        invite(&actor, "x@example.com", "viewer").refused(401, "AUTH_ERROR");
        actor.get("/api/team/invites").refused(401, "AUTH_ERROR");
    }
    let key = api_keys::key(&ana);
    server.get("/api/team/members").bearer(&key).send().ok();
    let by_key = server.post("/api/team/invites").bearer(&key);
    by_key
        .json(&json!({ "email": "x@example.com", "role": "viewer" }))
        .send()
        .refused(401, "AUTH_ERROR");
}

#[test]
fn what_is_wrong_with_an_invite_is_named() {
    let server = server();
    let ana = server.owner();
    let with = |field: &str, value: Value| {
        let mut body = json!({ "email": "bia@example.com", "role": "member" });
        body[field] = value;
        ana.post("/api/team/invites", body)
    };
    for email in [
        json!(""),
        json!("bia"),
        json!("a b@c.example"),
        json!("a@b\r\n.example"),
        json!(null),
    ] {
        assert_eq!(with("email", email).invalid(), ["email"]);
    }
    for role in [json!("king"), json!(""), json!(null)] {
        assert_eq!(with("role", role).invalid(), ["role"]);
    }
    for hours in [json!(0), json!(8761), json!(1.5), json!(-1), json!("24"), json!(1e30)] {
        assert_eq!(with("expires_in_hours", hours).invalid(), ["expires_in_hours"]);
    }
    assert_eq!(ana.post("/api/team/invites", json!({})).invalid(), ["email", "role"]);
    for (hours, wanted) in [(1, "1"), (8760, "8760")] {
        with("expires_in_hours", json!(hours)).created();
        let stored = "SELECT extract(epoch FROM expires_at - created_at)::bigint / 3600
             FROM team_invites ORDER BY id DESC LIMIT 1";
        assert_eq!(server.db.text(stored), wanted);
    }
    let bia = server.stranger();
    for body in [
        json!({}),
        json!({ "token": null }),
        json!({ "token": "" }),
        json!({ "token": 7 }),
    ] {
        let request = accepting(&bia, "").json(&body);
        assert_eq!(request.send().invalid(), ["token"], "{body}");
    }
}

#[test]
fn the_sixth_attempt_of_an_address_in_a_minute_is_refused() {
    let server = server();
    let bia = server.stranger();
    let attempt = |address: &str| {
        let request = bia.request("POST", "/api/auth/accept-invite");
        let request = request.header("X-Forwarded-For", address);
        request.json(&json!({ "token": "guess" })).send()
    };
    for remaining in (0..5).rev() {
        let reply = attempt("10.0.0.1");
        assert_eq!(reply.header("x-ratelimit-limit"), Some("5"));
        assert_eq!(
            reply.header("x-ratelimit-remaining"),
            Some(remaining.to_string().as_str())
        );
        reply.refused(404, "NOT_FOUND");
    }
    let refused = attempt("10.0.0.1");
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    assert!(refused.header("x-ratelimit-reset").is_some());
    let retry: i64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&retry), "{retry}");
    refused.refused(429, "RATE_LIMIT");
    // What is left of the trusted hop proves nothing; another address has its own count.
    attempt("6.6.6.6, 10.0.0.1").refused(429, "RATE_LIMIT");
    attempt("10.0.0.2").refused(404, "NOT_FOUND");
}

#[test]
fn an_invite_to_a_suspended_account_works_and_outlives_its_maker() {
    let server = server();
    let ana = server.owner();
    let admin = server.member(&ana.account, "admin");
    let bia = server.stranger();
    let secret = invited(&admin, &bia.email, "member");
    ana.delete(&format!("/api/team/members/{}", admin.id)).gone();
    let account = &ana.account;
    server.db.run(&format!(
        "UPDATE accounts SET status = 'suspended' WHERE id = '{account}'"
    ));
    accept(&bia, &secret).ok();
    assert_eq!(memberships(&bia, account), 1);
    let listed = bia.get("/api/accounts").ok();
    assert_eq!(listed["accounts"][0]["account"]["status"], "suspended");
}

#[test]
fn the_list_holds_every_invite_newest_first() {
    let server = server();
    let ana = server.owner();
    let mut ids: Vec<String> = (0..5).map(|n| id_of(&ana, &format!("b{n}@example.com"))).collect();
    ana.delete(&format!("/api/team/invites/{}", ids[2])).gone();
    ids.reverse();
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let slice = ana.get(&format!("/api/team/invites?limit=2&cursor={cursor}")).ok();
        seen.extend(
            slice["data"]
                .as_array()
                .unwrap()
                .iter()
                .map(|invite| text(&invite["id"])),
        );
        match slice["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, ids);
    assert_eq!(ana.get("/api/team/invites?cursor=x").invalid(), ["cursor"]);
}
