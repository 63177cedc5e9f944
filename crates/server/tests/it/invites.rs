//! Invites: create, revoke and accept, with roles, expiry and rate limit.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::api_keys;
use crate::harness::client::{Reply, Request};
use crate::harness::users::{User, token};
use crate::harness::{Options, Server, text};
use crate::team::membership_audit;

fn invite(owner: &User<'_>, email: &str, role: &str) -> Reply {
    owner.post("/api/team/invites", json!({ "email": email, "role": role }))
}

/// Creates an invite and returns its token.
fn invite_token(owner: &User<'_>, email: &str, role: &str) -> String {
    text(&invite(owner, email, role).created()["token"])
}

/// Creates an invite and returns its id.
pub fn create_invite_id(owner: &User<'_>, email: &str) -> String {
    text(&invite(owner, email, "member").created()["id"])
}

/// A server that trusts `X-Forwarded-For`, so that every accept can have its own rate limit.
fn server() -> Server {
    Server::start(Options::default().with("TRUSTED_PROXIES", "127.0.0.0/8"))
}

/// A request to accept an invite, from a new client address.
fn accept_request(user: &User<'_>, token: &str) -> Request {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let [_, a, b, c] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    user.request("POST", "/api/auth/accept-invite")
        .header("X-Forwarded-For", &format!("10.{a}.{b}.{c}"))
        .json(&json!({ "token": token }))
}

