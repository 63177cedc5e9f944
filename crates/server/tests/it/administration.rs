//! The routes of platform administrators: accounts, suspension, plan grants, revenue and churn.

use recado_api::routes::{Access, RouteSpec, TABLE};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::api_keys;
use crate::billing::{card_order, plan, subscribe, wait_for_status};
use crate::costs;
use crate::harness::client::Request;
use crate::harness::runs::{assert_stats_add_up, calls, final_status, wait_for_stat};
use crate::harness::users::User;
use crate::harness::{Server, text, until};
use crate::matrix::{label, row, with_body};

fn admin_routes() -> impl Iterator<Item = &'static RouteSpec> {
    TABLE.iter().filter(|spec| spec.access == Access::Administrator)
}

fn path_for_account(spec: &RouteSpec, account: &str) -> String {
    spec.path.replace("{id}", account)
}

#[test]
fn admin_routes_refuse_all_but_platform_administrators() {
    let server = Server::new();
    let ana = server.owner();
    let key = api_keys::create_key(&ana);
    let lookalikes = [
        "root@example.com.br",
        "xroot@example.com",
        "root@example.co",
        "root+1@example.com",
    ];
    let mut tokens: Vec<String> = lookalikes.map(|email| server.user(Uuid::new_v4(), email).token).into();
    tokens.extend(["admin", "member", "viewer"].map(|role| server.member(&ana.account, role).token));
    tokens.extend([ana.token.clone(), key]);
    let before = server
        .db
        .text("SELECT string_agg(a::text, '|' ORDER BY id) FROM accounts a");
    let mut seen = 0;
    for spec in admin_routes() {
        for token in &tokens {
            let request = server
                .request(spec.method.as_str(), &path_for_account(spec, &ana.account))
                .bearer(token);
            with_body(request, row(spec)).send().refused(401, "AUTH_ERROR");
        }
        seen += 1;
    }
    assert_eq!(seen, 18);
    assert_eq!(
        server
            .db
            .text("SELECT string_agg(a::text, '|' ORDER BY id) FROM accounts a"),
        before
    );
    // Administrator addresses are compared without case.
    let root = server.user(Uuid::new_v4(), " ROOT@Example.COM ");
    let card = costs::add_card(&server, "BR,USD,marketing,0.06,2026-01-01,,,\n");
    for spec in admin_routes().filter(|spec| spec.method == "GET") {
        let path = match spec.path.strip_prefix("/api/admin/rate-cards/") {
            Some(_) => format!("/api/admin/rate-cards/{card}"),
            None => path_for_account(spec, &ana.account),
        };
        let reply = root.get(&path);
        assert_eq!(reply.status, 200, "{}: {}", label(spec), reply.text);
    }
    // A cross-site request cannot use an administrator's cookie.
    let foreign = server
        .post("/api/admin/accounts")
        .cookie(&format!("svc-session={}", root.token));
    let foreign = foreign
        .header("Origin", "https://evil.example")
        .json(&json!({ "name": "x" }));
    foreign.send().refused(403, "FORBIDDEN");
}

#[test]
fn admin_action_checks_rate_limit_before_path_and_body() {
    let server = Server::new();
    let (root, second_root) = (server.root(), server.root());
    let unknown = Uuid::now_v7();
    let act = |user: &User<'_>| {
        user.post(
            &format!("/api/admin/accounts/{unknown}/action"),
            json!({ "action": "suspend" }),
        )
    };
    let first = act(&root);
    assert_eq!(first.header("x-ratelimit-limit"), Some("30"));
    first.refused(404, "NOT_FOUND");
    for _ in 1..30 {
        act(&root).refused(404, "NOT_FOUND");
    }
    // The rate limit is checked before path and body, and counts per administrator.
    let late = root.post("/api/admin/accounts/7/action", json!(7));
    late.refused(429, "RATE_LIMIT");
    act(&second_root).refused(404, "NOT_FOUND");
    let support = root.post(&format!("/api/admin/accounts/{unknown}/support"), json!({}));
    assert_eq!(
        support.header("x-ratelimit-remaining"),
        Some("29"),
        "each route has its own limit"
    );
    support.refused(404, "NOT_FOUND");
    assert_eq!(root.get("/api/admin/stats").header("x-ratelimit-limit"), None);
}

