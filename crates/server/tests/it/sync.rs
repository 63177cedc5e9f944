//! Synchronisation: every template of the platform, and nothing of ours overwritten.

use recado_simulators::whatsapp::{Fault, FaultKind, On};
use serde_json::{Value, json};

use crate::harness::people::User;
use crate::harness::{Server, text};

fn sync(user: &User<'_>) -> Value {
    user.request("POST", "/api/templates/sync").send().ok()
}

fn report(created: u32, updated: u32, unchanged: u32) -> Value {
    json!({ "created": created, "updated": updated, "unchanged": unchanged })
}

fn remote(server: &Server, number: usize) -> String {
    server.whatsapp.add_template(
        &json!({ "name": format!("r{number:03}"), "language": "pt_BR", "category": "UTILITY",
        "components": [
            { "type": "HEADER", "format": "TEXT", "text": "Pedido {{1}}", "example": { "header_text": ["77"] } },
            { "type": "BODY", "text": "Oi {{1}}, chegou.", "example": { "body_text": [["Ana"]] } },
            { "type": "FOOTER", "text": "Loja" } ] }),
    )
}

#[test]
fn three_pages_are_taken_over_and_drafts_are_kept() {
    let server = Server::new();
    let ana = server.owner();
    assert_eq!(
        ana.request("POST", "/api/templates/sync").send().invalid(),
        ["profile_id"]
    );
    let profile = ana.profile();
    let ids: Vec<String> = (0..205).map(|number| remote(&server, number)).collect();
    let draft = ana.template("r007", "Escrito aqui {{1}}!", &["Ana"]);
    assert_eq!(sync(&ana), report(204, 1, 0));
    let pages = server.whatsapp.ledger().len();
    assert_eq!(pages, 3);
    let found = ana.get("/api/templates?search=r008").ok()["data"][0].take();
    assert_eq!(
        (&found["meta_status"], &found["category"]),
        (&json!("approved"), &json!("UTILITY"))
    );
    assert_eq!(
        (&found["header_text"], &found["body_text"]),
        (&json!("Pedido {{1}}"), &json!("Oi {{2}}, chegou."))
    );
    assert_eq!(
        (&found["variables"], &found["footer_text"]),
        (&json!(["77", "Ana"]), &json!("Loja"))
    );
    assert_eq!(
        (&found["meta_template_id"], &found["profile_id"]),
        (&json!(ids[8]), &json!(profile))
    );
    let kept = ana.get(&format!("/api/templates/{draft}")).ok();
    assert_eq!(
        (&kept["meta_status"], &kept["body_text"]),
        (&json!("draft"), &json!("Escrito aqui {{1}}!"))
    );
    assert_eq!(kept["meta_template_id"], json!(ids[7]));
    assert_eq!(sync(&ana), report(0, 0, 205));
    // What was learned leads an edit to the template that the platform has.
    server.whatsapp.set_template_status(&ids[7], "REJECTED", None);
    assert!(server.whatsapp.wait_idle(crate::harness::DEADLINE));
    let submitted = ana
        .request("POST", &format!("/api/templates/{draft}/submit"))
        .send()
        .ok();
    assert_eq!(text(&submitted["meta_template_id"]), ids[7]);
}

#[test]
fn a_failing_platform_leaves_nothing_half_written() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    for number in 0..105 {
        remote(&server, number);
    }
    for kind in [FaultKind::GarbageJson, FaultKind::AcceptThenReset, FaultKind::Throttle] {
        server.whatsapp.script(vec![Fault::of(On::List, kind)]);
        let refused = ana.request("POST", "/api/templates/sync").send();
        refused.refused(502, "WHATSAPP_ERROR");
        assert_eq!(server.db.count("FROM message_templates"), 0);
    }
    assert_eq!(sync(&ana), report(105, 0, 0));
}

#[test]
fn a_number_is_named_or_unknown() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    remote(&server, 1);
    let (first, theirs) = (ana.profile(), bia.profile());
    let body = |profile: &str| json!({ "profile_id": profile });
    assert_eq!(ana.post("/api/templates/sync", body(&theirs)).invalid(), ["profile_id"]);
    assert_eq!(ana.post("/api/templates/sync", body("7")).invalid(), ["profile_id"]);
    assert_eq!(ana.post("/api/templates/sync", body(&first)).ok(), report(1, 0, 0));
    assert_eq!(bia.get("/api/templates").ok()["total"], 0);
}
