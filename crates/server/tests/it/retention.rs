//! Retention: terms, what a run removes, and archives of sends.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::harness::client::Reply;
use crate::harness::process::command;
use crate::harness::runs::{final_status, status, statuses, without_statuses};
use crate::harness::users::{User, now};
use crate::harness::{Options, Server, eventually, text, until};

pub const NUMBER: &str = "106500000071";

const PHONE: &str = "+5511961234567";

const DAY: u64 = 24 * 60 * 60;

/// The tables of sums, which stay as they are.
const SUMS: [&str; 9] = [
    "campaign_counters",
    "message_usage",
    "cost_rollups",
    "message_rollups",
    "metric_rollups",
    "metrics",
    "order_rollups",
    "product_rollups",
    "contact_rfm",
];

fn get(user: &User<'_>) -> Value {
    user.get("/api/retention").ok()
}

pub fn put(user: &User<'_>, terms: Value) -> Value {
    user.put("/api/retention", terms).ok()
}

/// Lets the account's terms take effect, and waits for a run that ends afterwards.
#[track_caller]
pub fn run_now(user: &User<'_>) -> Value {
    user.server.db.run(&format!(
        "UPDATE retention_settings SET next_run_at = now(), last_run_at = NULL,
           terms = (SELECT jsonb_object_agg(k, v || '{{\"effective_at\": null}}') FROM jsonb_each(terms) t (k, v))
         WHERE account_id = '{}'",
        user.account
    ));
    eventually("the run ends", || {
        Some(get(user)).filter(|state| !state["last_run_at"].is_null())
    })
}

pub fn verify(server: &Server) -> bool {
    let output = command(&["rollups", "verify"], &server.environment()).output().unwrap();
    output.status.success()
}

fn sums(server: &Server) -> BTreeMap<&'static str, String> {
    let rows = |table: &&'static str| {
        let rows = format!("SELECT string_agg(t::text, '|' ORDER BY t::text) FROM {table} t");
        (*table, server.db.text(&rows))
    };
    SUMS.iter().map(rows).collect()
}

/// A campaign to so many contacts that ended 40 days ago.
pub fn ended_campaign(user: &User<'_>, contacts: usize) -> String {
    user.profile_at(NUMBER);
    user.contacts(contacts);
    let id = user.plain_campaign();
    user.send(&id);
    final_status(user, &id);
    age(user.server, &id);
    id
}

fn age(server: &Server, campaign: &str) {
    server.db.run(&format!(
        "UPDATE campaigns SET completed_at = now() - interval '40 days' WHERE id = '{campaign}'"
    ));
}

pub fn archive(user: &User<'_>, campaign: &str) -> Reply {
    user.get(&format!("/api/campaigns/{campaign}/archive"))
}