fn accept(user: &User<'_>, token: &str) -> Reply {
    accept_request(user, token).send()
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

/// All rows of the tables that store invites, with readable bytes.
fn dump_invite_tables(server: &Server) -> String {
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
fn invite_token_is_returned_once_and_not_stored() {
    let server = server();
    let ana = server.owner();
    let bia = server.stranger();
    let invite_response = invite(&ana, &format!(" {} ", bia.email), "admin").created();
    let secret = text(&invite_response["token"]);
    assert_eq!(secret.len(), 43, "32 bytes in base64url");
    let url = format!("http://127.0.0.1:{}/accept-invite?token={secret}", server.port());
    assert_eq!(invite_response["accept_url"], json!(url));
    assert_eq!(
        (
            &invite_response["email"],
            &invite_response["role"],
            &invite_response["status"]
        ),
        (&json!(bia.email), &json!("admin"), &json!("pending"))
    );
    let hours = "SELECT extract(epoch FROM expires_at - created_at)::bigint / 3600 FROM team_invites";
    assert_eq!(server.db.text(hours), "168");
    let listed = ana.get("/api/team/invites").ok();
    let mut expected = invite_response;
    for field in ["token", "accept_url", "mailed"] {
        expected.as_object_mut().unwrap().remove(field);
    }
    assert_eq!(
        listed,
        json!({ "data": [expected], "nextCursor": null, "hasMore": false })
    );
    assert_eq!(expected.as_object().unwrap().len(), 6, "{expected}");
    assert!(!dump_invite_tables(&server).contains(&secret));
    accept(&bia, &secret).ok();
    assert_eq!(membership_audit(&server, &ana.account).len(), 1);
    assert!(!dump_invite_tables(&server).contains(&secret));
    assert!(!server.log().contains(&secret));
}

#[test]
fn accepted_invite_adds_a_member_and_consumes_the_token() {
    let server = server();
    let ana = server.owner();
    let bia = server.stranger();
    bia.get("/api/contacts").refused(401, "AUTH_ERROR");
    let invite_response = invite(&ana, &bia.email, "viewer").created();
    let reply = accept_request(&bia, &text(&invite_response["token"]))
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
        text(&invite_response["id"]),
        ana.id,
        ana.email
    );
    assert_eq!(membership_audit(&server, &ana.account), [expected]);
    accept(&bia, &text(&invite_response["token"])).refused(404, "NOT_FOUND");
    ana.delete(&format!("/api/team/invites/{}", text(&invite_response["id"])))
        .refused(404, "NOT_FOUND");
}

#[test]
fn accepted_invite_sets_the_active_account_if_missing() {
    let server = server();
    let (ana, foreign) = (server.owner(), server.owner());
    let with_cookie = |user: &User<'_>, value: &str| {
        let secret = invite_token(&ana, &user.email, "member");
        let request = accept_request(user, &secret).cookie(&format!("svc-active-account-id={value}"));
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
    // A refused accept sets no cookie.
    let refused = accept(&server.stranger(), "unknown");
    assert_eq!(cookie(&refused), None);
    refused.refused(404, "NOT_FOUND");
}

/// Concurrent accepts of one invite.
const ACCEPTS: usize = 50;

#[test]
fn fifty_concurrent_accepts_make_one_member() {
    let server = server();
    let ana = server.owner();
    let mut bia = server.stranger();
    bia.email = bia.email.to_uppercase();
    bia.token = token(bia.id, &bia.email);
    let secret = invite_token(&ana, &bia.email.to_lowercase(), "member");
    let calls: Vec<Request> = (0..ACCEPTS).map(|_| accept_request(&bia, &secret)).collect();
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
    assert_eq!(membership_audit(&server, &ana.account).len(), 1);
    accept(&bia, &secret).refused(404, "NOT_FOUND");
}

#[test]
fn expired_invite_is_invalid_once_then_not_found() {
    let server = server();
    let ana = server.owner();
    // Expired a day ago, and expired just now.
    for expiry in ["now() - interval '1 day'", "now()"] {
        let bia = server.stranger();
        let secret = invite_token(&ana, &bia.email, "member");
        server.db.run(&format!(
            "UPDATE team_invites SET expires_at = {expiry} WHERE email = '{}'",
            bia.email
        ));
        assert_eq!(accept(&bia, &secret).invalid(), ["token"]);
        assert_eq!(status(&server, &bia.email), "expired");
        accept(&bia, &secret).refused(404, "NOT_FOUND");
        assert_eq!(memberships(&bia, &ana.account), 0);
        // A new invite to the same address works.
        accept(&bia, &invite_token(&ana, &bia.email, "member")).ok();
    }
    assert_eq!(membership_audit(&server, &ana.account).len(), 2);
}

#[test]
fn refused_accept_leaves_the_invite_pending() {
    let server = server();
    let ana = server.owner();
    let (bia, caio) = (server.stranger(), server.stranger());
    let secret = invite_token(&ana, &bia.email, "member");
    accept(&caio, &secret).refused(403, "FORBIDDEN");
    assert_eq!(status(&server, &bia.email), "pending");
    // The user became a member without the invite.
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
    assert_eq!(membership_audit(&server, &ana.account).len(), 1);
}

#[test]
fn new_invite_to_an_address_replaces_the_pending_one() {
    let server = server();
    let (ana, other_owner) = (server.owner(), server.owner());
    let bia = server.stranger();
    let elsewhere = invite_token(&other_owner, &bia.email, "member");
    let first = invite_token(&ana, &bia.email, "viewer");
    let second = invite_token(&ana, &bia.email.to_uppercase(), "admin");
    accept(&bia, &first).refused(404, "NOT_FOUND");
    assert_eq!(accept(&bia, &second).ok()["role"], "admin");
    assert_eq!(accept(&bia, &elsewhere).ok()["account_id"], json!(other_owner.account));
    // A member can be invited, but cannot accept.
    for member in [&bia, &ana] {
        let secret = invite_token(&ana, &member.email.to_uppercase(), "viewer");
        assert_eq!(accept(member, &secret).invalid(), ["token"]);
        assert_eq!(memberships(member, &ana.account), 1);
    }
}

#[test]
fn pending_invite_can_be_revoked() {
    let server = server();
    let (ana, other_owner) = (server.owner(), server.owner());
    let bia = server.stranger();
    let invite_response = invite(&ana, &bia.email, "member").created();
    let path = format!("/api/team/invites/{}", text(&invite_response["id"]));
    other_owner.delete(&path).refused(404, "NOT_FOUND");
    ana.delete(&format!("/api/team/invites/{}", Uuid::now_v7()))
        .refused(404, "NOT_FOUND");
    ana.delete(&path).no_content();
    ana.delete(&path).refused(404, "NOT_FOUND");
    assert_eq!(status(&server, &bia.email), "revoked");
    accept(&bia, &text(&invite_response["token"])).refused(404, "NOT_FOUND");
    assert_eq!(server.db.count("FROM invite_tokens"), 0);
    assert_eq!(membership_audit(&server, &ana.account), Vec::<String>::new());
}

#[test]
fn invite_requires_admin_and_owner_invite_requires_owner() {
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
    let key = api_keys::create_key(&ana);
    server.get("/api/team/members").bearer(&key).send().ok();
    let by_key = server.post("/api/team/invites").bearer(&key);
    by_key
        .json(&json!({ "email": "x@example.com", "role": "viewer" }))
        .send()
        .refused(401, "AUTH_ERROR");
}

#[test]
fn invalid_invite_names_the_field() {
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
    for (hours, expected) in [(1, "1"), (8760, "8760")] {
        with("expires_in_hours", json!(hours)).created();
        let stored = "SELECT extract(epoch FROM expires_at - created_at)::bigint / 3600
             FROM team_invites ORDER BY id DESC LIMIT 1";
        assert_eq!(server.db.text(stored), expected);
    }
    let bia = server.stranger();
    for body in [
        json!({}),
        json!({ "token": null }),
        json!({ "token": "" }),
        json!({ "token": 7 }),
    ] {
        let request = accept_request(&bia, "").json(&body);
        assert_eq!(request.send().invalid(), ["token"], "{body}");
    }
}

#[test]
fn sixth_accept_of_an_address_in_a_minute_is_limited() {
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
    // Addresses before the trusted hop are ignored. Another client address has its own count.
    attempt("6.6.6.6, 10.0.0.1").refused(429, "RATE_LIMIT");
    attempt("10.0.0.2").refused(404, "NOT_FOUND");
}

#[test]
fn invite_survives_removed_inviter_and_suspended_account() {
    let server = server();
    let ana = server.owner();
    let admin = server.member(&ana.account, "admin");
    let bia = server.stranger();
    let secret = invite_token(&admin, &bia.email, "member");
    ana.delete(&format!("/api/team/members/{}", admin.id)).no_content();
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
fn invite_list_holds_every_invite_newest_first() {
    let server = server();
    let ana = server.owner();
    let mut ids: Vec<String> = (0..5)
        .map(|n| create_invite_id(&ana, &format!("b{n}@example.com")))
        .collect();
    ana.delete(&format!("/api/team/invites/{}", ids[2])).no_content();
    ids.reverse();
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = ana.get(&format!("/api/team/invites?limit=2&cursor={cursor}")).ok();
        seen.extend(
            page["data"]
                .as_array()
                .unwrap()
                .iter()
                .map(|invite| text(&invite["id"])),
        );
        match page["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, ids);
    assert_eq!(ana.get("/api/team/invites?cursor=x").invalid(), ["cursor"]);
}
