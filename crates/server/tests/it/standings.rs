//! Who lost a role, a membership or an account: what that takes away is gone within a second, on every route.

use std::time::{Duration, Instant};

use recado_server::routes::{Access, RouteSpec, TABLE};
use uuid::Uuid;

use crate::api_keys;
use crate::harness::client::{Reply, Request};
use crate::harness::users::User;
use crate::harness::{Server, eventually};
use crate::matrix::{is_account, label, row, with_body};

/// What was taken away works for a second at most; the rest is for a busy machine.
const AT_MOST: Duration = Duration::from_secs(15);

/// Asks until it is refused; nothing that is asked later than a second after the change may succeed.
fn refused_soon(what: &str, mut ask: impl FnMut() -> Reply) -> Reply {
    let changed = Instant::now();
    eventually(what, || {
        let asked = changed.elapsed();
        let reply = ask();
        if reply.status == 401 {
            return Some(reply);
        }
        assert!(asked < AT_MOST, "{what}: {} after {asked:?}", reply.status);
        None
    })
}

/// A route that only reads.
fn reading() -> &'static RouteSpec {
    let mut routes = account_routes();
    routes
        .find(|spec| spec.method == "GET" && spec.path == "/api/contacts")
        .unwrap()
}

/// A route called by somebody, about nothing that exists.
fn call(spec: &RouteSpec, request: impl Fn(&str, &str) -> Request) -> Reply {
    let path = spec.path.replace("{id}", &Uuid::now_v7().to_string());
    with_body(request(spec.method.as_str(), &path), row(spec)).send()
}

fn account_routes() -> impl Iterator<Item = &'static RouteSpec> {
    TABLE.iter().filter(|spec| is_account(spec))
}

fn set_role(server: &Server, user: &User<'_>, role: &str) {
    server.db.run(&format!(
        "UPDATE account_users SET role = '{role}' WHERE account_id = '{}' AND user_id = '{}'",
        user.account, user.id
    ));
}

fn set_status(server: &Server, account: &str, status: &str) {
    server.db.run(&format!(
        "UPDATE accounts SET status = '{status}' WHERE id = '{account}'"
    ));
}

/// Whatever a member's route answers when it lets somebody in.
fn is_let_in(reply: &Reply) -> bool {
    [200, 201, 204, 404, 422].contains(&reply.status)
}

#[test]
fn a_demoted_member_writes_nothing_on_any_route() {
    let server = Server::new();
    let ana = server.owner();
    let bia = server.member(&ana.account, "admin");
    let named = |method: &str, path: &str| bia.request(method, path).header("X-Account-Id", &bia.account);
    let latest = |method: &str, path: &str| bia.request(method, path);
    assert!(account_routes().all(|spec| is_let_in(&call(spec, named))));
    for (role, may_write, may_manage) in [("member", true, false), ("viewer", false, false), ("admin", true, true)] {
        set_role(&server, &bia, role);
        let wrong = || -> Vec<String> {
            let routes = account_routes().filter(|spec| {
                let allowed = match spec.access {
                    Access::Write => may_write,
                    Access::Manage => may_manage,
                    _ => true,
                };
                let replies = [call(spec, named), call(spec, latest)];
                // The limits may be used up by now: they come after the role.
                let fits = |reply: &Reply| match allowed {
                    true => is_let_in(reply) || reply.status == 429,
                    false => reply.status == 401,
                };
                !replies.iter().all(fits)
            });
            routes.map(label).collect()
        };
        let changed = Instant::now();
        eventually(&format!("every route treats a {role} as one"), || {
            let asked = changed.elapsed();
            let wrong = wrong();
            assert!(wrong.is_empty() || asked < AT_MOST, "{role}, {asked:?}: {wrong:?}");
            wrong.is_empty().then_some(())
        });
    }
}