/// The lines of a compressed file.
pub fn lines(file: &[u8]) -> Vec<Value> {
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn terms_are_partial_bounded_and_can_be_taken_back() {
    let server = Server::new();
    let ana = server.owner();
    let state = get(&ana);
    for kind in [
        "campaign_sends",
        "messages",
        "media",
        "metric_events",
        "orders",
        "notifications",
        "audit",
    ] {
        assert_eq!(state[format!("{kind}_days")], Value::Null);
        assert_eq!(state["would_remove"][kind], 0);
    }
    assert_eq!(
        state["bounds"],
        json!({ "min_days": 30, "max_days": 3650, "audit_min_days": 365, "force_days": null })
    );
    assert_eq!(
        (&state["last_run_at"], &state["next_run_at"]),
        (&Value::Null, &Value::Null)
    );

    for (body, field) in [
        (json!({ "messages_days": 29 }), "messages_days"),
        (json!({ "orders_days": 3651 }), "orders_days"),
        (json!({ "audit_days": 364 }), "audit_days"),
        (json!({ "media_days": -1 }), "media_days"),
        (json!({ "media_days": 30.5 }), "media_days"),
        (json!({ "media_days": "30" }), "media_days"),
    ] {
        assert_eq!(ana.put("/api/retention", body).invalid(), [field]);
    }
    let set = put(&ana, json!({ "messages_days": 90, "audit_days": 400 }));
    assert_eq!((&set["messages_days"], &set["audit_days"]), (&json!(90), &json!(400)));
    let changed = put(&ana, json!({ "audit_days": 500, "faxes_days": 3 }));
    assert_eq!(
        (&changed["messages_days"], &changed["audit_days"]),
        (&json!(90), &json!(500))
    );
    assert!(
        text(&changed["takes_effect_at"]) > text(&state_time(DAY - 60)),
        "{changed}"
    );
    // Soon a run counts, and says when the next one is.
    let counted = eventually("a run", || {
        Some(get(&ana)).filter(|state| !state["last_run_at"].is_null())
    });
    assert!(!counted["next_run_at"].is_null());

    let back = put(&ana, json!({ "messages_days": null, "audit_days": null }));
    assert_eq!(back["takes_effect_at"], Value::Null);
    until("the last run ends", || get(&ana)["next_run_at"].is_null());
    server.db.wait_for_outbox();
    let warnings = ana.get("/api/notifications?limit=100").ok();
    let warnings: Vec<&Value> = warnings["data"].as_array().unwrap().iter().collect();
    let shorter: Vec<&&Value> = warnings.iter().filter(|found| found["type"] == "warning").collect();
    assert_eq!(shorter.len(), 2, "{warnings:?}");
    assert_eq!(
        shorter[1]["data"]["terms"],
        json!({ "messages_days": 90, "audit_days": 400 })
    );
    let entries = ana.get("/api/audit-logs?entity_type=retention").ok();
    assert_eq!(entries["logs"].as_array().map_or(0, Vec::len), 3, "{entries}");
}

#[test]
fn members_and_viewers_read_terms_and_do_not_change_them() {
    let server = Server::new();
    let ana = server.owner();
    for role in ["member", "viewer"] {
        let user = server.member(&ana.account, role);
        get(&user);
        user.put("/api/retention", json!({ "messages_days": 90 }))
            .refused(401, "AUTH_ERROR");
    }
}

/// The API's format of the time so many seconds from now.
fn state_time(seconds: u64) -> Value {
    let at = time::OffsetDateTime::from_unix_timestamp(i64::try_from(now() + seconds).unwrap()).unwrap();
    json!(at.format(&time::format_description::well_known::Rfc3339).unwrap())
}

#[test]
fn concurrent_changes_of_two_terms_both_apply() {
    let server = Server::new();
    let ana = server.owner();
    for days in 100..110 {
        std::thread::scope(|scope| {
            for kind in ["orders_days", "media_days"] {
                let request = ana.request("PUT", "/api/retention").json(&json!({ kind: days }));
                scope.spawn(move || request.send().ok());
            }
        });
        let state = get(&ana);
        assert_eq!(
            (&state["orders_days"], &state["media_days"]),
            (&json!(days), &json!(days))
        );
    }
}

/// Rows of every kind, as old as 40 days, or 400 for audit entries, in sums that fit them.
fn fill_with_old_rows(user: &User<'_>) {
    let server = user.server;
    let account = &user.account;
    let at = "2026-01-01T12:00:00Z";
    user.post(
        "/api/events",
        json!({ "events": [
            { "metric_name": "visit", "contact_phone": PHONE, "source": "site", "value": 2, "occurred_at": at },
            { "metric_name": "visit", "contact_phone": PHONE, "source": "site", "value": 3 }] }),
    )
    .expect(200);
    let order = |id: &str| {
        json!({ "external_id": id, "platform": "loja", "status": "paid", "total": 10, "placed_at": at, "paid_at": at,
            "items": [{ "product_id": "p", "name": "Tenis", "quantity": 1, "price": 10 }] })
    };
    user.post("/api/orders", json!({ "orders": [order("1"), order("2")] }))
        .expect(200);
    user.post("/api/tags", json!({ "name": "t" })).created();
    server.db.wait_for_outbox();
    let old = "first_id(now() - interval '40 days')";
    server.db.run(&format!(
        "UPDATE order_items SET order_id = {old} WHERE account_id = '{account}'
           AND order_id = (SELECT id FROM orders WHERE account_id = '{account}' AND external_id = '1');
         UPDATE orders SET id = {old} WHERE account_id = '{account}' AND external_id = '1';
         INSERT INTO notifications (account_id, id, type, title, message, created_at)
           VALUES ('{account}', {old}, 'info', 'old', 'old', now() - interval '40 days');
         INSERT INTO audit_logs (account_id, id, action, entity_type, created_at)
           VALUES ('{account}', gen_random_uuid(), 'create', 'tag', now() - interval '400 days')"
    ));
    let rebuilt = command(&["rollups", "rebuild"], &server.environment())
        .status()
        .unwrap();
    assert!(rebuilt.success());
}

fn counts(server: &Server, account: &str) -> [i64; 6] {
    let tables = [
        "metric_events",
        "orders",
        "order_items",
        "notifications WHERE title = 'old' AND true",
        "audit_logs",
        "messages",
    ];
    tables.map(|table| {
        let condition = if table.contains("WHERE") { "AND" } else { "WHERE" };
        server
            .db
            .count(&format!("FROM {table} {condition} account_id = '{account}'"))
    })
}

#[test]
fn run_removes_what_is_over_its_term_and_keeps_sums() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    for user in [&ana, &bia] {
        fill_with_old_rows(user);
    }
    let before = counts(&server, &ana.account);
    let [events, orders, items, notifications, audits, _] = before;
    assert_eq!((events, orders, items, notifications), (2, 2, 2, 1));
    let all = json!({ "campaign_sends_days": 30, "messages_days": 30, "media_days": 30, "metric_events_days": 30,
        "orders_days": 30, "notifications_days": 30, "audit_days": 365 });
    put(&ana, all);
    // A day before anything leaves, the run counts what will.
    let counted = eventually("a count", || {
        Some(get(&ana)).filter(|state| !state["last_run_at"].is_null())
    });
    let expected = json!({ "campaign_sends": 0, "messages": 0, "media": 0, "metric_events": 1, "orders": 1,
        "notifications": 1, "audit": 1 });
    assert_eq!(counted["would_remove"], expected);
    assert_eq!(counts(&server, &ana.account)[..4], before[..4]);
    assert!(verify(&server));
    let (sums_before, of_bia) = (sums(&server), counts(&server, &bia.account));

    let state = run_now(&ana);
    let [events, orders, items, notifications, audits_now, _] = counts(&server, &ana.account);
    assert_eq!((events, orders, items, notifications), (1, 1, 1, 0));
    // The PUT is an entry, too.
    assert_eq!(audits_now, audits);
    assert_eq!(state["would_remove"]["orders"], 0);
    assert_eq!(sums(&server), sums_before);
    assert!(verify(&server));
    // With everything null nothing is removed.
    assert_eq!(counts(&server, &bia.account), of_bia);
    // An order and an event that are reported again after they left change nothing.
    let order = json!({ "external_id": "1", "platform": "loja", "status": "paid", "total": 10,
        "placed_at": "2026-01-01T12:00:00Z", "paid_at": "2026-01-01T12:00:00Z", "items": [] });
    ana.post("/api/orders", json!({ "orders": [order] })).expect(200);
    assert_eq!(sums(&server), sums_before);
    // The total of the audit log is that of its rows.
    let total = ana.get("/api/audit-logs").ok();
    assert_eq!(total["total"], json!(audits_now), "{total}");
}