#[test]
fn account_created_by_administrator_has_no_members() {
    let server = Server::new();
    let root = server.root();
    let made = root
        .post(
            "/api/admin/accounts",
            json!({ "name": " Padaria <b>Sol</b>", "plan": "growth" }),
        )
        .created();
    assert_eq!(
        (
            &made["name"],
            &made["slug"],
            &made["plan"],
            &made["status"],
            &made["logo_url"]
        ),
        (
            &json!("Padaria Sol"),
            &json!("padaria-sol"),
            &json!("growth"),
            &json!("active"),
            &json!(null)
        )
    );
    let id = text(&made["id"]);
    assert_eq!(
        server
            .db
            .count(&format!("FROM account_users WHERE account_id = '{id}'")),
        0
    );
    let again = root
        .post("/api/admin/accounts", json!({ "name": "Padaria Sol" }))
        .created();
    assert_eq!(
        (&again["slug"], &again["plan"]),
        (&json!("padaria-sol-2"), &json!("free"))
    );
    let create = |body: Value| root.post("/api/admin/accounts", body).invalid();
    assert_eq!(create(json!({ "name": "x", "slug": "padaria-sol" })), ["slug"]);
    assert_eq!(
        create(json!({ "slug": "A B", "plan": "gold" })),
        ["name", "plan", "slug"]
    );

    assert!(root.get(&format!("/api/admin/accounts/{id}")).ok()["users"] == json!([]));
}

#[test]
fn account_is_read_and_updated_by_administrator() {
    let server = Server::new();
    let (root, ana) = (server.root(), server.owner());
    let create = |body: Value| root.post("/api/admin/accounts", body).created();
    let made = create(json!({ "name": "Padaria Sol" }));
    create(json!({ "name": "Padaria Sol" }));
    let id = text(&made["id"]);
    let get = root.get(&format!("/api/admin/accounts/{}", ana.account)).ok();
    let user = &get["users"][0];
    assert_eq!(
        (&user["user_id"], &user["role"], &user["email"]),
        (&json!(ana.id), &json!("owner"), &json!(ana.email))
    );
    assert_eq!(get["metrics"], json!({ "contacts": 0, "conversations": 0 }));
    assert_eq!(get.as_object().unwrap().len(), 9, "{get}");

    let update = |body: Value| root.put(&format!("/api/admin/accounts/{id}"), body);
    assert_eq!(update(json!({ "slug": "padaria-sol-2" })).invalid(), ["slug"]);
    let wrong = json!({ "name": "", "slug": "-", "logo_url": "x", "plan": "gold", "status": "open" });
    assert_eq!(update(wrong).invalid(), ["logo_url", "name", "plan", "slug", "status"]);
    let ignored =
        json!({ "id": Uuid::nil(), "created_at": "2020-01-01T00:00:00Z", "deleting_at": "2020-01-01T00:00:00Z" });
    assert_eq!(update(ignored).ok(), made);
    let full = json!({ "name": "Nova", "slug": "nova", "logo_url": "https://x.example/l.png", "plan": "scale",
                       "status": "suspended" });
    let updated = update(full.clone()).ok();
    for field in ["name", "slug", "logo_url", "plan", "status"] {
        assert_eq!(updated[field], full[field]);
    }
    assert_eq!(update(json!({ "logo_url": null })).ok()["logo_url"], json!(null));
    // The old slug is free again.
    root.post("/api/admin/accounts", json!({ "name": "x", "slug": "padaria-sol" }))
        .created();
    root.put(
        &format!("/api/admin/accounts/{}", Uuid::now_v7()),
        json!({ "name": "x" }),
    )
    .refused(404, "NOT_FOUND");
}

#[test]
fn admin_account_list_is_filtered_and_paged() {
    let server = Server::new();
    let (root, ana) = (server.root(), server.owner());
    for number in 0..24 {
        let plan = ["free", "growth"][number % 2];
        root.post(
            "/api/admin/accounts",
            json!({ "name": format!("Café {number}"), "plan": plan }),
        )
        .created();
    }
    let list = |query: &str| root.get(&format!("/api/admin/accounts{query}")).ok();
    let first = list("");
    assert_eq!(first.as_object().unwrap().len(), 4);
    assert_eq!(
        (&first["total"], &first["page"], &first["totalPages"]),
        (&json!(25), &json!(1), &json!(2))
    );
    assert_eq!(
        (
            first["data"].as_array().unwrap().len(),
            &first["data"][0]["company_name"]
        ),
        (20, &json!("Café 23"))
    );
    let mine = list(&format!("?search={}", ana.email.to_uppercase()));
    let expected = json!({ "id": ana.account, "company_name": "Loja", "slug": "loja", "owner_email": ana.email,
                         "plan": "free", "status": "active", "users": 1, "contacts": 0, "messages_30d": 0, "mrr": 0,
                         "created_at": mine["data"][0]["created_at"] });
    assert_eq!(mine["data"], json!([expected]));
    assert_eq!(list("?search=CAF%C3%89+2&plan=growth&limit=2")["total"], 2, "21 and 23");
    assert_eq!(list("?search=%25")["total"], 0, "a percent sign matches itself");
    assert_eq!(list("?status=suspended")["total"], 0);
    assert_eq!(
        list("?search=&plan=&status=&page=&limit=")["total"],
        25,
        "an empty parameter counts as absent"
    );
    let beyond = list("?page=99&limit=1000");
    assert_eq!(
        (&beyond["data"], &beyond["total"], &beyond["page"]),
        (&json!([]), &json!(25), &json!(99))
    );
    for (query, field) in [
        ("status=open", "status"),
        ("plan=gold", "plan"),
        ("page=x", "page"),
        ("limit=1.5", "limit"),
    ] {
        assert_eq!(root.get(&format!("/api/admin/accounts?{query}")).invalid(), [field]);
    }
}