#[test]
fn what_a_member_loses_is_gone_within_a_second() {
    let server = Server::new();
    let ana = server.owner();
    let bia = server.member(&ana.account, "member");
    let write = || bia.post("/api/tags", serde_json::json!({ "name": Uuid::now_v7().to_string() }));
    write().created();
    set_role(&server, &bia, "viewer");
    refused_soon("a viewer writes", write);
    bia.get("/api/tags").ok();
    let tags = server.db.count("FROM tags");
    server
        .db
        .run(&format!("DELETE FROM account_users WHERE user_id = '{}'", bia.id));
    let named = || {
        bia.request("GET", "/api/tags")
            .header("X-Account-Id", &ana.account)
            .send()
    };
    refused_soon("a removed member reads", named);
    write().refused(401, "AUTH_ERROR");
    assert_eq!(server.db.count("FROM tags"), tags);
    let none = bia.get("/api/accounts").ok();
    assert_eq!(none["accounts"], serde_json::json!([]));
}

#[test]
fn a_removed_member_is_out_of_every_route_and_keeps_what_is_theirs() {
    let server = Server::new();
    let ana = server.owner();
    let bia = server.member(&ana.account, "member");
    let mut own = server.stranger();
    (own.id, own.email, own.token) = (bia.id, bia.email.clone(), bia.token.clone());
    bia.get("/api/contacts").ok();
    server
        .db
        .run(&format!("DELETE FROM account_users WHERE user_id = '{}'", bia.id));
    let cookie = |method: &str, path: &str| {
        let request = server.request(method, path);
        request.cookie(&format!(
            "svc-session={}; svc-active-account-id={}",
            bia.token, ana.account
        ))
    };
    let named = |method: &str, path: &str| bia.request(method, path).header("X-Account-Id", &ana.account);
    let latest = |method: &str, path: &str| bia.request(method, path);
    refused_soon("the member is out", || call(reading(), named));
    for spec in account_routes() {
        for reply in [call(spec, named), call(spec, cookie), call(spec, latest)] {
            reply.refused(401, "AUTH_ERROR");
        }
    }
    bia.post("/api/accounts/switch", serde_json::json!({ "account_id": ana.account }))
        .refused(401, "AUTH_ERROR");
    // An account of their own is open, and only that.
    let made = own
        .post("/api/accounts", serde_json::json!({ "name": "Own" }))
        .created();
    assert!(is_let_in(&call(reading(), latest)));
    let listed = bia.get("/api/accounts").ok();
    assert_eq!(listed["accounts"][0]["account_id"], made["account"]["id"]);
    assert_eq!(listed["accounts"].as_array().unwrap().len(), 1);
}

#[test]
fn a_suspended_account_is_closed_on_every_route_and_opens_again() {
    let server = Server::new();
    let ana = server.owner();
    let key = api_keys::key(&ana);
    let by_session = |method: &str, path: &str| ana.request(method, path);
    let by_key = |method: &str, path: &str| server.request(method, path).bearer(&key);
    call(reading(), by_session).ok();
    set_status(&server, &ana.account, "suspended");
    refused_soon("the account is closed to sessions", || call(reading(), by_session));
    refused_soon("the account is closed to keys", || call(reading(), by_key));
    for spec in account_routes() {
        for reply in [call(spec, by_session), call(spec, by_key)] {
            let error = reply.refused(401, "AUTH_ERROR");
            assert!(
                error["message"].as_str().unwrap().contains("suspended"),
                "{}",
                label(spec)
            );
        }
    }
    assert_eq!(server.db.count("FROM contacts"), 0);
    // The person is still somebody: their session routes answer.
    ana.get("/api/accounts").ok();
    let other = ana
        .post("/api/accounts", serde_json::json!({ "name": "Other" }))
        .created();
    let elsewhere = ana
        .request("GET", "/api/contacts")
        .header("X-Account-Id", other["account"]["id"].as_str().unwrap());
    elsewhere.send().ok();

    set_status(&server, &ana.account, "active");
    let named = |method: &str, path: &str| ana.request(method, path).header("X-Account-Id", &ana.account);
    eventually("the account is open again", || {
        let replies = [call(reading(), named), call(reading(), by_key)];
        replies.iter().all(|reply| reply.status == 200).then_some(())
    });
    for spec in account_routes() {
        assert!(is_let_in(&call(spec, named)), "{}", label(spec));
        if spec.access != Access::Manage {
            assert!(is_let_in(&call(spec, by_key)), "{}", label(spec));
        }
    }
}
