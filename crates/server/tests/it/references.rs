//! Ids in bodies: another account's id is an unknown reference. Read-only fields of a body are ignored.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::client::Reply;
use crate::harness::{Server, text};

/// The invalid fields of a body with another account's id. Checks that an unknown id gets the same response.
fn invalid_fields(call: &dyn Fn(&str) -> Reply, id: &str) -> Vec<String> {
    let (foreign, unknown) = (call(id), call(&Uuid::now_v7().to_string()));
    assert_eq!(foreign.text, unknown.text);
    foreign.invalid()
}

#[test]
fn campaign_with_another_accounts_id_is_refused() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let own = ana.campaign(json!({ "name": "Minha" }));
    let before = ana.get(&format!("/api/campaigns/{own}")).ok();
    let rows = [
        ("template_id", bia.template("t", "Oi", &[])),
        ("segment_id", bia.row("segments", "name", "'S'")),
        ("folder_id", bia.row("folders", "name, kind", "'F', 'campaign'")),
    ];
    for (field, foreign) in rows {
        let create = |id: &str| ana.post("/api/campaigns", json!({ "name": "Oferta", field: id }));
        assert_eq!(invalid_fields(&create, &foreign), [field]);
        let update = |id: &str| ana.put(&format!("/api/campaigns/{own}"), json!({ field: id }));
        assert_eq!(invalid_fields(&update, &foreign), [field]);
    }
    let config = |id: &str| json!({ "name": "Oferta", "segment_config": { "tag_ids": [id] } });
    let fields = invalid_fields(&|id| ana.post("/api/campaigns", config(id)), &bia.tag("vip"));
    assert!(
        fields.len() == 1 && fields[0].starts_with("segment_config.tag_ids"),
        "{fields:?}"
    );
    assert_eq!(server.db.count("FROM campaigns"), 1);
    assert_eq!(ana.get(&format!("/api/campaigns/{own}")).ok(), before);
}

#[test]
fn contact_or_template_with_foreign_id_is_refused() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let tag = bia.tag("vip");
    let contact = ana.contact("Ana", "+5511961234567");
    let create = |id: &str| {
        let body = json!({ "name": "B", "phone": "11961230000", "tag_ids": [id] });
        ana.post("/api/contacts", body)
    };
    let fields = invalid_fields(&create, &tag);
    assert!(fields.len() == 1 && fields[0].starts_with("tag_ids"), "{fields:?}");
    let tags = |id: &str| ana.put(&format!("/api/contacts/{contact}/tags"), json!({ "tag_ids": [id] }));
    assert!(invalid_fields(&tags, &tag)[0].starts_with("tag_ids"));
    assert_eq!(server.db.count("FROM contacts"), 1);
    assert_eq!(server.db.count("FROM contact_tags"), 0);

    let template = format!("/api/templates/{}", ana.template("mine", "Oi", &[]));
    let folder = bia.row("folders", "name, kind", "'F', 'template'");
    let set_folder = |id: &str| ana.put(&template, json!({ "folder_id": id }));
    assert_eq!(invalid_fields(&set_folder, &folder), ["folder_id"]);
    let submit = |id: &str| ana.post(&format!("{template}/submit"), json!({ "profile_id": id }));
    assert_eq!(invalid_fields(&submit, &bia.profile()), ["profile_id"]);
    assert_eq!(ana.get(&template).ok()["meta_status"], "draft");
}

#[test]
fn campaign_list_filters_by_folder() {
    let server = Server::new();
    let ana = server.owner();
    let folder = ana.row("folders", "name, kind", "'F', 'campaign'");
    let inside = ana.campaign(json!({ "name": "Dentro", "folder_id": folder }));
    ana.campaign(json!({ "name": "Fora" }));
    let list = ana.get(&format!("/api/campaigns?folder_id={folder}")).expect(200);
    assert_eq!((&list["total"], &list["data"][0]["id"]), (&json!(1), &json!(inside)));
}

#[test]
fn contact_filter_by_foreign_id_is_empty() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let tag = bia.tag("vip");
    let segment = bia.row("segments", "name, filters", "'S', '{}'");
    ana.contact("Ana", "+5511961234567");
    let body = json!({ "name": "B", "phone": "+5511961230000", "tag_ids": [tag] });
    bia.post("/api/contacts", body).created();
    for query in [format!("tag_id={tag}"), format!("segment_id={segment}")] {
        let found = ana.get(&format!("/api/contacts?{query}")).ok();
        assert_eq!(found["data"], json!([]), "{query}");
    }
}

#[test]
fn read_only_fields_of_a_body_are_ignored() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let id = Uuid::now_v7().to_string();
    let read_only = json!({
        "id": id, "account_id": bia.account, "created_at": "2001-01-01T00:00:00Z", "updated_at": "2001-01-01T00:00:00Z",
        "deleted_at": "2001-01-01T00:00:00Z", "status": "completed", "meta_status": "approved",
        "meta_template_id": "9", "role": "owner", "plan": "scale", "slug": "mine", "opted_out_at": "2001-01-01T00:00:00Z",
        "total_recipients": 7, "simulated": true, "created_by": bia.id, "executed_at": "2001-01-01T00:00:00Z",
    });
    let with = |body: Value| {
        let mut body_with_read_only = read_only.clone();
        body_with_read_only
            .as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        body_with_read_only
    };
    let check = |row: &Value| {
        for (field, requested) in read_only.as_object().unwrap() {
            if let Some(stored) = row.get(field) {
                assert_ne!(stored, requested, "{field} of {row}");
            }
        }
        assert!(
            row.get("account_id")
                .is_none_or(|account| *account == json!(ana.account)),
            "{row}"
        );
    };
    let template = json!({ "name": "t", "category": "UTILITY", "language": "pt", "template_type": "standard" });
    let number = json!({ "name": "n", "phone_number_id": "7", "waba_id": "8", "access_token": "t" });
    let rows = [
        ("/api/contacts", with(json!({ "name": "A", "phone": "+5511961234567" }))),
        ("/api/tags", with(json!({ "name": "vip" }))),
        (
            "/api/segments",
            with(json!({ "name": "S", "members": 7, "segment_members": [id] })),
        ),
        ("/api/folders", with(json!({ "name": "F", "kind": "campaign" }))),
        ("/api/templates", with(template)),
        ("/api/whatsapp/profiles", with(number)),
        ("/api/campaigns", with(json!({ "name": "Oferta" }))),
    ];
    for (path, body) in rows {
        let made = ana.post(path, body).created();
        check(&made);
        assert_eq!(made.get("members").unwrap_or(&json!(0)), 0);
        if !["/api/tags", "/api/folders"].contains(&path) {
            let changed = ana
                .put(&format!("{path}/{}", text(&made["id"])), read_only.clone())
                .ok();
            check(&changed);
        }
    }
    let account = ana.post("/api/accounts", with(json!({ "name": "Nova" }))).created();
    check(&account["account"]);
    let count = |table: &str| {
        server
            .db
            .count(&format!("FROM {table} WHERE account_id = '{}'", bia.account))
    };
    for table in ["contacts", "segments", "folders", "campaigns"] {
        assert_eq!(count(table), 0, "{table}");
    }
    assert_eq!(count("account_users"), 1);
}