#[test]
fn forced_term_holds_for_accounts_without_their_own() {
    let server = Server::start(Options::default().with("RETENTION_FORCE_DAYS", "30"));
    let (ana, bia) = (server.owner(), server.owner());
    put(&bia, json!({ "metric_events_days": 300, "notifications_days": 300 }));
    for user in [&ana, &bia] {
        server.db.run(&format!(
            "INSERT INTO notifications (account_id, id, type, title, message, created_at)
               VALUES ('{}', first_id(now() - interval '40 days'), 'info', 'old', 'old', now() - interval '40 days')",
            user.account
        ));
    }
    server.db.run("UPDATE retention_settings SET next_run_at = now()");
    let old = |user: &User<'_>| counts(&server, &user.account)[3];
    until("the forced term removes", || old(&ana) == 0);
    eventually("a run", || {
        Some(get(&bia)).filter(|state| !state["last_run_at"].is_null())
    });
    assert_eq!(old(&bia), 1);
    assert_eq!(get(&ana)["bounds"]["force_days"], 30);
}

#[test]
fn ended_campaign_becomes_a_file_and_its_sends_leave() {
    let server = Server::start(without_statuses());
    let (ana, bia) = (server.owner(), server.owner());
    let id = ended_campaign(&ana, 25);
    archive(&ana, &id).refused(404, "NOT_FOUND");
    let (sends, stats) = (ana.sends(&id), ana.stats(&id));
    let wamid = text(&sends[0]["wa_message_id"]);
    assert!(verify(&server));
    let before = sums(&server);
    put(&ana, json!({ "campaign_sends_days": 30 }));
    let counted = eventually("a count", || {
        Some(get(&ana)).filter(|state| !state["last_run_at"].is_null())
    });
    assert_eq!(counted["would_remove"]["campaign_sends"], 25);
    assert_eq!(server.db.count("FROM campaign_sends"), 25);
    run_now(&ana);
    assert_eq!(server.db.count("FROM campaign_sends"), 0);
    assert_eq!(server.db.count("FROM campaign_send_times"), 0);

    let campaign = ana.get(&format!("/api/campaigns/{id}")).ok();
    assert!(campaign["archived_at"].is_string(), "{campaign}");
    let page = ana.get(&format!("/api/campaigns/{id}/sends?page=3")).expect(200);
    let expected = json!({ "data": [], "total": 0, "page": 1, "totalPages": 0,
        "archived": { "at": campaign["archived_at"], "sends": 25 } });
    assert_eq!(page, expected);
    assert_eq!(ana.stats(&id), stats);
    let refused = ana.post(&format!("/api/campaigns/{id}/retry-failed"), json!({}));
    assert_eq!(
        refused.refused(400, "VALIDATION_ERROR")["details"]["reason"],
        "archived"
    );
    assert_archive(&ana, &bia, &id, &sends);

    // A status update that comes later changes nothing, neither do the next runs.
    server.callback(&statuses(
        NUMBER,
        &[status(&wamid, "delivered", sends[0]["id"].as_str())],
    ));
    until("the callback is applied", || {
        server.db.count("FROM whatsapp_callbacks WHERE attempts = 0") == 0
    });
    run_now(&ana);
    assert_eq!(ana.stats(&id), stats);
    assert_eq!(sums(&server), before);
    assert!(verify(&server));
    assert_eq!(server.media.files().len(), 1);
}

