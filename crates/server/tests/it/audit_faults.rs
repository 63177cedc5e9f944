//! The audit table renamed, locked or rejecting inserts, and servers that stop: no operation fails, no entry is lost.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::users::User;
use crate::harness::{Server, shortest, until};

/// The longest that a failing audit table may delay an operation. Compares the shortest of many: a busy machine delays
/// some of them.
const MAX_DELAY: Duration = Duration::from_millis(50);

const OPERATIONS: i64 = 12;

/// Templates to delete and a campaign to execute.
struct Fixture {
    templates: Vec<String>,
    campaign: String,
}

fn templates(ana: &User<'_>) -> Vec<String> {
    let names = (0..OPERATIONS).map(|number| format!("t{number}"));
    names.map(|name| ana.template(&name, "Oi", &[])).collect()
}

/// Deletes each template and creates a campaign. Returns the shortest times of both.
fn time_operations(ana: &User<'_>, templates: &[String]) -> [Duration; 2] {
    let (mut deletes, mut creates) = (Vec::new(), Vec::new());
    for template in templates {
        measure(&mut deletes, || {
            ana.delete(&format!("/api/templates/{template}")).no_content()
        });
        let created = measure(&mut creates, || {
            ana.post("/api/campaigns", json!({ "name": "C" })).created()
        });
        assert_eq!(created["status"], "draft");
    }
    [shortest(deletes), shortest(creates)]
}

fn create_fixture(ana: &User<'_>) -> Fixture {
    ana.contacts(3);
    let fixture = Fixture {
        templates: templates(ana),
        campaign: ana.plain_campaign(),
    };
    ana.server.db.wait_for_outbox();
    fixture
}

fn measure<T>(times: &mut Vec<Duration>, operation: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = operation();
    times.push(began.elapsed());
    result
}

/// Asserts that every operation succeeds, about as fast as usual, while reads of the audit log fail.
fn run_operations(server: &Server, ana: &User<'_>, fixture: &Fixture, usual: [Duration; 2]) {
    let reads: Vec<_> = (0..6)
        .map(|_| {
            let read = server.get("/api/audit-logs").bearer(&ana.token);
            std::thread::spawn(move || read.send())
        })
        .collect();
    let times = time_operations(ana, &fixture.templates);
    for (time, usual) in times.into_iter().zip(usual) {
        assert!(time < usual + MAX_DELAY, "{time:?}, usually {usual:?}");
    }
    let report = ana.execute(&fixture.campaign).ok();
    assert_eq!((&report["sent"], &report["status"]), (&json!(3), &json!("sent")));
    for read in reads {
        let reply = read.join().unwrap();
        assert!([500, 503].contains(&reply.status), "{} {}", reply.status, reply.text);
        assert!(!reply.text.contains("audit_logs"), "{}", reply.text);
    }
}

/// Asserts that the log has exactly one entry for each operation of `run_operations`.
fn assert_complete(server: &Server, ana: &User<'_>) {
    let count = |filter: &str| {
        server.db.count(&format!(
            "FROM audit_logs WHERE user_id = '{}' AND ip_address = '127.0.0.1' AND {filter}",
            ana.id
        ))
    };
    assert_eq!(
        count("action = 'delete' AND entity_type = 'message_template'"),
        OPERATIONS
    );
    assert_eq!(count("action = 'create' AND entity_type = 'campaign'"), OPERATIONS + 1);
    assert_eq!(count("action = 'update' AND entity_type = 'campaign'"), 1);
    let each = "FROM (SELECT DISTINCT action, entity_type, entity_id FROM audit_logs) each";
    assert_eq!(server.db.count(each), server.db.count("FROM audit_logs"));
    assert_eq!(
        server.db.text(&format!(
            "SELECT sum(n) FROM audit_counts WHERE account_id = '{}'",
            ana.account
        )),
        (2 * OPERATIONS + 2).to_string()
    );
}

