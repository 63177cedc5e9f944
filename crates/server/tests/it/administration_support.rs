//! Support mode: a platform administrator's temporary membership in an account, and its traces in the audit log.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use recado_api::routes::TABLE;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::api_keys;
use crate::harness::admin::{Browser, ROOT};
use crate::harness::runs::final_status;
use crate::harness::users::User;
use crate::harness::{Server, eventually, text, until};
use crate::invites;
use crate::matrix::{is_account, label, row, with_body};

const SUPPORT: &str = "svc-support-mode";
const ACTIVE: &str = "svc-active-account-id";

/// The user's memberships: account, role, and whether each is a support membership.
fn list_memberships(user: &User<'_>) -> String {
    user.server.db.text(&format!(
        "SELECT coalesce(string_agg(account_id || ' ' || role || ' ' || is_support, ', ' ORDER BY created_at), '')
         FROM account_users WHERE user_id = '{}'",
        user.id
    ))
}

fn list_accounts(browser: &Browser<'_>) -> Value {
    browser.get("/api/accounts").ok()
}

#[test]
fn support_mode_start_and_stop_set_cookies_and_membership() {
    let server = Server::new();
    let (ana, mut root) = (server.owner(), server.root());
    root.account = text(&root.post("/api/accounts", json!({ "name": "Nossa" })).created()["account"]["id"]);
    let (own, target) = (root.account.clone(), ana.account.clone());
    let browser = Browser::new(root);
    browser.set(ACTIVE, &own);
    let path = format!("/api/admin/accounts/{target}/support");
    let reply = browser.send(browser.request("POST", &path).json(&json!({ "reason": " ticket 7 " })));
    let cookies: Vec<String> = reply
        .headers
        .get_all("set-cookie")
        .iter()
        .map(|line| line.to_str().unwrap().to_owned())
        .collect();
    assert_eq!(reply.ok(), json!({ "account_id": target, "account_name": "Loja" }));
    assert_eq!(cookies.len(), 2);
    for (line, (name, age)) in cookies.iter().zip([(SUPPORT, 14_400), (ACTIVE, 31_536_000)]) {
        assert!(line.starts_with(name), "{line}");
        for flag in ["HttpOnly", "SameSite=Lax", "Path=/", &format!("Max-Age={age}")] {
            assert!(line.contains(flag), "{line}");
        }
    }
    assert_eq!(browser.cookie(ACTIVE).as_deref(), Some(target.as_str()));
    assert_eq!(
        list_memberships(&browser.user),
        format!("{own} owner false, {target} admin true")
    );
    let listed = list_accounts(&browser);
    assert_eq!(
        (&listed["active_account_id"], &listed["is_admin"]),
        (&json!(target), &json!(true))
    );
    let mode = &listed["support_mode"];
    assert_eq!(
        (&mode["account_id"], &mode["original_account_id"]),
        (&json!(target), &json!(own))
    );
    assert_eq!(mode["account_name"], "Loja");

    assert_eq!(browser.stop().ok(), json!({ "account_id": own }));
    assert_eq!(
        (browser.cookie(SUPPORT), browser.cookie(ACTIVE)),
        (None, Some(own.clone()))
    );
    assert_eq!(list_memberships(&browser.user), format!("{own} owner false"));
    assert_eq!(list_accounts(&browser)["support_mode"], json!(null));
    browser
        .user
        .request("GET", "/api/contacts")
        .header("X-Account-Id", &target)
        .send()
        .refused(401, "AUTH_ERROR");
    browser.get("/api/contacts").ok();
}

#[test]
fn support_administrator_can_act_but_is_not_in_the_team() {
    let server = Server::new();
    let (ana, browser) = (server.owner(), Browser::new(server.root()));
    let target = ana.account.clone();
    let path = format!("/api/admin/accounts/{target}/support");
    browser.post(&path, json!({ "reason": " ticket 7 " })).ok();
    let contact = json!({ "name": "Bia", "phone": "+5511961234567" });
    browser.post("/api/contacts", contact).created();
    assert_eq!(ana.get("/api/contacts").ok()["data"].as_array().unwrap().len(), 1);
    browser.post("/api/api-keys", json!({ "name": "k" })).created();
    // Team routes do not show or change a support membership.
    assert_eq!(ana.get("/api/team/members").ok()["data"].as_array().unwrap().len(), 1);
    ana.delete(&format!("/api/team/members/{}", browser.user.id))
        .refused(404, "NOT_FOUND");
    ana.put(
        &format!("/api/team/members/{}", browser.user.id),
        json!({ "role": "viewer" }),
    )
    .refused(404, "NOT_FOUND");
    browser.stop().ok();

    let logs = ana.get("/api/audit-logs").ok()["logs"].take();
    let [key, login] = logs.as_array().unwrap().as_slice() else {
        panic!("{logs}")
    };
    assert_eq!(
        (&login["action"], &login["entity_type"]),
        (&json!("login"), &json!("admin_impersonation"))
    );
    assert_eq!(
        (&login["entity_id"], &login["user_id"]),
        (&json!(target), &json!(browser.user.id))
    );
    assert_eq!(login["changes"], json!({ "reason": "ticket 7", "support_admin": ROOT }));
    assert_eq!(
        (&key["entity_type"], &key["changes"]),
        (&json!("api_key"), &json!({ "name": "k", "support_admin": ROOT }))
    );
    assert_eq!(key["user_id"], json!(browser.user.id));
}

