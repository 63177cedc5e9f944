//! Folders of campaigns and of templates.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::users::User;
use crate::harness::{Server, text};

fn folder(user: &User<'_>, name: &str, kind: &str) -> String {
    let made = user
        .post("/api/folders", json!({ "name": name, "kind": kind }))
        .created();
    assert_eq!(made.as_object().unwrap().len(), 3, "{made}");
    text(&made["id"])
}

fn names(list: &Value) -> Vec<String> {
    let rows = list["data"].as_array().unwrap();
    rows.iter().map(|row| text(&row["name"])).collect()
}

#[test]
fn folders_are_made_listed_and_removed() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    folder(&bia, "De bia", "campaign");
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
    folder(&ana, "Avisos", "template");
    assert_eq!(names(&ana.get("/api/folders").ok()), ["Avisos", "Datas 2026"]);
    assert_eq!(names(&ana.get("/api/folders?kind=campaign").ok()), ["Datas 2026"]);
    assert_eq!(names(&ana.get("/api/folders?kind=template").ok()), ["Avisos"]);
    assert_eq!(names(&ana.get("/api/folders?kind=").ok()).len(), 2);
    assert_eq!(ana.get("/api/folders?kind=contact").invalid(), ["kind"]);
    let path = format!("/api/folders/{}", text(&made["id"]));
    bia.delete(&path).refused(404, "NOT_FOUND");
    ana.delete(&path).gone();
    ana.delete(&path).refused(404, "NOT_FOUND");
    assert_eq!(names(&ana.get("/api/folders").ok()), ["Avisos"]);
    for number in 0..24 {
        folder(&ana, &format!("F{number}"), "campaign");
    }
    let first = ana.get("/api/folders").ok();
    assert_eq!((names(&first).len(), &first["hasMore"]), (20, &json!(true)));
    let rest = ana
        .get(&format!("/api/folders?cursor={}", text(&first["nextCursor"])))
        .ok();
    assert_eq!((names(&rest).len(), &rest["hasMore"]), (5, &json!(false)));
}

#[test]
fn every_rule_names_its_field() {
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
fn what_lay_in_a_folder_stays_when_it_goes() {
    let server = Server::new();
    let ana = server.owner();
    let (campaigns, templates) = (folder(&ana, "C", "campaign"), folder(&ana, "T", "template"));
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
        ana.delete(&format!("/api/folders/{folder}")).gone();
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
fn a_folder_takes_what_it_is_for() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let (campaigns, templates) = (folder(&ana, "C", "campaign"), folder(&ana, "T", "template"));
    let foreign = folder(&bia, "De bia", "campaign");
    let campaign = format!("/api/campaigns/{}", ana.campaign(json!({ "name": "Oferta" })));
    let template = format!("/api/templates/{}", ana.template("aviso", "Oi", &[]));
    let nobodys = Uuid::now_v7().to_string();
    for wrong in [&templates, &foreign, &nobodys] {
        let body = json!({ "name": "x", "folder_id": wrong });
        assert_eq!(ana.post("/api/campaigns", body).invalid(), ["folder_id"]);
        assert_eq!(
            ana.put(&campaign, json!({ "folder_id": wrong })).invalid(),
            ["folder_id"]
        );
    }
    for wrong in [&campaigns, &foreign, &nobodys] {
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