fn wait_until_refused(what: &str, request: impl Fn() -> Request) {
    until(what, || request().send().status == 401);
}

#[test]
fn suspension_takes_effect_on_every_server() {
    let server = Server::new();
    let (root, ana, bia) = (server.root(), server.owner(), server.owner());
    let key = api_keys::create_key(&ana);
    let sibling = server.sibling();
    let act = |action: &str| {
        root.post(
            &format!("/api/admin/accounts/{}/action", ana.account),
            json!({ "action": action }),
        )
    };
    let read_here = |token: &str| server.get("/api/contacts").bearer(token);
    let read_on_sibling = |token: &str| sibling.request("GET", "/api/contacts").bearer(token);
    for token in [&ana.token, &key] {
        read_here(token).send().ok();
        read_on_sibling(token).send().ok();
    }
    let message = act("suspend").ok();
    assert!(message["message"].is_string() && message.as_object().unwrap().len() == 1);
    // The server that suspends the account evicts its cached memberships and keys immediately.
    read_here(&ana.token).send().refused(401, "AUTH_ERROR");
    read_here(&key).send().refused(401, "AUTH_ERROR");
    wait_until_refused("a session on the other server", || read_on_sibling(&ana.token));
    wait_until_refused("an API key on the other server", || read_on_sibling(&key));
    bia.get("/api/contacts").ok();
    act("reactivate").ok();
    until("the account is active again", || {
        read_on_sibling(&ana.token).send().status == 200
    });
    read_here(&key).send().ok();

    let logs = ana.get("/api/audit-logs?entityType=admin_account_action").ok();
    let entries = logs["logs"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    for (log, action) in entries.iter().zip(["reactivate", "suspend"]) {
        assert_eq!(
            (&log["action"], &log["entity_id"]),
            (&json!("update"), &json!(ana.account))
        );
        assert_eq!(
            (&log["user_id"], &log["changes"]),
            (&json!(root.id), &json!({ "action": action }))
        );
    }
    assert_eq!(act("close").invalid(), ["action"]);
    assert_eq!(act("change_plan").invalid(), ["plan"]);
    let unknown = root.post(
        &format!("/api/admin/accounts/{}/action", Uuid::now_v7()),
        json!({ "action": "suspend" }),
    );
    unknown.refused(404, "NOT_FOUND");
}

#[test]
fn run_of_suspended_account_stops_until_reactivated() {
    let server = Server::new();
    let (root, ana) = (server.root(), server.owner());
    let profile = ana.profile();
    ana.put(
        &format!("/api/whatsapp/profiles/{profile}"),
        json!({ "messages_per_second": 10 }),
    )
    .ok();
    ana.contacts(40);
    let campaign = ana.plain_campaign();
    ana.send(&campaign);
    until("some messages were sent", || calls(&server).len() >= 4);
    let act = |action: &str| {
        let path = format!("/api/admin/accounts/{}/action", ana.account);
        root.post(&path, json!({ "action": action })).ok()
    };
    act("suspend");
    // The worker releases the run after its calls in flight have ended.
    until("no worker holds the run", || {
        server.db.count("FROM campaign_queue WHERE leased_until > now()") == 0
    });
    let sent = calls(&server).len();
    assert!(sent < 40, "{sent}");
    assert_eq!(server.db.text("SELECT status FROM campaigns"), "sending");
    act("reactivate");
    assert_eq!(final_status(&ana, &campaign), "completed");
    let calls = calls(&server);
    assert_eq!(
        (calls.len(), calls.values().max()),
        (40, Some(&1)),
        "one call per contact"
    );
    assert_stats_add_up(&wait_for_stat(&ana, &campaign, "read", 40));
}

#[test]
fn plan_grant_changes_plan_and_keeps_price() {
    let server = Server::new();
    let (root, ana, bia) = (server.root(), server.owner(), server.owner());
    subscribe(&ana, card_order("4111 1111 1111 1111", "123")).created();
    wait_for_status(&ana, "active");
    let gateway_calls = server.payment.ledger().len();
    let grant = |account: &str, plan: &str| {
        let body = json!({ "action": "change_plan", "plan": plan });
        root.post(&format!("/api/admin/accounts/{account}/action"), body)
    };
    grant(&ana.account, "scale").ok();
    grant(&bia.account, "growth").ok();
    let subscription = ana.get("/api/billing/subscription").ok()["subscription"].take();
    assert_eq!(
        (&subscription["plan"], &subscription["value"]),
        (&json!("scale"), &json!(9_700))
    );
    assert_eq!((plan(&ana), plan(&bia)), ("scale".into(), "growth".into()));
    assert_eq!(
        server.payment.ledger().len(),
        gateway_calls,
        "a grant does not call the gateway"
    );
    assert_eq!(grant(&ana.account, "gold").invalid(), ["plan"]);
    assert_eq!(plan(&ana), "scale");
    let logs = ana.get("/api/audit-logs?entityType=admin_account_action").ok();
    let change = json!({ "action": "change_plan", "plan": { "from": "starter", "to": "scale" } });
    assert_eq!((&logs["logs"][0]["changes"], &logs["total"]), (&change, &json!(1)));

    // Revenue counts what accounts pay, not what was granted.
    let stats = root.get("/api/admin/stats").ok();
    assert_eq!(
        (&stats["mrr"], &stats["arr"], &stats["payingAccounts"]),
        (&json!(9_700), &json!(116_400), &json!(1))
    );
    assert_eq!(
        (&stats["totalAccounts"], &stats["totalUsers"], &stats["churnRate"]),
        (&json!(2), &json!(3), &json!(0))
    );
    let revenue = json!({ "total_mrr": 9_700, "total_arr": 116_400, "paying_accounts": 1, "churn_rate_30d": 0 });
    assert_eq!(root.get("/api/admin/revenue").ok(), revenue);
    let row = root.get("/api/admin/accounts?search=loja&plan=scale").ok();
    assert_eq!((&row["data"][0]["mrr"], &row["total"]), (&json!(9_700), &json!(1)));
}

#[test]
fn revenue_and_churn_series_have_one_row_per_day() {
    let server = Server::new();
    let (root, ana) = (server.root(), server.owner());
    let today = time::OffsetDateTime::now_utc().date().to_string();
    subscribe(&ana, card_order("4111 1111 1111 1111", "123")).created();
    wait_for_status(&ana, "active");
    let series = |path: &str| root.get(&format!("/api/admin/{path}")).ok().as_array().unwrap().clone();
    until("the payment is recorded", || {
        server.db.count("FROM billing_history WHERE paid_at IS NOT NULL") == 1
    });
    for (query, rows) in [
        ("", 30),
        ("?days=7", 7),
        ("?days=0", 1),
        ("?days=-3", 1),
        ("?days=9999", 365),
    ] {
        for path in ["revenue/daily", "churn"] {
            let days = series(&format!("{path}{query}"));
            assert_eq!(
                (days.len(), &days[rows - 1]["date"]),
                (rows, &json!(today)),
                "{path}{query}"
            );
        }
    }
    let last = json!({ "date": today, "revenue": 9_700, "payments": 1 });
    assert_eq!(series("revenue/daily")[29], last);
    ana.post("/api/billing/cancel", json!({})).ok();
    let churned = json!({ "date": today, "cancelled": 1, "churned_mrr": 9_700, "active_start": 0, "churn_rate": 0 });
    assert_eq!(series("churn?days=1"), [churned]);
    server
        .db
        .run("UPDATE subscriptions SET created_at = now() - interval '40 days'");
    let churned = json!({ "date": today, "cancelled": 1, "churned_mrr": 9_700, "active_start": 1, "churn_rate": 100 });
    assert_eq!(series("churn?days=2")[1], churned);
    assert_eq!(root.get("/api/admin/stats").ok()["churnRate"], 100);
    assert_eq!(root.get("/api/admin/churn?days=x").invalid(), ["days"]);
    assert_eq!(root.get("/api/admin/revenue/daily?days=1.5").invalid(), ["days"]);
}
