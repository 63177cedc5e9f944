//! What operations leave behind: audit rows and notifications.

use serde_json::{Value, json};

use crate::harness::runs::silent;
use crate::harness::users::User;
use crate::harness::{Server, eventually};

/// Waits for the audit row of an action on a campaign; its changes.
fn audited(ana: &User<'_>, action: &str, id: &str) -> Value {
    let row = eventually(&format!("the audit row {action}"), || {
        let rows = ana.server.db.rows(&format!(
            "SELECT changes, user_id, account_id, ip_address FROM audit_logs
             WHERE action = '{action}' AND entity_type = 'campaign' AND entity_id = '{id}'"
        ));
        assert!(rows.len() <= 1, "{rows:?}");
        rows.into_iter().next()
    });
    assert_eq!(
        row[1..],
        [ana.id.to_string(), ana.account.clone(), "127.0.0.1".to_owned()].map(Some)
    );
    row[0]
        .as_deref()
        .map_or(Value::Null, |changes| serde_json::from_str(changes).unwrap())
}

fn notified(ana: &User<'_>) -> Vec<(String, Value)> {
    let rows = ana.server.db.rows("SELECT type, data FROM notifications ORDER BY id");
    rows.into_iter()
        .map(|row| {
            (
                row[0].clone().unwrap(),
                serde_json::from_str(row[1].as_deref().unwrap()).unwrap(),
            )
        })
        .collect()
}

#[test]
fn create_execute_and_delete_are_audited_and_the_end_is_notified() {
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile();
    ana.contacts(3);
    let id = ana.plain_campaign();
    audited(&ana, "create", &id);
    ana.execute(&id).ok();
    let details = audited(&ana, "update", &id);
    for (field, value) in [
        ("total", json!(3)),
        ("sent", json!(3)),
        ("failed", json!(0)),
        ("status", json!("completed")),
    ] {
        assert_eq!(details[field], value, "{details}");
    }
    let notes = eventually("the notification", || {
        Some(notified(&ana)).filter(|notes| !notes.is_empty())
    });
    assert_eq!((notes.len(), notes[0].0.as_str()), (1, "success"));
    assert_eq!(notes[0].1["campaign_id"], json!(id));
    ana.delete(&format!("/api/campaigns/{id}")).gone();
    audited(&ana, "delete", &id);
    // A refused operation leaves nothing.
    ana.delete(&format!("/api/campaigns/{id}")).refused(404, "NOT_FOUND");
    server.db.settles();
    assert_eq!(server.db.count("FROM audit_logs"), 3);
}

#[test]
fn a_partial_run_warns() {
    use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind};
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile();
    ana.contacts(3);
    server
        .whatsapp
        .script(vec![WhatsappFault::send(WhatsappFaultKind::error(131_026, ""))]);
    let id = ana.plain_campaign();
    ana.execute(&id).ok();
    let notes = eventually("the notification", || {
        Some(notified(&ana)).filter(|notes| !notes.is_empty())
    });
    assert_eq!((notes[0].0.as_str(), &notes[0].1["failed"]), ("warning", &json!(1)));
}

#[test]
fn a_cancel_is_audited_with_the_status_before_and_notified() {
    let server = Server::new();
    let ana = server.owner();
    let id = ana.plain_campaign();
    server
        .db
        .run("UPDATE campaigns SET status = 'scheduled', scheduled_at = now() + interval '1 day'");
    ana.cancel(&id).ok();
    assert_eq!(audited(&ana, "update", &id), json!({ "previousStatus": "scheduled" }));
    let notes = eventually("the notification", || {
        Some(notified(&ana)).filter(|notes| !notes.is_empty())
    });
    assert_eq!((notes.len(), notes[0].0.as_str()), (1, "info"));
}

#[test]
fn events_survive_a_crash_and_are_written_once() {
    let server = Server::new();
    let ana = server.owner();
    for number in 0..20 {
        ana.campaign(json!({ "name": format!("C{number}") }));
    }
    server.kill();
    server.run(&["serve"]);
    server.db.settles();
    assert_eq!(
        server
            .db
            .count("FROM audit_logs WHERE action = 'create' AND entity_type = 'campaign'"),
        20
    );
    assert_eq!(
        server.db.count("FROM (SELECT DISTINCT entity_id FROM audit_logs) x"),
        20
    );
}

#[test]
fn the_address_in_the_audit_is_the_peers_unless_a_proxy_is_trusted() {
    for (trusted, wanted) in [("", "127.0.0.1"), ("127.0.0.0/8", "203.0.113.9")] {
        let server = Server::start(crate::harness::Options::default().with("TRUSTED_PROXIES", trusted));
        let ana = server.owner();
        let request = ana
            .request("POST", "/api/campaigns")
            .header("X-Forwarded-For", "6.6.6.6, 203.0.113.9");
        request.json(&json!({ "name": "C" })).send().created();
        let address = eventually("the audit row", || {
            Some(server.db.text("SELECT ip_address FROM audit_logs")).filter(|address| !address.is_empty())
        });
        assert_eq!(address, wanted);
    }
}
