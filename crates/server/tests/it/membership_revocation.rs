//! A lost role, a removed membership or a suspended account ends access on every route within a second.

use recado_api::routes::{Access, RouteSpec, TABLE};
use uuid::Uuid;

use crate::api_keys;
use crate::harness::client::{Reply, Request};
use crate::harness::users::User;
use crate::harness::{Server, eventually, until};
use crate::matrix::{is_account, label, row, with_body};

/// Repeats a request until it is refused, and returns the refusal.
fn wait_until_refused(what: &str, mut send: impl FnMut() -> Reply) -> Reply {
    eventually(what, || {
        let reply = send();
        (reply.status == 401).then_some(reply)
    })
}

/// The spec of `GET /api/contacts`.
fn list_contacts() -> &'static RouteSpec {
    let mut routes = account_routes();
    routes
        .find(|spec| spec.method == "GET" && spec.path == "/api/contacts")
        .unwrap()
}

/// Calls a route with an unknown id.
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

/// Whether the response status shows that the caller passed the access check.
fn is_admitted(reply: &Reply) -> bool {
    [200, 201, 204, 404, 422].contains(&reply.status)
}

#[test]
fn demoted_member_cannot_write_on_any_route() {
    let server = Server::new();
    let ana = server.owner();
    let bia = server.member(&ana.account, "admin");
    let named = |method: &str, path: &str| bia.request(method, path).header("X-Account-Id", &bia.account);
    let latest = |method: &str, path: &str| bia.request(method, path);
    assert!(account_routes().all(|spec| is_admitted(&call(spec, named))));
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
                // A rate limit may be reached. The role is checked before it.
                let fits = |reply: &Reply| match allowed {
                    true => is_admitted(reply) || reply.status == 429,
                    false => reply.status == 401,
                };
                !replies.iter().all(fits)
            });
            routes.map(label).collect()
        };
        until(&format!("every route applies the role {role}"), || {
            let wrong = wrong();
            if !wrong.is_empty() {
                println!("{role}: {wrong:?}");
            }
            wrong.is_empty()
        });
    }
}

#[test]
fn lost_role_or_membership_ends_within_a_second() {
    let server = Server::new();
    let ana = server.owner();
    let bia = server.member(&ana.account, "member");
    let write = || bia.post("/api/tags", serde_json::json!({ "name": Uuid::now_v7().to_string() }));
    write().created();
    set_role(&server, &bia, "viewer");
    wait_until_refused("a viewer cannot write", write);
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
    wait_until_refused("a removed member cannot read", named);
    write().refused(401, "AUTH_ERROR");
    assert_eq!(server.db.count("FROM tags"), tags);
    let none = bia.get("/api/accounts").ok();
    assert_eq!(none["accounts"], serde_json::json!([]));
}

#[test]
fn removed_member_is_refused_but_keeps_own_accounts() {
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
    wait_until_refused("the membership has ended", || call(list_contacts(), named));
    for spec in account_routes() {
        for reply in [call(spec, named), call(spec, cookie), call(spec, latest)] {
            reply.refused(401, "AUTH_ERROR");
        }
    }
    bia.post("/api/accounts/switch", serde_json::json!({ "account_id": ana.account }))
        .refused(401, "AUTH_ERROR");
    // The removed member can use only their own account.
    let made = own
        .post("/api/accounts", serde_json::json!({ "name": "Own" }))
        .created();
    assert!(is_admitted(&call(list_contacts(), latest)));
    let listed = bia.get("/api/accounts").ok();
    assert_eq!(listed["accounts"][0]["account_id"], made["account"]["id"]);
    assert_eq!(listed["accounts"].as_array().unwrap().len(), 1);
}

#[test]
fn suspended_account_is_closed_until_reactivated() {
    let server = Server::new();
    let ana = server.owner();
    let key = api_keys::create_key(&ana);
    let by_session = |method: &str, path: &str| ana.request(method, path);
    let by_key = |method: &str, path: &str| server.request(method, path).bearer(&key);
    call(list_contacts(), by_session).ok();
    set_status(&server, &ana.account, "suspended");
    wait_until_refused("the account is closed to sessions", || {
        call(list_contacts(), by_session)
    });
    wait_until_refused("the account is closed to keys", || call(list_contacts(), by_key));
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
    // The user's session still works on routes without an account.
    ana.get("/api/accounts").ok();
    let other_account = ana
        .post("/api/accounts", serde_json::json!({ "name": "Other" }))
        .created();
    let elsewhere = ana
        .request("GET", "/api/contacts")
        .header("X-Account-Id", other_account["account"]["id"].as_str().unwrap());
    elsewhere.send().ok();

    set_status(&server, &ana.account, "active");
    let named = |method: &str, path: &str| ana.request(method, path).header("X-Account-Id", &ana.account);
    eventually("the account is open again", || {
        let replies = [call(list_contacts(), named), call(list_contacts(), by_key)];
        replies.iter().all(|reply| reply.status == 200).then_some(())
    });
    for spec in account_routes() {
        assert!(is_admitted(&call(spec, named)), "{}", label(spec));
        if spec.access != Access::Manage {
            assert!(is_admitted(&call(spec, by_key)), "{}", label(spec));
        }
    }
}
