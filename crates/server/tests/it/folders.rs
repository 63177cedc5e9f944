//! Folders of campaigns and of templates.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::users::User;
use crate::harness::{Server, text};

fn create_folder(user: &User<'_>, name: &str, kind: &str) -> String {
    let made = user
        .post("/api/folders", json!({ "name": name, "kind": kind }))
        .created();
    assert_eq!(made.as_object().unwrap().len(), 3, "{made}");
    text(&made["id"])
}

fn folder_names(list: &Value) -> Vec<String> {
    let rows = list["data"].as_array().unwrap();
    rows.iter().map(|row| text(&row["name"])).collect()
}

#[test]
fn folders_are_created_listed_and_deleted() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    create_folder(&bia, "De bia", "campaign");
    let made = ana
        .post(
            "/api/folders",
            json!({ "name": " <b>Datas</b>\t2026 ", "kind": "campaign" }),
        )
        .created();
    assert_eq!(
        (&made["name"], &made["kind"]),
        (&json!("Datas 2026"), &json!("campaign"))
    );
    create_folder(&ana, "Avisos", "template");
    assert_eq!(folder_names(&ana.get("/api/folders").ok()), ["Avisos", "Datas 2026"]);
    assert_eq!(
        folder_names(&ana.get("/api/folders?kind=campaign").ok()),
        ["Datas 2026"]
    );
    assert_eq!(folder_names(&ana.get("/api/folders?kind=template").ok()), ["Avisos"]);
    assert_eq!(folder_names(&ana.get("/api/folders?kind=").ok()).len(), 2);
    assert_eq!(ana.get("/api/folders?kind=contact").invalid(), ["kind"]);
    let path = format!("/api/folders/{}", text(&made["id"]));
    bia.delete(&path).refused(404, "NOT_FOUND");
    ana.delete(&path).no_content();
    ana.delete(&path).refused(404, "NOT_FOUND");
    assert_eq!(folder_names(&ana.get("/api/folders").ok()), ["Avisos"]);
    for number in 0..24 {
        create_folder(&ana, &format!("F{number}"), "campaign");
    }
    let first = ana.get("/api/folders").ok();
    assert_eq!((folder_names(&first).len(), &first["hasMore"]), (20, &json!(true)));
    let rest = ana
        .get(&format!("/api/folders?cursor={}", text(&first["nextCursor"])))
        .ok();
    assert_eq!((folder_names(&rest).len(), &rest["hasMore"]), (5, &json!(false)));
}

#[test]
fn folder_errors_name_the_invalid_field() {
    let server = Server::new();
    let ana = server.owner();
    let cases = [
        (json!({}), vec!["kind", "name"]),
        (json!({ "name": "x", "kind": "contact" }), vec!["kind"]),
        (json!({ "name": "x", "kind": null }), vec!["kind"]),
        (json!({ "name": " ", "kind": "template" }), vec!["name"]),
        (json!({ "name": "x".repeat(101), "kind": "template" }), vec!["name"]),
    ];
    for (body, fields) in cases {
        assert_eq!(ana.post("/api/folders", body.clone()).invalid(), fields, "{body}");
    }
    assert_eq!(server.db.count("FROM folders"), 0);
}

#[test]
fn folder_deletion_keeps_its_campaigns_and_templates() {
    let server = Server::new();
    let ana = server.owner();
    let (campaigns, templates) = (
        create_folder(&ana, "C", "campaign"),
        create_folder(&ana, "T", "template"),
    );
    let campaign = ana.campaign(json!({ "name": "Dentro", "folder_id": campaigns }));
    let template = ana.template("dentro", "Oi", &[]);
    let template = format!("/api/templates/{template}");
    assert_eq!(
        ana.put(&template, json!({ "folder_id": templates })).ok()["folder_id"],
        json!(templates)
    );
    let list = ana.get(&format!("/api/campaigns?folder_id={campaigns}")).expect(200);
    assert_eq!(list["total"], 1);
    for folder in [&campaigns, &templates] {
        ana.delete(&format!("/api/folders/{folder}")).no_content();
    }
    let campaign = format!("/api/campaigns/{campaign}");
    assert_eq!(ana.get(&campaign).ok()["folder_id"], json!(null));
    assert_eq!(ana.get(&template).ok()["folder_id"], json!(null));
    assert_eq!(ana.put(&campaign, json!({ "name": "Fora" })).ok()["name"], "Fora");
    assert_eq!(
        ana.put(&campaign, json!({ "folder_id": campaigns })).invalid(),
        ["folder_id"]
    );
}

#[test]
fn folder_accepts_only_its_kind_and_account() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let (campaigns, templates) = (
        create_folder(&ana, "C", "campaign"),
        create_folder(&ana, "T", "template"),
    );
    let foreign = create_folder(&bia, "De bia", "campaign");
    let campaign = format!("/api/campaigns/{}", ana.campaign(json!({ "name": "Oferta" })));
    let template = format!("/api/templates/{}", ana.template("aviso", "Oi", &[]));
    let unknown = Uuid::now_v7().to_string();
    for wrong in [&templates, &foreign, &unknown] {
        let body = json!({ "name": "x", "folder_id": wrong });
        assert_eq!(ana.post("/api/campaigns", body).invalid(), ["folder_id"]);
        assert_eq!(
            ana.put(&campaign, json!({ "folder_id": wrong })).invalid(),
            ["folder_id"]
        );
    }
    for wrong in [&campaigns, &foreign, &unknown] {
        let body = json!({ "name": "x", "category": "UTILITY", "language": "pt", "template_type": "standard",
                           "body_text": "Oi", "folder_id": wrong });
        assert_eq!(ana.post("/api/templates", body).invalid(), ["folder_id"]);
        assert_eq!(
            ana.put(&template, json!({ "folder_id": wrong })).invalid(),
            ["folder_id"]
        );
    }
    ana.put(&campaign, json!({ "folder_id": campaigns })).ok();
    ana.put(&template, json!({ "folder_id": templates })).ok();
    assert_eq!(
        ana.put(&campaign, json!({ "folder_id": null })).ok()["folder_id"],
        json!(null)
    );
}
