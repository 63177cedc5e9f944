//! Accounts: list, create, switch, and which one a request means.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;

use crate::harness::users::User;
use crate::harness::{Options, Server, text};

fn active_cookie(reply: &crate::harness::client::Reply) -> String {
    let cookies: Vec<&str> = reply
        .headers
        .get_all("set-cookie")
        .iter()
        .map(|c| c.to_str().unwrap())
        .collect();
    assert_eq!(cookies.len(), 1, "{cookies:?}");
    cookies[0].to_owned()
}

fn listed(user: &User<'_>, cookie: Option<&str>) -> serde_json::Value {
    let request = user.request("GET", "/api/accounts");
    match cookie {
        Some(id) => request.cookie(&format!("svc-active-account-id={id}")).send().ok(),
        None => request.send().ok(),
    }
}

#[test]
fn an_account_is_made_listed_and_remembered() {
    let server = Server::new();
    let ana = server.stranger();
    let empty = json!({ "accounts": [], "active_account_id": null, "is_admin": false, "support_mode": null });
    assert_eq!(listed(&ana, None), empty);

    let reply = ana.post("/api/accounts", json!({ "name": "  Café  da <b>Ana</b> " }));
    let cookie = active_cookie(&reply);
    let made = reply.created();
    let account = &made["account"];
    assert_eq!(made["role"], "owner");
    assert_eq!(
        (&account["name"], &account["slug"]),
        (&json!("Café da Ana"), &json!("cafe-da-ana"))
    );
    assert_eq!(
        (&account["plan"], &account["status"]),
        (&json!("free"), &json!("active"))
    );
    assert_eq!(account["logo_url"], json!(null));
    let created = text(&account["created_at"]);
    assert!(
        created.ends_with('Z') && created.len() == "2026-01-01T00:00:00.000Z".len(),
        "{created}"
    );
    let id = text(&account["id"]);
    assert_eq!(uuid::Uuid::parse_str(&id).unwrap().get_version_num(), 7);

    assert!(cookie.starts_with(&format!("svc-active-account-id={id}; ")), "{cookie}");
    for flag in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=31536000"] {
        assert!(cookie.contains(flag), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "{cookie}");

    let list = listed(&ana, Some(&id));
    assert_eq!(
        list["accounts"],
        json!([{ "account_id": id, "role": "owner", "account": account }])
    );
    assert_eq!(list["active_account_id"], json!(id));
}

#[test]
fn cookies_are_secure_unless_told_otherwise() {
    let server = Server::start(Options::default().with("COOKIE_SECURE", "true"));
    let reply = server.stranger().post("/api/accounts", json!({ "name": "Loja" }));
    assert!(active_cookie(&reply).contains("Secure"));
}

#[test]
fn names_are_checked_and_slugs_stay_unique() {
    let server = Server::new();
    let ana = server.stranger();
    let slug = |name: &str| text(&ana.post("/api/accounts", json!({ "name": name })).created()["account"]["slug"]);
    assert_eq!(
        [slug("Loja"), slug("LOJA!"), slug("loja")],
        ["loja", "loja-2", "loja-3"]
    );
    assert_eq!([slug("日本 ..."), slug("***")][1], "account");
    let long = slug(&"x".repeat(200));
    assert_eq!(long, "x".repeat(50));
    let next = slug(&"x".repeat(200));
    assert_eq!((next.len(), next.ends_with("-2")), (50, true), "{next}");
    for name in ["", "   ", "<b></b>", &"x".repeat(201)] {
        assert_eq!(ana.post("/api/accounts", json!({ "name": name })).invalid(), ["name"]);
    }
}

