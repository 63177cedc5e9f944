//! The audit log: content, filters, pages and totals of `GET /api/audit-logs`, and when entries become visible.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::api_keys;
use crate::harness::client::Request;
use crate::harness::runs::without_statuses;
use crate::harness::users::User;
use crate::harness::{Options, Server, text};

#[track_caller]
fn read_log(user: &User<'_>, query: &str) -> Value {
    user.get(&format!("/api/audit-logs{query}")).ok()
}

fn log_entries(page: &Value) -> &Vec<Value> {
    page["logs"].as_array().unwrap()
}

/// Action, entity type and entity id of each entry, newest first.
fn actions(page: &Value) -> Vec<(String, String, Value)> {
    let action = |log: &Value| {
        (
            text(&log["action"]),
            text(&log["entity_type"]),
            log["entity_id"].clone(),
        )
    };
    log_entries(page).iter().map(action).collect()
}

/// Creates and deletes a template. Returns its id.
#[track_caller]
fn delete_new_template(user: &User<'_>, name: &str) -> String {
    let id = user.template(name, "Oi", &[]);
    user.delete(&format!("/api/templates/{id}")).no_content();
    id
}

/// Inserts audit entries without an operation.
fn insert_entries(user: &User<'_>, entity_type: &str, count: usize) {
    user.server.db.run(&format!(
        "INSERT INTO audit_logs (account_id, id, action, entity_type, created_at)
         SELECT '{}', gen_random_uuid(), 'export', '{entity_type}', '2026-03-01 12:00Z'::timestamptz - i * interval '1 second'
         FROM generate_series(1, {count}) i",
        user.account
    ));
}

/// Asserts that the page has exactly these entries, all by this user, with exactly the published fields.
#[track_caller]
fn assert_entries(user: &User<'_>, page: &Value, entries: &[(&str, &str, &str)]) {
    let expected: Vec<_> = entries
        .iter()
        .map(|(action, entity_type, id)| ((*action).to_owned(), (*entity_type).to_owned(), json!(id)))
        .collect();
    assert_eq!(actions(page), expected);
    assert_eq!(page["total"], entries.len());
    for log in log_entries(page) {
        assert_eq!(log["user_id"], json!(user.id), "{log}");
        assert_eq!(log["account_id"], json!(user.account), "{log}");
        assert_eq!(log["ip_address"], "127.0.0.1", "{log}");
        let fields: BTreeSet<&str> = log.as_object().unwrap().keys().map(String::as_str).collect();
        let published = [
            "id",
            "account_id",
            "user_id",
            "action",
            "entity_type",
            "entity_id",
            "changes",
            "ip_address",
            "created_at",
        ];
        assert_eq!(fields, BTreeSet::from(published), "{log}");
        let time = text(&log["created_at"]);
        assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    }
}

#[test]
fn audited_operations_write_one_complete_entry_each() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    assert_eq!(
        read_log(&ana, ""),
        json!({ "logs": [], "total": 0, "page": 1, "limit": 50 })
    );
    let profile = ana.profile();
    ana.contacts(2);
    let run = ana.plain_campaign();
    ana.execute(&run).ok();
    ana.delete(&format!("/api/campaigns/{run}")).no_content();
    let cancelled = ana.plain_campaign();
    server.db.run(&format!(
        "UPDATE campaigns SET status = 'scheduled', scheduled_at = now() + interval '1 hour' WHERE id = '{cancelled}'"
    ));
    ana.cancel(&cancelled).ok();
    let template = delete_new_template(&ana, "gone");
    let key = text(&api_keys::create_key_response(&ana, "CI")["id"]);
    ana.delete(&format!("/api/api-keys/{key}")).no_content();
    // Refused operations and operations that are not audited write no entry.
    ana.delete(&format!("/api/api-keys/{key}")).refused(404, "NOT_FOUND");
    ana.delete(&format!("/api/templates/{template}"))
        .refused(404, "NOT_FOUND");
    ana.cancel(&cancelled).refused(400, "VALIDATION_ERROR");
    ana.post("/api/api-keys", json!({ "name": "" })).invalid();
    ana.tag("vip");
    let page = read_log(&ana, "");
    assert_entries(
        &ana,
        &page,
        &[
            ("delete", "api_key", &key),
            ("create", "api_key", &key),
            ("delete", "message_template", &template),
            ("update", "campaign", &cancelled),
            ("create", "campaign", &cancelled),
            ("delete", "campaign", &run),
            ("update", "campaign", &run),
            ("create", "campaign", &run),
            ("create", "whatsapp_profile", &profile),
        ],
    );
    let changes: Vec<&Value> = log_entries(&page).iter().map(|log| &log["changes"]).collect();
    assert_eq!((changes[0], changes[1]), (&Value::Null, &json!({ "name": "CI" })));
    assert_eq!(changes[3], &json!({ "previousStatus": "scheduled" }));
    assert_eq!(changes[6]["sent"], 2);
}