/// The archive has a line for each send, with what the list of sends showed, and is served whole and in parts.
fn assert_archive(ana: &User<'_>, bia: &User<'_>, id: &str, sends: &[Value]) {
    let whole = archive(ana, id);
    assert_eq!(
        (whole.status, whole.header("content-type")),
        (200, Some("application/gzip"))
    );
    let etag = format!("\"{}\"", hex::encode(Sha256::digest(&whole.body)));
    assert_eq!(whole.header("etag"), Some(etag.as_str()));
    let archived = lines(&whole.body);
    assert_eq!(archived.len(), sends.len());
    for line in &archived {
        let send = sends.iter().find(|send| send["id"] == line["id"]).unwrap();
        for field in ["contact_id", "status", "sent_at", "error_code", "wa_message_id"] {
            assert_eq!(line[field], send[field], "{field}");
        }
        let fields = [
            "id",
            "contact_id",
            "status",
            "address_kind",
            "sent_at",
            "delivered_at",
            "read_at",
            "failed_at",
            "error_code",
            "wa_message_id",
            "category",
            "pricing_type",
            "amount",
            "currency",
        ];
        let found: BTreeSet<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, BTreeSet::from(fields));
        assert_eq!(line["address_kind"], "phone");
    }
    let path = format!("/api/campaigns/{id}/archive");
    let part = ana.request("GET", &path).header("Range", "bytes=4-9").send();
    assert_eq!((part.status, part.body.as_slice()), (206, &whole.body[4..10]));
    let range = format!("bytes 4-9/{}", whole.body.len());
    assert_eq!(part.header("content-range"), Some(range.as_str()));
    let same = ana.request("GET", &path).header("If-None-Match", &etag).send();
    assert_eq!((same.status, same.body.len()), (304, 0));
    let beyond = ana.request("GET", &path).header("Range", "bytes=999999-").send();
    assert_eq!(beyond.status, 416);
    let viewer = ana.server.member(&ana.account, "viewer");
    assert_eq!(archive(&viewer, id).body, whole.body);
    archive(bia, id).refused(404, "NOT_FOUND");
}