fn test_unavailable_log(break_log: &str, restore_log: &str) {
    let server = Server::new();
    let ana = server.owner();
    let fixture = create_fixture(&ana);
    let bia = server.owner();
    let usual = time_operations(&bia, &templates(&bia));
    server.db.wait_for_outbox();
    server.db.run(break_log);
    run_operations(&server, &ana, &fixture, usual);
    until("the run is notified", || server.db.count("FROM notifications") == 1);
    assert!(
        server.db.count("FROM outbox_events") >= 2 * OPERATIONS,
        "the entries wait in the outbox"
    );
    // The relay fails more than once.
    until("the relay has retried", || {
        server.log().matches("an iteration failed").count() >= 3
    });
    server.db.run(restore_log);
    server.db.wait_for_outbox();
    assert_complete(&server, &ana);
    let page = ana.get("/api/audit-logs").ok();
    assert_eq!(page["total"], 2 * OPERATIONS + 2);
}

#[test]
fn renamed_audit_table_fails_no_operation_and_loses_no_entry() {
    test_unavailable_log(
        "ALTER TABLE audit_logs RENAME TO audit_logs_away",
        "ALTER TABLE audit_logs_away RENAME TO audit_logs",
    );
}

#[test]
fn locked_audit_table_fails_no_operation_and_loses_no_entry() {
    test_unavailable_log("BEGIN; LOCK TABLE audit_logs IN ACCESS EXCLUSIVE MODE", "COMMIT");
}

#[test]
fn rejecting_audit_table_fails_no_operation_and_loses_no_entry() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let create = |user: &User<'_>| {
        let mut creates = Vec::new();
        for number in 0..OPERATIONS {
            measure(&mut creates, || user.campaign(json!({ "name": format!("C{number}") })));
        }
        shortest(creates)
    };
    let usual = create(&bia);
    server.db.wait_for_outbox();
    server
        .db
        .run("ALTER TABLE audit_logs ADD CONSTRAINT refused CHECK (false) NOT VALID");
    assert!(create(&ana) < usual + MAX_DELAY);
    until("each entry was rejected", || {
        server.db.count("FROM outbox_events WHERE retry_at IS NOT NULL") == OPERATIONS
    });
    // Reads succeed and show the stored entries.
    assert_eq!(ana.get("/api/audit-logs").ok()["total"], 0);
    server.db.run("ALTER TABLE audit_logs DROP CONSTRAINT refused");
    until("every entry is stored", || {
        server.db.count("FROM audit_logs WHERE action = 'create'") == 2 * OPERATIONS
    });
    assert_eq!(ana.get("/api/audit-logs").ok()["total"], OPERATIONS);
}

#[test]
fn server_killed_after_response_loses_no_audit_entry() {
    let server = Server::new();
    let ana = server.owner();
    for round in 1..=5 {
        let template = ana.template(&format!("t{round}"), "Oi", &[]);
        ana.campaign(json!({ "name": "C" }));
        ana.delete(&format!("/api/templates/{template}")).no_content();
        server.kill();
        server.run(&["serve"]);
        // The first read after the restart.
        let page = ana.get("/api/audit-logs?limit=1").ok();
        assert_eq!(
            (&page["total"], &page["logs"][0]["entity_id"]),
            (&json!(2 * round), &json!(template))
        );
    }
    assert_eq!(
        server
            .db
            .count("FROM (SELECT DISTINCT action, entity_id FROM audit_logs) each"),
        10
    );
}

#[test]
fn pending_audit_entries_survive_server_stop() {
    let server = Server::new();
    let ana = server.owner();
    server.db.run("ALTER TABLE audit_logs RENAME TO audit_logs_away");
    for _ in 0..5 {
        ana.campaign(json!({ "name": "C" }));
    }
    assert_eq!(server.stop(), Some(0));
    server.db.run("ALTER TABLE audit_logs_away RENAME TO audit_logs");
    server.run(&["serve"]);
    assert_eq!(ana.get("/api/audit-logs").ok()["total"], 5);
}