#[test]
fn support_mode_actions_name_administrator_in_audit_log() {
    let server = Server::new();
    let ana = server.owner();
    ana.contacts(3);
    let browser = Browser::new(server.root());
    browser.support(&ana.account);
    let campaign = ana.plain_campaign();
    // A run outlives the request and may outlive support mode.
    browser
        .post(&format!("/api/campaigns/{campaign}/execute"), json!({}))
        .ok();
    assert_eq!(final_status(&ana, &campaign), "sent");
    let draft = ana.plain_campaign();
    browser.post(&format!("/api/campaigns/{draft}/send"), json!({})).ok();
    final_status(&ana, &draft);
    let act = format!("/api/admin/accounts/{}/action", ana.account);
    browser
        .post(&act, json!({ "action": "change_plan", "plan": "growth" }))
        .ok();
    let order = json!({ "plan": "starter", "billing_type": "PIX", "cycle": "MONTHLY", "cpf_cnpj": "529.982.247-25" });
    browser.post("/api/billing/subscribe", order).created();
    let entries_of_root = |logs: &Value| {
        let logs = logs["logs"].as_array().unwrap().iter().cloned();
        logs.filter(|log| log["user_id"] == json!(browser.user.id))
            .collect::<Vec<_>>()
    };
    let logs = entries_of_root(&ana.get("/api/audit-logs?limit=100").ok());
    let kinds: Vec<&str> = logs.iter().map(|log| log["entity_type"].as_str().unwrap()).collect();
    let expected = [
        "subscription",
        "admin_account_action",
        "campaign_send",
        "campaign",
        "admin_impersonation",
    ];
    assert_eq!(kinds, expected);
    assert!(
        logs.iter().all(|log| log["changes"]["support_admin"] == ROOT),
        "{logs:?}"
    );
    browser.stop().ok();
    browser.post(&act, json!({ "action": "suspend" })).ok();
    browser.post(&act, json!({ "action": "reactivate" })).ok();
    let logs = eventually("the account is active again", || {
        let reply = ana.get("/api/audit-logs?limit=100");
        (reply.status == 200).then(|| entries_of_root(&reply.ok()))
    });
    assert_eq!(logs.len(), 7);
    assert!(
        logs.iter()
            .take(2)
            .all(|log| log["changes"].get("support_admin").is_none()),
        "{logs:?}"
    );
    // Actions of the account's own members name no administrator.
    api_keys::create_key_response(&ana, "CI");
    let newest = ana.get("/api/audit-logs?limit=1").ok();
    assert_eq!(newest["logs"][0]["changes"], json!({ "name": "CI" }));
}

#[test]
fn scheduled_start_names_administrator_who_scheduled_it() {
    let server = Server::new();
    let ana = server.owner();
    ana.contacts(1);
    let browser = Browser::new(server.root());
    browser.support(&ana.account);
    let (by_root, by_ana) = (ana.plain_campaign(), ana.plain_campaign());
    let later = json!({ "scheduled_at": "2126-01-01T00:00:00Z" });
    for campaign in [&by_root, &by_ana] {
        let path = format!("/api/campaigns/{campaign}/schedule");
        browser.post(&path, later.clone()).ok();
    }
    // A member who reschedules the campaign becomes the user who scheduled it.
    ana.post(&format!("/api/campaigns/{by_ana}/schedule"), later).ok();
    browser.stop().ok();
    server
        .db
        .run("UPDATE campaigns SET scheduled_at = now() - interval '1 second'");
    for (campaign, user, admin) in [(&by_root, browser.user.id, json!(ROOT)), (&by_ana, ana.id, Value::Null)] {
        until("the scheduled run starts", || ana.status(campaign) != "scheduled");
        assert_eq!(final_status(&ana, campaign), "sent");
        let started = eventually("the start is audited", || {
            let logs = ana.get("/api/audit-logs?limit=100&entityType=campaign_send").ok();
            let mut logs = logs["logs"].as_array().unwrap().clone().into_iter();
            logs.find(|log| log["entity_id"] == json!(campaign))
        });
        assert_eq!(
            (
                &started["user_id"],
                &started["changes"]["scheduled"],
                &started["changes"]["support_admin"]
            ),
            (&json!(user), &json!(true), &admin)
        );
    }
}