#[test]
fn counts_that_differ_keep_all_sends_and_are_notified() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = ended_campaign(&ana, 5);
    // The same total, by other statuses.
    server
        .db
        .run("UPDATE campaign_counter_slots SET sent = sent - 1, read = read + 1 WHERE slot = 0");
    put(&ana, json!({ "campaign_sends_days": 30 }));
    run_now(&ana);
    server.db.wait_for_outbox();
    assert_eq!(server.db.count("FROM campaign_sends"), 5);
    assert_eq!(server.media.files(), Vec::<String>::new());
    let campaign = ana.get(&format!("/api/campaigns/{id}")).ok();
    assert_eq!(campaign["archived_at"], Value::Null);
    let errors = || {
        let page = ana.get("/api/notifications?limit=100").ok();
        let all = page["data"].as_array().unwrap().clone();
        let errors = all.into_iter().filter(|found| found["type"] == "error");
        errors.collect::<Vec<_>>()
    };
    assert_eq!(errors().len(), 1);
    assert_eq!(errors()[0]["data"]["campaign_id"], json!(id));
    // The campaign is as before: its statuses still change, and a later attempt succeeds without another notification.
    server.db.run("UPDATE campaign_archives SET retry_at = now()");
    run_now(&ana);
    server.db.wait_for_outbox();
    assert_eq!(errors().len(), 1);
    server.db.run(
        "UPDATE campaign_counter_slots SET sent = sent + 1, read = read - 1 WHERE slot = 0;
         UPDATE campaign_archives SET retry_at = now()",
    );
    run_now(&ana);
    assert_eq!(lines(&archive(&ana, &id).body).len(), 5);
    assert_eq!(server.db.count("FROM campaign_sends"), 0);
}

/// The worker loses its run between two pages: the campaign is as before, and the file is deleted.
#[test]
fn term_taken_back_during_an_archive_leaves_the_campaign_as_it_was() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = ended_campaign(&ana, 3);
    let wamid = text(&ana.sends(&id)[0]["wa_message_id"]);
    put(&ana, json!({ "campaign_sends_days": 30 }));
    // Each renewal of the lease takes half a second, so the change meets an archive that is being written.
    server.db.run(
        "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END';
         CREATE TRIGGER pause BEFORE UPDATE ON retention_settings FOR EACH ROW
           WHEN (NEW.leased_until > OLD.leased_until) EXECUTE FUNCTION pause();
         UPDATE retention_settings SET next_run_at = now(), last_run_at = NULL,
           terms = (SELECT jsonb_object_agg(k, v || '{\"effective_at\": null}') FROM jsonb_each(terms) t (k, v))",
    );
    let closed = "FROM campaigns WHERE archiving_at IS NOT NULL";
    until("the campaign is closed", || server.db.count(closed) == 1);
    put(&ana, json!({ "campaign_sends_days": null }));
    until("the campaign is open again", || server.db.count(closed) == 0);
    server.db.run("DROP TRIGGER pause ON retention_settings");
    assert_eq!(server.db.count("FROM campaign_sends"), 3);
    until("the file is deleted", || server.media.files().is_empty());
    assert_eq!(server.db.count("FROM campaigns WHERE archived_at IS NOT NULL"), 0);
    archive(&ana, &id).refused(404, "NOT_FOUND");
    let sends = ana.sends(&id);
    let read = status(&wamid, "read", sends[0]["id"].as_str());
    server.callback(&statuses(NUMBER, &[read]));
    until("the status is applied", || ana.stats(&id)["read"] == 1);
}

#[test]
fn without_a_file_store_no_send_leaves() {
    let server = Server::start(without_statuses().with("MEDIA_STORE_URL", ""));
    let ana = server.owner();
    ended_campaign(&ana, 3);
    put(&ana, json!({ "campaign_sends_days": 30 }));
    run_now(&ana);
    assert_eq!(server.db.count("FROM campaign_sends"), 3);
}

