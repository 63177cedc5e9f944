//! The audit log when something befalls it: no operation notices, and nothing is lost.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::users::User;
use crate::harness::{Server, shortest, until};

/// An operation that waits for the log waits two seconds, each time.
const LOCK_WAIT: Duration = Duration::from_millis(1900);

const OPERATIONS: i64 = 12;

/// Templates to be removed, and a campaign to be run.
struct Fixture {
    templates: Vec<String>,
    campaign: String,
}

fn fixture(ana: &User<'_>) -> Fixture {
    ana.contacts(3);
    let fixture = Fixture {
        templates: (0..OPERATIONS)
            .map(|number| ana.template(&format!("t{number}"), "Oi", &[]))
            .collect(),
        campaign: ana.plain_campaign(),
    };
    ana.server.db.settles();
    fixture
}

fn timed<T>(times: &mut Vec<Duration>, operation: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = operation();
    times.push(began.elapsed());
    done
}

/// Every operation answers as ever, also while others look at the log and wait in vain.
fn operate(server: &Server, ana: &User<'_>, fixture: &Fixture) {
    let looks: Vec<_> = (0..6)
        .map(|_| {
            let look = server.get("/api/audit-logs").bearer(&ana.token);
            std::thread::spawn(move || look.send())
        })
        .collect();
    let (mut deletes, mut creates) = (Vec::new(), Vec::new());
    for template in &fixture.templates {
        timed(&mut deletes, || {
            ana.delete(&format!("/api/templates/{template}")).gone()
        });
        let created = timed(&mut creates, || {
            ana.post("/api/campaigns", json!({ "name": "C" })).created()
        });
        assert_eq!(created["status"], "draft");
    }
    assert!(shortest(deletes) < LOCK_WAIT && shortest(creates) < LOCK_WAIT);
    let report = ana.execute(&fixture.campaign).ok();
    assert_eq!((&report["sent"], &report["status"]), (&json!(3), &json!("sent")));
    for look in looks {
        let reply = look.join().unwrap();
        assert!([500, 503].contains(&reply.status), "{} {}", reply.status, reply.text);
        assert!(!reply.text.contains("audit_logs"), "{}", reply.text);
    }
}

/// What `operate` leaves in the log, each once, of whoever did it.
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
        server.db.text("SELECT sum(n) FROM audit_counts"),
        (2 * OPERATIONS + 2).to_string()
    );
}

fn suffer(away: &str, back: &str) {
    let server = Server::new();
    let ana = server.owner();
    let fixture = fixture(&ana);
    server.db.run(away);
    operate(&server, &ana, &fixture);
    until("the run was told of", || server.db.count("FROM notifications") == 1);
    assert!(server.db.count("FROM outbox_events") >= 2 * OPERATIONS, "entries wait");
    // Long enough to fail more than once.
    until("the relay has tried", || {
        server.log().matches("a round failed").count() >= 3
    });
    server.db.run(back);
    server.db.settles();
    assert_complete(&server, &ana);
    let page = ana.get("/api/audit-logs").ok();
    assert_eq!(page["total"], 2 * OPERATIONS + 2);
}

#[test]
fn a_renamed_audit_log_stops_nothing_and_loses_nothing() {
    suffer(
        "ALTER TABLE audit_logs RENAME TO audit_logs_away",
        "ALTER TABLE audit_logs_away RENAME TO audit_logs",
    );
}

#[test]
fn a_locked_audit_log_stops_nothing_and_loses_nothing() {
    suffer("BEGIN; LOCK TABLE audit_logs IN ACCESS EXCLUSIVE MODE", "COMMIT");
}

#[test]
fn an_audit_log_that_refuses_entries_stops_nothing_and_loses_nothing() {
    let server = Server::new();
    let ana = server.owner();
    server
        .db
        .run("ALTER TABLE audit_logs ADD CONSTRAINT refused CHECK (false) NOT VALID");
    let mut creates = Vec::new();
    for number in 0..OPERATIONS {
        timed(&mut creates, || ana.campaign(json!({ "name": format!("C{number}") })));
    }
    assert!(shortest(creates) < LOCK_WAIT);
    until("each entry was refused", || {
        server.db.count("FROM outbox_events WHERE retry_at IS NOT NULL") == OPERATIONS
    });
    // Looking answers what is there.
    assert_eq!(ana.get("/api/audit-logs").ok()["total"], 0);
    server.db.run("ALTER TABLE audit_logs DROP CONSTRAINT refused");
    until("every entry is there", || {
        server.db.count("FROM audit_logs WHERE action = 'create'") == OPERATIONS
    });
    assert_eq!(ana.get("/api/audit-logs").ok()["total"], OPERATIONS);
}

#[test]
fn a_server_killed_after_its_answer_has_lost_no_entry() {
    let server = Server::new();
    let ana = server.owner();
    for round in 1..=5 {
        let template = ana.template(&format!("t{round}"), "Oi", &[]);
        ana.campaign(json!({ "name": "C" }));
        ana.delete(&format!("/api/templates/{template}")).gone();
        server.kill();
        server.run(&["serve"]);
        // The first look after the restart.
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
fn a_server_that_stops_leaves_what_waits_to_the_next_one() {
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
