//! Campaigns: create, read, update, delete and list, before and after a run.

use serde_json::{Value, json};

use crate::harness::{Server, text};

#[test]
fn campaign_is_created_read_updated_and_deleted() {
    let server = Server::new();
    let ana = server.owner();
    let (template, tag) = (ana.template("t", "Oi {{1}}", &["Ana"]), ana.tag("vip"));
    let config = json!({ "tag_ids": [tag], "filters": { "has_email": true, "attributes": { "cidade": "Santos" },
                         "created_after": "2026-01-01T00:00:00.000Z" } });
    let body = json!({ "name": " Oferta\t <b>de</b>  verão\u{7} ", "template_id": template, "segment_config": config,
        "scheduled_at": "2099-01-01T09:00:00-03:00", "variables": { "1": "{name|cliente}" }, "rfm_segments": ["VIP"] });
    let made = ana.post("/api/campaigns", body).created();
    assert_eq!(
        (&made["name"], &made["status"]),
        (&json!("Oferta de verão"), &json!("draft"))
    );
    assert_eq!(made["scheduled_at"], "2099-01-01T12:00:00.000Z");
    assert_eq!(
        (&made["segment_config"], &made["rfm_segments"]),
        (&config, &json!(["VIP"]))
    );
    assert_eq!(made["variables"], json!({ "1": "{name|cliente}" }));
    assert_eq!(
        (&made["account_id"], &made["created_by"]),
        (&json!(ana.account), &json!(ana.id))
    );
    for field in ["segment_id", "folder_id", "executed_at", "completed_at"] {
        assert_eq!(made.get(field), Some(&json!(null)), "{field}");
    }
    assert_eq!(
        (&made["total_recipients"], &made["simulated"]),
        (&json!(0), &json!(false))
    );
    let id = text(&made["id"]);
    let path = format!("/api/campaigns/{id}");
    assert_eq!(ana.get(&path).ok(), made);
    let zero = json!({ "total": 0, "pending": 0, "sent": 0, "delivered": 0, "read": 0, "failed": 0 });
    assert_eq!(ana.stats(&id), zero);
    let sends = ana.get(&format!("{path}/sends")).expect(200);
    assert_eq!(sends, json!({ "data": [], "total": 0, "page": 1, "totalPages": 0 }));

    let changed = ana
        .put(
            &path,
            json!({ "name": "Novo nome", "scheduled_at": null, "segment_config": null }),
        )
        .ok();
    assert_eq!(
        (&changed["name"], &changed["scheduled_at"]),
        (&json!("Novo nome"), &json!(null))
    );
    assert_eq!(
        (&changed["segment_config"], &changed["template_id"]),
        (&json!(null), &json!(template))
    );
    assert_eq!(ana.get(&path).ok()["name"], "Novo nome");

    ana.delete(&path).no_content();
    for (method, path) in [
        ("GET", path.clone()),
        ("DELETE", path.clone()),
        ("GET", format!("{path}/stats")),
        ("GET", format!("{path}/sends")),
        ("POST", format!("{path}/execute")),
        ("POST", format!("{path}/cancel")),
    ] {
        ana.request(method, &path).send().refused(404, "NOT_FOUND");
    }
    assert_eq!(ana.get("/api/campaigns").expect(200)["total"], 0);
}