/// The ids of all sends in the table, and in verified files.
fn stored_sends(server: &Server) -> BTreeSet<String> {
    let rows = |sql: &str| {
        server
            .db
            .rows(sql)
            .into_iter()
            .filter_map(|row| row.into_iter().next().flatten())
    };
    let mut ids: BTreeSet<String> = rows("SELECT id::text FROM campaign_sends").collect();
    for file in
        rows("SELECT account_id || '/messages/' || file_key FROM campaign_archives WHERE verified_at IS NOT NULL")
    {
        let file = std::fs::read(server.media.path().join(file)).unwrap();
        ids.extend(lines(&file).iter().map(|line| text(&line["id"])));
    }
    ids
}

/// The process is killed while it archives, again and again. Each time every send is in the table or in a verified file.
#[test]
fn killed_worker_leaves_each_send_in_table_or_file() {
    const SENDS: usize = 3000;
    let server = Server::new();
    let ana = server.owner();
    // Without a number the run is simulated, which ends soon.
    ana.contacts(SENDS);
    server.db.run("UPDATE accounts SET plan = 'scale'");
    let ids: Vec<String> = (0..2).map(|_| ana.plain_campaign()).collect();
    for id in &ids {
        ana.send(id);
        final_status(&ana, id);
        age(&server, id);
    }
    let (all, before) = (stored_sends(&server), sums(&server));
    assert_eq!(all.len(), SENDS * 2);
    put(&ana, json!({ "campaign_sends_days": 30 }));
    server.db.run(
        "UPDATE retention_settings SET next_run_at = now(), last_run_at = NULL,
           terms = (SELECT jsonb_object_agg(k, v || '{\"effective_at\": null}') FROM jsonb_each(terms) t (k, v))",
    );
    let mut kills = 0;
    for pause in (0..).map(|round: u64| 20 + round * 37 % 300) {
        std::thread::sleep(std::time::Duration::from_millis(pause));
        server.kill();
        kills += 1;
        assert_eq!(stored_sends(&server), all, "after {kills} kills");
        server
            .db
            .run("UPDATE retention_settings SET leased_until = now() WHERE leased_until > now()");
        server.run(&["serve"]);
        if server.db.count("FROM campaign_archives WHERE removed_at IS NOT NULL") == 2 || kills > 40 {
            break;
        }
    }
    until("both are archived", || {
        server.db.count("FROM campaign_archives WHERE removed_at IS NOT NULL") == 2
    });
    assert_eq!(server.db.count("FROM campaign_sends"), 0);
    assert_eq!(stored_sends(&server), all);
    assert_eq!(sums(&server), before);
    assert!(verify(&server));
    // No file of an attempt that was killed is left, but for what the local store wrote of it under another name.
    let files = server.media.files();
    let complete: Vec<&String> = files.iter().filter(|name| !name.contains('#')).collect();
    assert_eq!(complete.len(), 2, "{files:?}");
}

#[test]
fn removed_message_keeps_its_reference_for_ever() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let template = ana.approved("Oi", &[]);
    let body = |phone: &str| json!({ "to": { "phone": phone }, "template": { "id": template }, "client_reference": "order-1" });
    let made = ana.post("/api/messages", body("+5511961234567")).created();
    let path = format!("/api/messages/{}", text(&made["id"]));
    until("the message is sent", || ana.get(&path).ok()["status"] == "sent");
    let without_reference = json!({ "to": { "phone": "+5511961234567" }, "template": { "id": template } });
    ana.post("/api/messages", without_reference).created();
    server.db.run(
        "UPDATE direct_messages SET created_at = created_at - interval '40 days', send_at = send_at - interval '40 days'",
    );
    assert!(
        command(&["rollups", "rebuild"], &server.environment())
            .status()
            .unwrap()
            .success()
    );
    until("both have left", || {
        server.db.count("FROM direct_messages WHERE status = 'pending'") == 0
    });
    put(&ana, json!({ "messages_days": 30 }));
    run_now(&ana);
    assert_eq!(server.db.count("FROM direct_messages"), 0);
    ana.get(&path).refused(404, "NOT_FOUND");
    assert!(verify(&server));

    let again = ana.post("/api/messages", body("+5511961234567"));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let expected = json!({ "id": made["id"], "status": "sent", "client_reference": "order-1" });
    assert_eq!(again.ok(), expected);
    let other = ana
        .post("/api/messages", body("+5511961234568"))
        .refused(409, "CONFLICT");
    assert_eq!(other["details"]["id"], made["id"]);
    let batch = ana
        .post("/api/messages/batch", json!({ "messages": [body("+5511961234567")] }))
        .ok();
    assert_eq!(
        (&batch["duplicates"], &batch["results"][0]["id"]),
        (&json!(1), &made["id"])
    );
    assert_eq!(server.db.count("FROM direct_messages"), 0);
}

