//! Templates: validation, lists and concurrent updates.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::users::User;
use crate::harness::{Server, eventually, text};

/// A valid template body with these changes.
fn body_with(change: Value) -> Value {
    let mut body = json!({ "name": "oferta", "category": "MARKETING", "language": "pt_BR",
        "template_type": "standard", "body_text": "Oi {{1}}, use {{2}} hoje.", "example_values": ["Ana", "PROMO10"] });
    body.as_object_mut()
        .unwrap()
        .extend(change.as_object().unwrap().clone());
    body
}

#[test]
fn template_can_be_created_read_updated_and_deleted() {
    let server = Server::new();
    let ana = server.owner();
    let made = ana
        .post("/api/templates", body_with(json!({ "footer_text": "Responda SAIR" })))
        .created();
    assert_eq!(
        (&made["meta_status"], &made["meta_template_id"]),
        (&json!("draft"), &json!(null))
    );
    assert_eq!(made["variables"], json!(["Ana", "PROMO10"]));
    assert_eq!((&made["header_type"], &made["buttons"]), (&json!("none"), &json!([])));
    let path = format!("/api/templates/{}", text(&made["id"]));
    assert_eq!(ana.get(&path).ok(), made);
    let changed = ana.put(&path, json!({ "footer_text": null })).ok();
    assert_eq!(
        (&changed["footer_text"], &changed["body_text"]),
        (&json!(null), &made["body_text"])
    );
    assert!(text(&changed["updated_at"]) >= text(&made["updated_at"]));
    ana.delete(&path).no_content();
    ana.get(&path).refused(404, "NOT_FOUND");
    ana.delete(&path).refused(404, "NOT_FOUND");
    // An invalid body is reported before the missing template.
    assert_eq!(ana.put(&path, json!({ "category": "OTHER" })).invalid(), ["category"]);
    ana.put(&path, json!({ "body_text": "{{1}}" }))
        .refused(404, "NOT_FOUND");
    assert_eq!(ana.get("/api/templates").ok()["total"], 0);
    // A deleted template stays in the table, has an audit entry, and its name can be used again.
    assert_eq!(
        server.db.count("FROM message_templates WHERE deleted_at IS NOT NULL"),
        1
    );
    let audit = eventually("the audit row", || {
        let rows = server
            .db
            .rows("SELECT action, entity_type, entity_id, user_id, ip_address FROM audit_logs WHERE action = 'delete'");
        rows.into_iter().next()
    });
    let expected = [
        "delete",
        "message_template",
        &text(&made["id"]),
        &ana.id.to_string(),
        "127.0.0.1",
    ];
    assert_eq!(audit, expected.map(|value| Some(value.to_owned())));
    ana.post("/api/templates", body_with(json!({}))).created();
}

#[test]
fn invalid_template_names_the_field() {
    let server = Server::new();
    let ana = server.owner();
    let button = json!({ "type": "QUICK_REPLY", "text": "x" });
    let card = json!({ "components": [] });
    let cases = [
        (json!({ "name": "Oferta" }), "name"),
        (json!({ "name": "" }), "name"),
        (json!({ "name": "x".repeat(513) }), "name"),
        (json!({ "category": "PROMO" }), "category"),
        (json!({ "language": "pt-BR" }), "language"),
        (json!({ "language": "port" }), "language"),
        (json!({ "template_type": "other" }), "template_type"),
        (json!({ "header_type": "audio" }), "header_type"),
        (json!({ "header_type": "text" }), "header_text"),
        (
            json!({ "header_type": "text", "header_text": "x".repeat(61) }),
            "header_text",
        ),
        (
            json!({ "header_type": "image", "header_media_url": "ftp://x" }),
            "header_media_url",
        ),
        (
            json!({ "body_text": format!("{{{{1}}}} {{{{2}}}}{}", "x".repeat(1024)) }),
            "body_text",
        ),
        (json!({ "body_text": "Oi {{1}} {{3}}" }), "body_text"),
        (json!({ "footer_text": "x".repeat(61) }), "footer_text"),
        (json!({ "footer_text": "Oi {{1}}" }), "footer_text"),
        (json!({ "example_values": ["Ana"] }), "example_values"),
        (json!({ "example_values": ["Ana", " "] }), "example_values[1]"),
        (json!({ "buttons": vec![button; 11] }), "buttons"),
        (json!({ "buttons": [{ "text": "x" }] }), "buttons[0].type"),
        (
            json!({ "template_type": "carousel", "carousel_cards": [card] }),
            "carousel_cards",
        ),
        (
            json!({ "template_type": "carousel", "carousel_cards": vec![card.clone(); 11] }),
            "carousel_cards",
        ),
        (json!({ "carousel_cards": [card, card] }), "carousel_cards"),
    ];
    for (change, field) in cases {
        assert_eq!(
            ana.post("/api/templates", body_with(change.clone())).invalid(),
            [field],
            "{change}"
        );
    }
    let empty = ana.post("/api/templates", json!({})).invalid();
    assert_eq!(empty, ["category", "language", "name", "template_type"]);
    assert_eq!(server.db.count("FROM message_templates"), 0);
    let limits = body_with(
        json!({ "name": "x".repeat(512), "language": "pt", "footer_text": "é".repeat(60),
                              "body_text": format!("{{{{1}}}} {{{{2}}}}{}", "é".repeat(1013)) }),
    );
    ana.post("/api/templates", limits).created();
}