#[test]
fn concurrent_creations_get_different_slugs() {
    let server = Server::new();
    let port = server.port();
    let users: Vec<String> = (0..10).map(|_| server.stranger().token).collect();
    let slugs = std::thread::scope(|scope| {
        let create = |token: &String| {
            let request = crate::harness::client::Request::new(port, "POST", "/api/accounts");
            text(
                &request
                    .bearer(token)
                    .json(&json!({ "name": "Padaria" }))
                    .send()
                    .created()["account"]["slug"],
            )
        };
        let threads: Vec<_> = users.iter().map(|token| scope.spawn(move || create(token))).collect();
        let slugs = threads.into_iter().map(|thread| thread.join().unwrap());
        slugs.collect::<std::collections::BTreeSet<_>>()
    });
    let mut wanted: std::collections::BTreeSet<String> = (2..=10).map(|n| format!("padaria-{n}")).collect();
    wanted.insert("padaria".into());
    assert_eq!(slugs, wanted);
    assert_eq!(server.db.count("FROM account_users WHERE role = 'owner'"), 10);
}

#[test]
fn switching_is_for_members_of_active_accounts() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let switch = |user: &User<'_>, account: &str| user.post("/api/accounts/switch", json!({ "account_id": account }));
    let last_active = || {
        let account = &ana.account;
        server.db.text(&format!(
            "SELECT last_active_at FROM account_users WHERE account_id = '{account}'"
        ))
    };
    let before = last_active();
    let reply = switch(&ana, &ana.account);
    assert!(active_cookie(&reply).contains(&ana.account));
    let switched = reply.ok();
    assert_eq!(
        (&switched["account"]["id"], &switched["role"]),
        (&json!(ana.account), &json!("owner"))
    );
    assert_ne!(last_active(), before);

    let foreign = switch(&ana, &bia.account);
    assert_eq!(foreign.header("set-cookie"), None);
    let foreign = foreign.refused(401, "AUTH_ERROR");
    let unknown = switch(&ana, &uuid::Uuid::now_v7().to_string()).refused(401, "AUTH_ERROR");
    assert_eq!(foreign, unknown);
    assert_eq!(switch(&ana, "x").invalid(), ["account_id"]);

    server.db.run(&format!(
        "UPDATE accounts SET status = 'suspended' WHERE id = '{}'",
        ana.account
    ));
    switch(&ana, &ana.account).refused(401, "AUTH_ERROR");
}

#[test]
fn the_account_of_a_request_is_the_cookies_then_the_headers_then_the_latest() {
    let server = Server::new();
    let mut ana = server.owner();
    let first = ana.account.clone();
    ana.contact("In the first", "+5511961234567");
    ana.account = text(&ana.post("/api/accounts", json!({ "name": "Zwei" })).created()["account"]["id"]);
    let second = ana.account.clone();
    let contacts = |cookie: &str, header: &str| {
        let mut request = ana.request("GET", "/api/contacts");
        if !cookie.is_empty() {
            request = request.cookie(&format!("svc-active-account-id={cookie}"));
        }
        if !header.is_empty() {
            request = request.header("X-Account-Id", header);
        }
        let reply = request.send();
        let count = |reply: crate::harness::client::Reply| reply.ok()["data"].as_array().unwrap().len();
        if reply.status == 401 { None } else { Some(count(reply)) }
    };
    assert_eq!(contacts(&first, ""), Some(1));
    assert_eq!(contacts(&second, &first), Some(0));
    assert_eq!(contacts("", &first), Some(1));
    ana.post("/api/accounts/switch", json!({ "account_id": first })).ok();
    assert_eq!(contacts("", ""), Some(1));
    ana.post("/api/accounts/switch", json!({ "account_id": second })).ok();
    assert_eq!(contacts("", ""), Some(0));

    let foreign = server.owner().account;
    for wrong in [foreign.as_str(), "garbage", "7"] {
        assert_eq!(contacts(wrong, &first), None, "{wrong}");
        assert_eq!(contacts("", wrong), None, "{wrong}");
    }
    assert_eq!(listed(&ana, Some(&foreign))["active_account_id"], json!(null));
    assert_eq!(listed(&ana, Some("garbage"))["active_account_id"], json!(null));
    assert_eq!(listed(&ana, None)["active_account_id"], json!(null));
}

#[test]
fn without_an_account_there_is_no_account_context() {
    let server = Server::new();
    let ana = server.stranger();
    ana.get("/api/contacts").refused(401, "AUTH_ERROR");
    ana.post("/api/contacts", json!({ "name": "x", "phone": "11961234567" }))
        .refused(401, "AUTH_ERROR");
}