pub fn image_of(id: &str, media_id: &str, at: u64) -> Value {
    json!({ "object": "whatsapp_business_account", "entry": [{ "id": "100000000000001", "changes": [{
        "field": "messages", "value": { "metadata": { "phone_number_id": NUMBER },
        "contacts": [{ "wa_id": "5531988887777", "profile": { "name": "Ana" } }],
        "messages": [{ "from": "5531988887777", "id": id, "timestamp": at.to_string(), "type": "image",
            "image": { "id": media_id, "mime_type": "image/jpeg" } }] } }] }] })
}

/// An old and a new message with a file each. First only files have a term, then messages, too.
#[test]
fn file_leaves_before_its_message() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile_at(NUMBER);
    for (id, age) in [("wamid.old", 1), ("wamid.new", 0)] {
        let file = recado_simulators::whatsapp::FileSettings::of(id.as_bytes(), "image/jpeg");
        let media_id = server.whatsapp.add_file(file);
        assert_eq!(server.callback(&image_of(id, &media_id, now() - age * 60)).status, 200);
    }
    until("both files are stored", || server.media.files().len() == 2);
    until("both are ready", || {
        server.db.count("FROM message_media WHERE state = 'ready'") == 2
    });
    // WhatsApp gives no file of an old message, so the message ages here.
    server.db.run(
        "UPDATE message_media SET written_at = now() - interval '40 days' WHERE message_id =
           (SELECT id FROM messages WHERE wa_message_id = 'wamid.old');
         UPDATE messages SET created_at = now() - interval '40 days' WHERE wa_message_id = 'wamid.old'",
    );
    assert!(
        command(&["rollups", "rebuild"], &server.environment())
            .status()
            .unwrap()
            .success()
    );
    let before = sums(&server);
    let conversation = text(&ana.get("/api/conversations").ok()["data"][0]["id"]);
    let messages = || {
        let page = ana
            .get(&format!("/api/conversations/{conversation}/messages?limit=100"))
            .ok();
        page["data"].as_array().unwrap().clone()
    };
    put(&ana, json!({ "media_days": 30 }));
    let state = eventually("a count", || {
        Some(get(&ana)).filter(|state| !state["last_run_at"].is_null())
    });
    assert_eq!(state["would_remove"]["media"], 1);
    assert_eq!(server.media.files().len(), 2);
    run_now(&ana);
    assert_eq!(server.media.files().len(), 1);
    let shown = messages();
    let old = shown
        .iter()
        .find(|message| message["wa_message_id"] == "wamid.old")
        .unwrap();
    assert_eq!(old["media"][0]["state"], "expired");
    ana.get(&format!("/api/media/{}", text(&old["media"][0]["id"])))
        .refused(404, "NOT_FOUND");
    let new = shown
        .iter()
        .find(|message| message["wa_message_id"] == "wamid.new")
        .unwrap();
    assert_eq!(
        ana.get(&format!("/api/media/{}", text(&new["media"][0]["id"]))).text,
        "wamid.new"
    );

    put(&ana, json!({ "messages_days": 30 }));
    run_now(&ana);
    assert_eq!(messages().len(), 1);
    assert_eq!(server.db.count("FROM message_media"), 1);
    assert_eq!(sums(&server), before);
    assert!(verify(&server));
    // A file that left is not a lost one.
    let page = ana.get("/api/notifications?limit=100").ok();
    let lost = |found: &&Value| found["title"] == "Files of messages were lost";
    assert_eq!(page["data"].as_array().unwrap().iter().filter(lost).count(), 0);
}