#[test]
fn campaign_errors_name_the_invalid_field() {
    let server = Server::new();
    let ana = server.owner();
    let with = |change: Value| {
        let mut body = json!({ "name": "Oferta" });
        body.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        ana.post("/api/campaigns", body)
    };
    let cases = [
        (json!({ "name": " <b></b> " }), "name"),
        (json!({ "name": "x".repeat(201) }), "name"),
        (json!({ "name": null }), "name"),
        (json!({ "variables": { "X": "{name}" } }), "variables.X"),
        (json!({ "variables": { "1": "{nome}" } }), "variables.1"),
        (json!({ "variables": { "1": "{name" } }), "variables.1"),
        (json!({ "rfm_segments": [""] }), "rfm_segments"),
        (
            json!({ "segment_config": { "filters": { "has_email": "yes" } } }),
            "segment_config.filters.has_email",
        ),
        (
            json!({ "segment_config": { "filters": { "created_after": "x" } } }),
            "segment_config.filters.created_after",
        ),
    ];
    for (change, field) in cases {
        assert_eq!(with(change.clone()).invalid(), [field], "{change}");
    }
    with(json!({ "name": "é".repeat(200) })).created();
    with(json!({ "segment_config": { "tag_ids": [] }, "rfm_segments": null, "variables": null })).created();
    // The audience is returned as given, by the POST and by a later GET.
    for config in [
        json!({}),
        json!({ "tag_ids": [] }),
        json!({ "tag_ids": [ana.tag("vip")] }),
        json!({ "filters": {} }),
        json!({ "filters": { "has_email": true } }),
    ] {
        let made = with(json!({ "segment_config": config })).created();
        let read = ana.get(&format!("/api/campaigns/{}", text(&made["id"]))).ok();
        assert_eq!((&made["segment_config"], &read["segment_config"]), (&config, &config));
    }
}

#[test]
fn campaign_list_is_sorted_and_paged() {
    let server = Server::new();
    let ana = server.owner();
    for name in ["c", "a", "b"] {
        ana.campaign(json!({ "name": name, "scheduled_at": format!("2099-01-0{}T00:00:00Z", name.len()) }));
    }
    ana.campaign(json!({ "name": "d" }));
    let names = |query: &str| {
        let page = ana.get(&format!("/api/campaigns?{query}")).expect(200);
        assert_eq!(page["total"], 4);
        page["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| text(&row["name"]))
            .collect::<String>()
    };
    assert_eq!([names(""), names("order=asc")], ["dbac", "cabd"]);
    assert_eq!([names("sort=name"), names("sort=name&order=asc")], ["dcba", "abcd"]);
    assert_eq!(
        [
            names("limit=3&page=1"),
            names("limit=3&page=2"),
            names("limit=3&page=3")
        ],
        ["dba", "c", ""]
    );
    for sort in ["created_at", "updated_at", "scheduled_at", "status"] {
        assert_eq!(names(&format!("sort={sort}")).len(), 4);
    }
    let page = ana.get("/api/campaigns?limit=3").expect(200);
    assert_eq!((&page["page"], &page["totalPages"]), (&json!(1), &json!(2)));
    assert_eq!(page.as_object().unwrap().len(), 4);
}

#[test]
fn finished_campaign_refuses_update_cancel_and_execute() {
    let server = Server::new();
    let ana = server.owner();
    ana.contacts(2);
    let id = ana.plain_campaign();
    ana.cancel(&id).refused(400, "VALIDATION_ERROR");
    assert_eq!(ana.execute(&id).ok()["status"], "sent");
    let path = format!("/api/campaigns/{id}");
    ana.put(&path, json!({ "name": "x" })).refused(400, "VALIDATION_ERROR");
    ana.cancel(&id).refused(400, "VALIDATION_ERROR");
    ana.execute(&id).refused(400, "VALIDATION_ERROR");
    let campaign = ana.get(&path).ok();
    assert_eq!(
        (&campaign["total_recipients"], &campaign["simulated"]),
        (&json!(2), &json!(true))
    );
    assert!(
        campaign["executed_at"].is_string() && campaign["completed_at"].is_string(),
        "{campaign}"
    );
    ana.delete(&path).no_content();
    // The body is validated before the existence and the state of the campaign.
    assert_eq!(ana.put(&path, json!({ "name": 7 })).invalid(), ["name"]);
}

#[test]
fn sending_campaign_refuses_delete_and_update() {
    let server = Server::new();
    let ana = server.owner();
    let id = ana.plain_campaign();
    server
        .db
        .run("UPDATE campaigns SET status = 'sending', paused_at = now()");
    let path = format!("/api/campaigns/{id}");
    ana.delete(&path).refused(400, "VALIDATION_ERROR");
    ana.put(&path, json!({ "name": "x" })).refused(400, "VALIDATION_ERROR");
    ana.execute(&id).refused(400, "VALIDATION_ERROR");
    assert_eq!(ana.cancel(&id).ok(), json!({ "status": "cancelled" }));
    ana.delete(&path).no_content();
}