#[test]
fn support_mode_keeps_the_administrators_own_membership() {
    let server = Server::new();
    let ana = server.owner();
    for role in ["owner", "admin", "member", "viewer"] {
        let root = server.root();
        server.db.run(&format!(
            "INSERT INTO users (id, email) VALUES ('{0}', '{ROOT}');
             INSERT INTO account_users (account_id, user_id, role) VALUES ('{1}', '{0}', '{role}')",
            root.id, ana.account
        ));
        let browser = Browser::new(root);
        browser.support(&ana.account);
        browser.support(&ana.account);
        let own = format!("{} {role} false", ana.account);
        assert_eq!(list_memberships(&browser.user), own);
        let made = browser.post("/api/tags", json!({ "name": format!("t-{role}") }));
        assert_eq!(made.status, if role == "viewer" { 401 } else { 201 }, "{role}");
        assert_eq!(browser.stop().ok(), json!({ "account_id": ana.account }));
        assert_eq!(list_memberships(&browser.user), own);
        browser.get("/api/contacts").ok();
    }
}

#[test]
fn second_support_start_replaces_account_and_keeps_original() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let mut root = server.root();
    root.account = text(&root.post("/api/accounts", json!({ "name": "Nossa" })).created()["account"]["id"]);
    let own = root.account.clone();
    let browser = Browser::new(root);
    browser.support(&ana.account);
    browser.support(&ana.account);
    browser.support(&bia.account);
    assert_eq!(
        list_memberships(&browser.user),
        format!("{own} owner false, {} admin true", bia.account)
    );
    assert_eq!(
        list_accounts(&browser)["support_mode"]["original_account_id"],
        json!(own),
        "without a cookie: the last active account"
    );
    assert_eq!(browser.stop().ok(), json!({ "account_id": own }));
    // An administrator without an account has no active account afterwards.
    let without_account = Browser::new(server.root());
    without_account.support(&ana.account);
    assert_eq!(without_account.stop().ok(), json!({ "account_id": null }));
    assert_eq!(
        (without_account.cookie(ACTIVE), without_account.cookie(SUPPORT)),
        (None, None)
    );
    without_account.get("/api/contacts").refused(401, "AUTH_ERROR");
}

#[test]
fn concurrent_support_starts_create_one_membership() {
    let server = Server::new();
    let (ana, root) = (server.owner(), server.root());
    root.get("/api/accounts").ok();
    let path = format!("/api/admin/accounts/{}/support", ana.account);
    let requests: Vec<_> = (0..8).map(|_| root.request("POST", &path)).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = requests
            .into_iter()
            .map(|request| scope.spawn(|| request.send().status))
            .collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), 200);
        }
    });
    assert_eq!(list_memberships(&root), format!("{} admin true", ana.account));
    assert_eq!(
        ana.get("/api/audit-logs?entityType=admin_impersonation").ok()["total"],
        8
    );
}

#[test]
fn support_stop_without_valid_cookie_is_refused() {
    let server = Server::new();
    let ana = server.owner();
    let (browser, other_browser) = (Browser::new(server.root()), Browser::new(server.root()));
    browser.stop().refused(500, "INTERNAL_ERROR");
    browser.support(&ana.account);
    let cookie = browser.cookie(SUPPORT).unwrap();
    let (content, signature) = cookie.split_once('.').unwrap();
    let mut changed: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(content).unwrap()).unwrap();
    changed[1]["original_account_id"] = json!(Uuid::now_v7());
    let changed = URL_SAFE_NO_PAD.encode(changed.to_string());
    for forged in [
        format!("{changed}.{signature}"),
        format!("{content}."),
        content.to_owned(),
        "x".repeat(8192),
    ] {
        let request = browser.user.request("POST", "/api/admin/stop-support");
        request
            .cookie(&format!("{SUPPORT}={forged}"))
            .send()
            .refused(500, "INTERNAL_ERROR");
    }
    // The cookie is valid only for the administrator it was issued to.
    other_browser.set(SUPPORT, &cookie);
    other_browser.stop().refused(500, "INTERNAL_ERROR");
    let stranger = ana
        .request("POST", "/api/admin/stop-support")
        .cookie(&format!("{SUPPORT}={cookie}"));
    stranger.send().refused(401, "AUTH_ERROR");
    assert_eq!(list_memberships(&browser.user), format!("{} admin true", ana.account));
    browser.stop().ok();
    browser.stop().refused(500, "INTERNAL_ERROR");
}