#[test]
fn a_suspended_account_is_closed_and_says_so() {
    let server = Server::new();
    let ana = server.owner();
    ana.get("/api/contacts").ok();
    server.db.run(&format!(
        "UPDATE accounts SET status = 'suspended' WHERE id = '{}'",
        ana.account
    ));
    // A membership is trusted for a second.
    let error = crate::harness::eventually("the account is closed", || {
        let reply = ana.get("/api/contacts");
        (reply.status != 200).then_some(reply)
    });
    let message = text(&error.refused(401, "AUTH_ERROR")["message"]);
    assert!(message.contains("suspended"), "{message}");
    // The list still shows it, with its status.
    assert_eq!(listed(&ana, None)["accounts"][0]["account"]["status"], "suspended");
    server.db.run(&format!(
        "UPDATE accounts SET status = 'active' WHERE id = '{}'",
        ana.account
    ));
    crate::harness::until("the account is open again", || ana.get("/api/contacts").status == 200);
}

#[test]
fn a_removed_member_is_out_within_a_moment() {
    let server = Server::new();
    let ana = server.owner();
    let bia = server.member(&ana.account, "member");
    bia.get("/api/contacts").ok();
    server
        .db
        .run(&format!("DELETE FROM account_users WHERE user_id = '{}'", bia.id));
    crate::harness::until("the member is out", || bia.get("/api/contacts").status == 401);
}

/// The support-mode cookie of a user, signed as the server does.
fn support_cookie(user: &User<'_>, account: &str, lasts_seconds: i64) -> String {
    let now = time::OffsetDateTime::now_utc();
    let moment = |seconds: i64| {
        let at = now + time::Duration::seconds(seconds);
        at.format(&time::format_description::well_known::Rfc3339).unwrap()
    };
    let mode = json!([user.id, { "account_id": account, "account_name": "Loja", "original_account_id": null,
        "started_at": moment(lasts_seconds - 14_400), "expires_at": moment(lasts_seconds) }]);
    let sign = |key: &[u8], text: &[u8]| {
        let mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        mac.chain_update(text).finalize().into_bytes()
    };
    let key = sign(&[b'k'; 32], b"svc-support-mode");
    let content = mode.to_string();
    let signature = sign(&key, content.as_bytes());
    format!(
        "svc-support-mode={}.{}",
        URL_SAFE_NO_PAD.encode(&content),
        URL_SAFE_NO_PAD.encode(signature)
    )
}

#[test]
fn support_mode_is_told_to_whom_it_was_given_and_while_it_lasts() {
    let server = Server::new();
    let (ana, bia) = (server.root(), server.owner());
    let told = |user: &User<'_>, cookie: &str| {
        let list = user.request("GET", "/api/accounts").cookie(cookie).send().ok();
        list["support_mode"].clone()
    };
    let cookie = support_cookie(&ana, &bia.account, 3600);
    let mode = told(&ana, &cookie);
    assert_eq!(
        (&mode["account_id"], &mode["account_name"]),
        (&json!(bia.account), &json!("Loja"))
    );
    assert_eq!(mode["original_account_id"], json!(null));
    for field in ["started_at", "expires_at"] {
        let moment = text(&mode[field]);
        assert!(moment.ends_with('Z') && moment.len() == 24, "{moment}");
    }
    assert_eq!(mode.as_object().unwrap().len(), 5);
    assert_eq!(told(&bia, &cookie), json!(null));
    assert_eq!(told(&server.root(), &cookie), json!(null), "another administrator");
    let own = support_cookie(&bia, &bia.account, 3600);
    assert_eq!(
        told(&bia, &own),
        json!(null),
        "nobody's who is no administrator any more"
    );
    assert_eq!(told(&ana, &format!("{cookie}A")), json!(null));
    assert_eq!(told(&ana, &support_cookie(&ana, &bia.account, -1)), json!(null));
    assert_eq!(told(&ana, "svc-support-mode=forged"), json!(null));
}