#[test]
fn template_name_and_language_are_unique_together() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    ana.post("/api/templates", body_with(json!({}))).created();
    let english = ana
        .post("/api/templates", body_with(json!({ "language": "en_US" })))
        .created();
    assert_eq!(ana.post("/api/templates", body_with(json!({}))).invalid(), ["name"]);
    let path = format!("/api/templates/{}", text(&english["id"]));
    assert_eq!(ana.put(&path, json!({ "language": "pt_BR" })).invalid(), ["name"]);
    bia.post("/api/templates", body_with(json!({}))).created();
}

fn create_templates(ana: &User<'_>) {
    for number in 0..25 {
        let category = if number % 5 == 0 { "UTILITY" } else { "MARKETING" };
        let body = format!("Texto {number} a{{{{1}}}}");
        let change = json!({ "name": format!("m{number:02}"), "category": category, "body_text": body,
                             "example_values": ["x"] });
        ana.post("/api/templates", body_with(change)).created();
    }
}

#[test]
fn template_list_is_paged_by_page_or_cursor() {
    let server = Server::new();
    let ana = server.owner();
    create_templates(&ana);
    let page = ana.get("/api/templates?sort=name&order=asc&page=2&limit=10").ok();
    let names: Vec<String> = page["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| text(&row["name"]))
        .collect();
    assert_eq!(names, (10..20).map(|n| format!("m{n:02}")).collect::<Vec<_>>());
    let numbers = ["total", "page", "limit", "totalPages"].map(|field| page[field].as_i64().unwrap());
    assert_eq!(numbers, [25, 2, 10, 3]);
    assert_eq!(page.as_object().unwrap().len(), 5);
    assert_eq!(ana.get("/api/templates").ok()["data"].as_array().unwrap().len(), 20);
    assert_eq!(ana.get("/api/templates?page=9").ok()["data"], json!([]));

    for sort in ["created_at", "updated_at", "name"] {
        for order in ["asc", "desc"] {
            let (mut seen, mut cursor) = (Vec::new(), String::new());
            loop {
                let path = format!("/api/templates?limit=10&sort={sort}&order={order}&cursor={cursor}");
                let page = ana.get(&path).ok();
                assert_eq!(page.as_object().unwrap().len(), 3, "{page}");
                seen.extend(page["data"].as_array().unwrap().iter().map(|row| text(&row["name"])));
                if page["hasMore"] == json!(false) {
                    assert_eq!(page["nextCursor"], json!(null));
                    break;
                }
                cursor = text(&page["nextCursor"]);
            }
            assert_eq!(
                (seen.len(), seen.iter().collect::<BTreeSet<_>>().len()),
                (25, 25),
                "{sort} {order}"
            );
            assert!(
                if order == "asc" {
                    seen.is_sorted()
                } else {
                    seen.is_sorted_by(|a, b| a > b)
                },
                "{seen:?}"
            );
        }
    }
    assert_eq!(ana.get("/api/templates?cursor=zz").invalid(), ["cursor"]);
}

#[test]
fn template_filters_narrow_the_list() {
    let server = Server::new();
    let ana = server.owner();
    create_templates(&ana);
    let total = |query: &str| {
        ana.get(&format!("/api/templates?{query}")).ok()["total"]
            .as_i64()
            .unwrap()
    };
    assert_eq!(total("category=UTILITY"), 5);
    assert_eq!(total("search=M1"), 10);
    assert_eq!(total("search=TEXTO%2024"), 1);
    assert_eq!(total("search=%25"), 0);
    assert_eq!(total("meta_status=approved"), 0);
    assert_eq!(total("meta_status=draft&category=UTILITY"), 5);
    assert_eq!(
        ana.get("/api/templates?category=x&meta_status=y&sort=z").invalid(),
        ["category", "meta_status", "sort"]
    );
    let id = ana.approved("Oi", &[]);
    let list = ana.get("/api/templates?meta_status=approved").ok();
    assert_eq!((&list["total"], &list["data"][0]["id"]), (&json!(1), &json!(id)));
}

#[test]
fn concurrent_template_updates_are_both_saved() {
    let server = Server::new();
    let ana = server.owner();
    let id = ana.template("t", "Oi {{1}}, tudo bem?", &["Ana"]);
    let path = format!("/api/templates/{id}");
    for round in 0..10 {
        let changes = [
            json!({ "body_text": format!("Oi {{{{1}}}}, {round}!") }),
            json!({ "footer_text": format!("Loja {round}") }),
        ];
        let requests = changes.map(|change| ana.request("PUT", &path).json(&change));
        std::thread::scope(|scope| {
            let threads = requests.map(|request| scope.spawn(|| request.send().ok()));
            threads.map(|thread| thread.join().unwrap())
        });
        let template = ana.get(&path).ok();
        assert_eq!(template["body_text"], format!("Oi {{{{1}}}}, {round}!"));
        assert_eq!(template["footer_text"], format!("Loja {round}"));
    }
}