#[test]
fn support_mode_works_in_suspended_account() {
    let server = Server::new();
    let (ana, root) = (server.owner(), server.root());
    root.post(
        &format!("/api/admin/accounts/{}/action", ana.account),
        json!({ "action": "suspend" }),
    )
    .ok();
    let browser = Browser::new(root);
    browser.support(&ana.account);
    for spec in TABLE.iter().filter(|spec| is_account(spec)) {
        let path = spec.path.replace("{id}", &Uuid::now_v7().to_string());
        let reply = with_body(browser.request(spec.method.as_str(), &path), row(spec)).send();
        assert_ne!(reply.status, 401, "{}: {}", label(spec), reply.text);
        ana.request(spec.method.as_str(), &path)
            .send()
            .refused(401, "AUTH_ERROR");
    }
    browser
        .post("/api/accounts/switch", json!({ "account_id": ana.account }))
        .ok();
    ana.post("/api/accounts/switch", json!({ "account_id": ana.account }))
        .refused(401, "AUTH_ERROR");
    // An API key created in support mode belongs to the account and is refused while it is suspended.
    let key = text(&browser.post("/api/api-keys", json!({ "name": "k" })).created()["full_key"]);
    server
        .get("/api/contacts")
        .bearer(&key)
        .send()
        .refused(401, "AUTH_ERROR");
}

#[test]
fn expired_support_membership_is_refused_and_deleted() {
    let server = Server::new();
    let (ana, browser) = (server.owner(), Browser::new(server.root()));
    browser.support(&ana.account);
    browser.get("/api/contacts").ok();
    server
        .db
        .run("UPDATE account_users SET expires_at = now() WHERE is_support");
    until("support mode has expired", || {
        browser.get("/api/contacts").status == 401
    });
    for spec in TABLE.iter().filter(|spec| is_account(spec)) {
        let path = spec.path.replace("{id}", &Uuid::now_v7().to_string());
        with_body(browser.request(spec.method.as_str(), &path), row(spec))
            .send()
            .refused(401, "AUTH_ERROR");
    }
    assert_eq!(list_accounts(&browser)["accounts"], json!([]));
    assert_eq!(list_accounts(&browser)["active_account_id"], json!(null));
    until("the support membership is deleted", || {
        server.db.count("FROM account_users WHERE is_support") == 0
    });
}

#[test]
fn support_membership_of_former_administrator_is_refused() {
    let server = Server::new();
    let ana = server.owner();
    let former = server.stranger();
    server.db.run(&format!(
        "INSERT INTO users (id, email) VALUES ('{0}', '{1}');
         INSERT INTO account_users (account_id, user_id, role, is_support, expires_at)
           VALUES ('{2}', '{0}', 'admin', true, now() + interval '1 hour')",
        former.id, former.email, ana.account
    ));
    for spec in TABLE.iter().filter(|spec| is_account(spec)) {
        let path = spec.path.replace("{id}", &Uuid::now_v7().to_string());
        let request = former
            .request(spec.method.as_str(), &path)
            .header("X-Account-Id", &ana.account);
        with_body(request, row(spec)).send().refused(401, "AUTH_ERROR");
    }
    assert_eq!(former.get("/api/accounts").ok()["accounts"], json!([]));
    former
        .post("/api/accounts/switch", json!({ "account_id": ana.account }))
        .refused(401, "AUTH_ERROR");
}

#[test]
fn invite_accepted_in_support_mode_creates_own_membership() {
    let server = Server::new();
    let (ana, browser) = (server.owner(), Browser::new(server.root()));
    browser.support(&ana.account);
    let made = ana
        .post("/api/team/invites", json!({ "email": ROOT, "role": "member" }))
        .created();
    assert!(!invites::create_invite_id(&ana, "caio@example.com").is_empty());
    browser
        .post("/api/auth/accept-invite", json!({ "token": made["token"] }))
        .ok();
    assert_eq!(list_memberships(&browser.user), format!("{} member false", ana.account));
    browser.stop().ok();
    assert_eq!(list_memberships(&browser.user), format!("{} member false", ana.account));
    assert_eq!(ana.get("/api/team/members").ok()["data"].as_array().unwrap().len(), 2);
}