#[test]
fn api_key_actions_are_audited_as_the_key_creator() {
    let server = Server::new();
    let bia = server.owner();
    let key = api_keys::create_key(&bia);
    let body = json!({ "name": "By key" });
    let campaign = server.post("/api/campaigns").bearer(&key).json(&body).send().created();
    let page = server
        .get("/api/audit-logs?action=create&entityType=campaign")
        .bearer(&key)
        .send()
        .ok();
    assert_entries(&bia, &page, &[("create", "campaign", &text(&campaign["id"]))]);
}

#[test]
fn audit_log_pages_are_newest_first_without_gaps() {
    let server = Server::new();
    let ana = server.owner();
    insert_entries(&ana, "old", 60);
    let ids: Vec<String> = (0..5)
        .map(|number| delete_new_template(&ana, &format!("t{number}")))
        .collect();
    let first = read_log(&ana, "");
    assert_eq!(
        (
            log_entries(&first).len(),
            &first["total"],
            &first["page"],
            &first["limit"]
        ),
        (50, &json!(65), &json!(1), &json!(50))
    );
    for (log, id) in log_entries(&first).iter().zip(ids.iter().rev()) {
        assert_eq!(&text(&log["entity_id"]), id);
    }
    let mut seen = BTreeSet::new();
    let mut times = Vec::new();
    for (number, count) in [(1, 20), (2, 20), (3, 20), (4, 5), (5, 0), (1_000_000, 0)] {
        let page = read_log(&ana, &format!("?limit=20&page={number}"));
        assert_eq!(
            (log_entries(&page).len(), &page["total"], &page["page"]),
            (count, &json!(65), &json!(number))
        );
        for log in log_entries(&page) {
            assert!(seen.insert(text(&log["id"])), "twice: {log}");
            times.push(text(&log["created_at"]));
        }
    }
    assert_eq!(seen.len(), 65);
    assert!(times.is_sorted_by(|newer, older| newer >= older), "{times:?}");
}

#[test]
fn audit_log_query_clamps_ranges_and_rejects_malformed() {
    let server = Server::new();
    let ana = server.owner();
    insert_entries(&ana, "old", 120);
    for (query, page, limit, count) in [
        ("?page=0", 1, 50, 50),
        ("?page=-1", 1, 50, 50),
        ("?page=&limit=", 1, 50, 50),
        ("?limit=0", 1, 1, 1),
        ("?limit=-7", 1, 1, 1),
        ("?limit=101", 1, 100, 100),
        ("?limit=100000000000000000000000", 1, 100, 100),
        ("?page=2&limit=100", 2, 100, 20),
        ("?page=99999999999999999999999", i64::MAX, 50, 0),
        ("?entityType=&action=&unknown=1", 1, 50, 50),
    ] {
        let list = read_log(&ana, query);
        assert_eq!(
            (&list["page"], &list["limit"], &list["total"]),
            (&json!(page), &json!(limit), &json!(120)),
            "{query}"
        );
        assert_eq!(log_entries(&list).len(), count, "{query}");
    }
    for (query, field) in [
        ("?page=1e18", "page"),
        ("?page=1.5", "page"),
        ("?page=one", "page"),
        ("?limit=abc", "limit"),
        ("?limit=%00", "limit"),
        ("?entityType=%00", "entityType"),
        ("?action=a%00", "action"),
    ] {
        assert_eq!(
            ana.get(&format!("/api/audit-logs{query}")).invalid(),
            [field],
            "{query}"
        );
    }
}

#[test]
fn audit_log_filters_apply_to_entries_and_total() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    for user in [&ana, &bia] {
        delete_new_template(user, "t");
        let campaign = user.campaign(json!({ "name": "C" }));
        user.delete(&format!("/api/campaigns/{campaign}")).no_content();
        user.campaign(json!({ "name": "D" }));
        insert_entries(user, "report", 3);
    }
    for (query, total) in [
        ("", 7),
        ("?entityType=campaign", 3),
        ("?action=delete", 2),
        ("?action=delete&entityType=campaign", 1),
        ("?entityType=report&limit=1", 3),
        ("?action=login", 0),
        ("?entityType=nothing", 0),
        ("?action=DELETE", 0),
        ("?action='%20OR%20true--", 0),
        ("?entityType=%25", 0),
    ] {
        let page = read_log(&ana, query);
        assert_eq!(page["total"], total, "{query}");
        assert!(
            log_entries(&page)
                .iter()
                .all(|log| log["account_id"] == json!(ana.account)),
            "{page}"
        );
    }
    // Account parameters in the query are ignored.
    let foreign_query = format!("?account_id={}&accountId={}", bia.account, bia.account);
    assert_eq!(read_log(&ana, &foreign_query)["total"], 7);
    let foreign_header = ana
        .request("GET", "/api/audit-logs")
        .header("X-Account-Id", &bia.account);
    foreign_header.send().refused(401, "AUTH_ERROR");
}

