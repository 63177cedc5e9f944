//! Accounts: list, create and switch, and how the server determines the account of a request.

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

fn list_accounts(user: &User<'_>, cookie: Option<&str>) -> serde_json::Value {
    let request = user.request("GET", "/api/accounts");
    match cookie {
        Some(id) => request.cookie(&format!("svc-active-account-id={id}")).send().ok(),
        None => request.send().ok(),
    }
}

#[test]
fn account_created_is_listed_and_set_active() {
    let server = Server::new();
    let ana = server.stranger();
    let empty = json!({ "accounts": [], "active_account_id": null, "is_admin": false, "support_mode": null });
    assert_eq!(list_accounts(&ana, None), empty);

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

    let list = list_accounts(&ana, Some(&id));
    assert_eq!(
        list["accounts"],
        json!([{ "account_id": id, "role": "owner", "account": account }])
    );
    assert_eq!(list["active_account_id"], json!(id));
}

#[test]
fn active_account_cookie_is_secure_if_configured() {
    let server = Server::start(Options::default().with("COOKIE_SECURE", "true"));
    let reply = server.stranger().post("/api/accounts", json!({ "name": "Loja" }));
    assert!(active_cookie(&reply).contains("Secure"));
}

#[test]
fn account_names_are_validated_and_slugs_are_unique() {
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
fn concurrent_account_creations_get_different_slugs() {
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
    let mut expected: std::collections::BTreeSet<String> = (2..=10).map(|n| format!("padaria-{n}")).collect();
    expected.insert("padaria".into());
    assert_eq!(slugs, expected);
    assert_eq!(server.db.count("FROM account_users WHERE role = 'owner'"), 10);
}

#[test]
fn account_switch_requires_membership_of_active_account() {
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
fn request_account_is_from_cookie_then_header_then_last_active() {
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
    assert_eq!(list_accounts(&ana, Some(&foreign))["active_account_id"], json!(null));
    assert_eq!(list_accounts(&ana, Some("garbage"))["active_account_id"], json!(null));
    assert_eq!(list_accounts(&ana, None)["active_account_id"], json!(null));
}

#[test]
fn user_without_account_is_refused_by_account_routes() {
    let server = Server::new();
    let ana = server.stranger();
    ana.get("/api/contacts").refused(401, "AUTH_ERROR");
    ana.post("/api/contacts", json!({ "name": "x", "phone": "11961234567" }))
        .refused(401, "AUTH_ERROR");
}

#[test]
fn suspended_account_is_refused_with_reason() {
    let server = Server::new();
    let ana = server.owner();
    ana.get("/api/contacts").ok();
    server.db.run(&format!(
        "UPDATE accounts SET status = 'suspended' WHERE id = '{}'",
        ana.account
    ));
    // The authentication cache holds a membership for a second.
    let error = crate::harness::eventually("the account is suspended", || {
        let reply = ana.get("/api/contacts");
        (reply.status != 200).then_some(reply)
    });
    let message = text(&error.refused(401, "AUTH_ERROR")["message"]);
    assert!(message.contains("suspended"), "{message}");
    // The account list still shows the account and its status.
    assert_eq!(
        list_accounts(&ana, None)["accounts"][0]["account"]["status"],
        "suspended"
    );
    server.db.run(&format!(
        "UPDATE accounts SET status = 'active' WHERE id = '{}'",
        ana.account
    ));
    crate::harness::until("the account is active again", || ana.get("/api/contacts").status == 200);
}

#[test]
fn removed_member_loses_access() {
    let server = Server::new();
    let ana = server.owner();
    let bia = server.member(&ana.account, "member");
    bia.get("/api/contacts").ok();
    server
        .db
        .run(&format!("DELETE FROM account_users WHERE user_id = '{}'", bia.id));
    crate::harness::until("the removed member is refused", || {
        bia.get("/api/contacts").status == 401
    });
}

/// A valid support-mode cookie of `user`.
fn support_cookie(user: &User<'_>, account: &str, lasts_seconds: i64) -> String {
    let now = time::OffsetDateTime::now_utc();
    let after = |seconds: i64| {
        let at = now + time::Duration::seconds(seconds);
        at.format(&time::format_description::well_known::Rfc3339).unwrap()
    };
    let mode = json!([user.id, { "account_id": account, "account_name": "Loja", "original_account_id": null,
        "started_at": after(lasts_seconds - 14_400), "expires_at": after(lasts_seconds) }]);
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
fn support_mode_is_shown_to_its_administrator_until_expiry() {
    let server = Server::new();
    let (ana, bia) = (server.root(), server.owner());
    let support_mode = |user: &User<'_>, cookie: &str| {
        let list = user.request("GET", "/api/accounts").cookie(cookie).send().ok();
        list["support_mode"].clone()
    };
    let cookie = support_cookie(&ana, &bia.account, 3600);
    let mode = support_mode(&ana, &cookie);
    assert_eq!(
        (&mode["account_id"], &mode["account_name"]),
        (&json!(bia.account), &json!("Loja"))
    );
    assert_eq!(mode["original_account_id"], json!(null));
    for field in ["started_at", "expires_at"] {
        let time = text(&mode[field]);
        assert!(time.ends_with('Z') && time.len() == 24, "{time}");
    }
    assert_eq!(mode.as_object().unwrap().len(), 5);
    assert_eq!(support_mode(&bia, &cookie), json!(null));
    assert_eq!(
        support_mode(&server.root(), &cookie),
        json!(null),
        "another administrator"
    );
    let own = support_cookie(&bia, &bia.account, 3600);
    assert_eq!(support_mode(&bia, &own), json!(null), "not a platform administrator");
    assert_eq!(support_mode(&ana, &format!("{cookie}A")), json!(null));
    assert_eq!(support_mode(&ana, &support_cookie(&ana, &bia.account, -1)), json!(null));
    assert_eq!(support_mode(&ana, "svc-support-mode=forged"), json!(null));
}
