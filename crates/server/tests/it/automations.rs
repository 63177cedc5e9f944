//! Automations and their executions.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::users::User;
use crate::harness::{Server, text};
use crate::ingestion::ago;

fn create_automation(user: &User<'_>, name: &str) -> String {
    let body = json!({ "name": name, "status": "active" });
    text(&user.post("/api/automations", body).created()["id"])
}

#[test]
fn automations_count_as_usage_without_plan_limit() {
    let server = Server::new();
    let ana = server.owner();
    let used = || ana.get("/api/billing/subscription").ok()["usage"]["automations"].clone();
    assert_eq!(used(), 0);
    let made = ana
        .post(
            "/api/automations",
            json!({ "name": " Boas <b>vindas</b> ", "status": "draft" }),
        )
        .created();
    assert_eq!(
        (made["name"].clone(), made["status"].clone()),
        (json!("Boas vindas"), json!("draft"))
    );
    assert_eq!(used(), 1);
    // The free plan includes one automation. Only a plan change checks this limit.
    create_automation(&ana, "Carrinho");
    assert_eq!(used(), 2);
    let id = text(&made["id"]);
    let changed = ana
        .put(&format!("/api/automations/{id}"), json!({ "status": "paused" }))
        .ok();
    assert_eq!(
        (changed["name"].clone(), changed["status"].clone()),
        (made["name"].clone(), json!("paused"))
    );
    for wrong in [json!({ "status": "on" }), json!({ "status": 1 })] {
        assert_eq!(ana.put(&format!("/api/automations/{id}"), wrong).invalid(), ["status"]);
    }
    assert_eq!(
        ana.put(&format!("/api/automations/{id}"), json!({ "name": "" }))
            .invalid(),
        ["name"]
    );
    let listed = ana.get("/api/automations").ok();
    assert_eq!(listed["data"].as_array().unwrap().len(), 2);
    assert_eq!(listed["data"][1]["id"], id);
}

fn execution_body(status: &str, started: i64, seconds: i64) -> Value {
    let started = time::OffsetDateTime::now_utc() - time::Duration::minutes(started);
    let format = recado_domain::shared::timestamp::format;
    json!({ "status": status, "started_at": format(started),
        "finished_at": format(started + time::Duration::seconds(seconds)) })
}

#[test]
fn executions_are_reported_by_automation() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let (first, second) = (create_automation(&ana, "Primeira"), create_automation(&ana, "Segunda"));
    let report = |id: &str, items: &[Value]| {
        ana.post(
            &format!("/api/automations/{id}/executions"),
            json!({ "executions": items }),
        )
    };
    let mut with_id = execution_body("completed", 5, 2);
    with_id["id"] = json!(Uuid::now_v7());
    let items = [
        with_id.clone(),
        execution_body("failed", 5, 3),
        execution_body("completed", 8 * 1440, 100),
    ];
    assert_eq!(report(&first, &items).ok(), json!({ "accepted": 3, "duplicates": 0 }));
    assert_eq!(
        report(&first, &[with_id]).ok(),
        json!({ "accepted": 0, "duplicates": 1 })
    );
    report(&second, &vec![execution_body("completed", 1, 1); 3]).ok();
    let analytics = ana.get("/api/analytics/automations").ok();
    let expected = json!([
        { "automation_id": second, "automation_name": "Segunda", "total_executions": 3, "completed": 3, "failed": 0,
          "avg_latency_seconds": 1 },
        { "automation_id": first, "automation_name": "Primeira", "total_executions": 2, "completed": 1, "failed": 1,
          "avg_latency_seconds": 2.5 },
    ]);
    assert_eq!(analytics["data"], expected);
    assert_eq!(
        analytics["summary"],
        json!({ "totalExecutions": 5, "successRate": 80, "avgLatency": 1.6 })
    );
    let month = ana.get("/api/analytics/automations?period=30d").ok();
    assert_eq!(month["summary"]["totalExecutions"], 6);
    let mut backwards = execution_body("completed", 5, 0);
    backwards["finished_at"] = json!(ago(10));
    assert_eq!(report(&first, &[backwards]).invalid(), ["executions[0].finished_at"]);
    let foreign = bia.post(
        &format!("/api/automations/{first}/executions"),
        json!({ "executions": [execution_body("failed", 1, 1)] }),
    );
    foreign.refused(404, "NOT_FOUND");
    assert_eq!(
        bia.get("/api/analytics/automations").ok()["summary"]["totalExecutions"],
        0
    );
}