#[test]
fn audit_log_total_matches_stored_entries() {
    let server = Server::new();
    let ana = server.owner();
    insert_entries(&ana, "bulk", 2_000);
    for number in 0..10 {
        delete_new_template(&ana, &format!("t{number}"));
        assert_eq!(read_log(&ana, "?limit=1")["total"], 2_001 + number);
    }
    // The total of a large log comes from `audit_counts`, not from counting its rows.
    server.db.run(&format!(
        "INSERT INTO audit_logs (account_id, id, action, entity_type)
           SELECT '{0}', gen_random_uuid(), 'export', 'large' FROM generate_series(1, 100000);
         INSERT INTO audit_counts
           VALUES ('{0}', date_trunc('month', now() AT TIME ZONE 'UTC'), 'large', 'export', 100000)",
        ana.account
    ));
    assert_eq!(
        read_log(&ana, "?entityType=large&page=1000&limit=100")["total"],
        100_000
    );
    delete_new_template(&ana, "last");
    assert_eq!(read_log(&ana, "?entityType=message_template")["total"], 11);
}

/// Asserts that the next GET after each response shows the entry of that operation.
fn assert_entries_visible_immediately(server: &Server, get: impl Fn(&str) -> Request) {
    for _ in 0..2 {
        let ana = server.owner();
        for round in 1..=25 {
            let id = delete_new_template(&ana, &format!("t{round}"));
            let page = get("/api/audit-logs?limit=1").bearer(&ana.token).send().ok();
            assert_eq!(page["total"], round);
            assert_eq!(
                actions(&page),
                [("delete".to_owned(), "message_template".to_owned(), json!(id))]
            );
        }
    }
    assert_eq!(
        server.db.count("FROM audit_logs"),
        server.db.count("FROM (SELECT DISTINCT entity_id FROM audit_logs) once")
    );
}

#[test]
fn audit_entry_is_visible_right_after_response() {
    let server = Server::new();
    assert_entries_visible_immediately(&server, |path| server.get(path));
}

#[test]
fn audit_entry_is_visible_on_server_without_workers() {
    let server = Server::new();
    let sibling = server.sibling_with_args(&["serve", "--no-workers"]);
    assert_entries_visible_immediately(&server, |path| sibling.request("GET", path));
}

#[test]
fn audit_entry_is_visible_without_any_relay() {
    let options = Options {
        args: vec!["serve", "--no-workers"],
        ..Options::default()
    };
    let server = Server::start(options);
    assert_entries_visible_immediately(&server, |path| server.get(path));
}

#[test]
fn audit_log_reads_are_limited_to_thirty_a_minute() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let viewer = server.member(&ana.account, "viewer");
    for count in 1..=30 {
        let reader = if count % 2 == 0 { &ana } else { &viewer };
        let reply = reader.get("/api/audit-logs");
        assert_eq!(reply.header("x-ratelimit-limit"), Some("30"));
        assert_eq!(
            reply.header("x-ratelimit-remaining"),
            Some((30 - count).to_string().as_str())
        );
        assert_eq!(reply.header("retry-after"), None);
        reply.ok();
    }
    let refused = ana.get("/api/audit-logs?page=junk");
    for (header, value) in [("x-ratelimit-limit", Some("30")), ("x-ratelimit-remaining", Some("0"))] {
        assert_eq!(refused.header(header), value);
    }
    let reset: i64 = refused.header("x-ratelimit-reset").unwrap().parse().unwrap();
    let retry: i64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(
        reset > 1_700_000_000_000 && (1..=60).contains(&retry),
        "{reset} {retry}"
    );
    refused.refused(429, "RATE_LIMIT");
    read_log(&bia, "");
    server.get("/api/audit-logs").send().refused(401, "AUTH_ERROR");
    let stranger = server
        .request("GET", "/api/audit-logs")
        .bearer(&server.stranger().token);
    stranger
        .header("X-Account-Id", &Uuid::now_v7().to_string())
        .send()
        .refused(401, "AUTH_ERROR");
}
