//! Audit entries and notifications that campaign operations write.

use serde_json::{Value, json};

use crate::harness::runs::without_statuses;
use crate::harness::users::User;
use crate::harness::{Server, eventually};

/// Waits for the audit entry of an action on a campaign. Returns its changes.
fn wait_for_audit_entry(ana: &User<'_>, action: &str, id: &str) -> Value {
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

fn list_notifications(ana: &User<'_>) -> Vec<(String, Value)> {
    let sql = "SELECT type, data FROM notifications WHERE data ->> 'campaign_id' IS NOT NULL ORDER BY id";
    let rows = ana.server.db.rows(sql);
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
fn campaign_actions_are_audited_and_its_end_is_notified() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    ana.contacts(3);
    let id = ana.plain_campaign();
    wait_for_audit_entry(&ana, "create", &id);
    ana.execute(&id).ok();
    let details = wait_for_audit_entry(&ana, "update", &id);
    for (field, value) in [
        ("total", json!(3)),
        ("sent", json!(3)),
        ("failed", json!(0)),
        ("status", json!("completed")),
    ] {
        assert_eq!(details[field], value, "{details}");
    }
    let notifications = eventually("the notification", || {
        Some(list_notifications(&ana)).filter(|notifications| !notifications.is_empty())
    });
    assert_eq!((notifications.len(), notifications[0].0.as_str()), (1, "success"));
    assert_eq!(notifications[0].1["campaign_id"], json!(id));
    ana.delete(&format!("/api/campaigns/{id}")).no_content();
    wait_for_audit_entry(&ana, "delete", &id);
    // A refused operation writes no entry.
    ana.delete(&format!("/api/campaigns/{id}")).refused(404, "NOT_FOUND");
    server.db.wait_for_outbox();
    assert_eq!(server.db.count("FROM audit_logs WHERE entity_type = 'campaign'"), 3);
}

#[test]
fn partial_run_notifies_a_warning() {
    use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind};
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    ana.contacts(3);
    server
        .whatsapp
        .script(vec![WhatsappFault::send(WhatsappFaultKind::error(131_026, ""))]);
    let id = ana.plain_campaign();
    ana.execute(&id).ok();
    let notifications = eventually("the notification", || {
        Some(list_notifications(&ana)).filter(|notifications| !notifications.is_empty())
    });
    assert_eq!(
        (notifications[0].0.as_str(), &notifications[0].1["failed"]),
        ("warning", &json!(1))
    );
}

#[test]
fn campaign_cancel_is_audited_with_old_status_and_notified() {
    let server = Server::new();
    let ana = server.owner();
    let id = ana.plain_campaign();
    server
        .db
        .run("UPDATE campaigns SET status = 'scheduled', scheduled_at = now() + interval '1 day'");
    ana.cancel(&id).ok();
    assert_eq!(
        wait_for_audit_entry(&ana, "update", &id),
        json!({ "previousStatus": "scheduled" })
    );
    let notifications = eventually("the notification", || {
        Some(list_notifications(&ana)).filter(|notifications| !notifications.is_empty())
    });
    assert_eq!((notifications.len(), notifications[0].0.as_str()), (1, "info"));
}

#[test]
fn audit_entries_survive_a_crash_and_are_written_once() {
    let server = Server::new();
    let ana = server.owner();
    for number in 0..20 {
        ana.campaign(json!({ "name": format!("C{number}") }));
    }
    server.kill();
    server.run(&["serve"]);
    server.db.wait_for_outbox();
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
fn audited_address_is_the_peer_unless_a_proxy_is_trusted() {
    for (trusted, expected) in [("", "127.0.0.1"), ("127.0.0.0/8", "203.0.113.9")] {
        let server = Server::start(crate::harness::Options::default().with("TRUSTED_PROXIES", trusted));
        let ana = server.owner();
        let request = ana
            .request("POST", "/api/campaigns")
            .header("X-Forwarded-For", "6.6.6.6, 203.0.113.9");
        request.json(&json!({ "name": "C" })).send().created();
        let address = eventually("the audit row", || {
            Some(server.db.text("SELECT ip_address FROM audit_logs")).filter(|address| !address.is_empty())
        });
        assert_eq!(address, expected);
    }
}
