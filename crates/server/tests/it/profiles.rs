//! WhatsApp numbers of an account (profiles).

use serde_json::json;

use crate::harness::{Server, text};

#[test]
fn number_token_is_never_shown_in_its_lifecycle() {
    let server = Server::new();
    let ana = server.owner();
    let body = json!({ "name": "Loja", "phone_number_id": "106500000001", "waba_id": "10200000001",
                       "access_token": "EAAG-very-secret", "messages_per_second": 80 });
    let reply = ana.post("/api/whatsapp/profiles", body);
    assert!(
        !reply.text.contains("secret") && !reply.text.contains("access_token"),
        "{}",
        reply.text
    );
    let made = reply.created();
    assert_eq!(
        (&made["messages_per_second"], &made["waba_id"]),
        (&json!(80), &json!("10200000001"))
    );
    let path = format!("/api/whatsapp/profiles/{}", text(&made["id"]));
    let changed = ana
        .put(&path, json!({ "name": "Loja 2", "messages_per_second": null }))
        .ok();
    assert_eq!(
        (&changed["name"], &changed["messages_per_second"]),
        (&json!("Loja 2"), &json!(null))
    );
    let list = ana.get("/api/whatsapp/profiles");
    assert!(!list.text.contains("secret"));
    assert_eq!(list.ok()["data"], json!([changed]));
    // The token is encrypted at rest and absent from the log.
    let stored = server
        .db
        .text("SELECT encode(access_token, 'escape') FROM whatsapp_profiles");
    assert!(!stored.is_empty() && !stored.contains("secret"));
    assert!(!server.log().contains("very-secret"));
    ana.delete(&path).no_content();
    ana.delete(&path).refused(404, "NOT_FOUND");
    // An invalid body is reported before the missing number.
    let wrong = json!({ "messages_per_second": 0, "access_token": "a b" });
    assert_eq!(ana.put(&path, wrong).invalid(), ["access_token", "messages_per_second"]);
    ana.put(&path, json!({ "name": "Loja" })).refused(404, "NOT_FOUND");
    assert_eq!(ana.get("/api/whatsapp/profiles").ok()["data"], json!([]));
}

#[test]
fn invalid_number_names_the_field() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let with = |change: serde_json::Value| {
        let mut body = json!({ "name": "L", "phone_number_id": "1065", "waba_id": "102", "access_token": "t" });
        body.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        body
    };
    let cases = [
        (json!({ "name": "" }), "name"),
        (json!({ "name": "x".repeat(101) }), "name"),
        (json!({ "phone_number_id": "../7" }), "phone_number_id"),
        (json!({ "waba_id": "" }), "waba_id"),
        (json!({ "access_token": "" }), "access_token"),
        (json!({ "access_token": "a\nb" }), "access_token"),
        (json!({ "messages_per_second": 0 }), "messages_per_second"),
        (json!({ "messages_per_second": 1001 }), "messages_per_second"),
    ];
    for (change, field) in cases {
        assert_eq!(
            ana.post("/api/whatsapp/profiles", with(change.clone())).invalid(),
            [field],
            "{change}"
        );
    }
    ana.post("/api/whatsapp/profiles", with(json!({}))).created();
    assert_eq!(
        ana.post("/api/whatsapp/profiles", with(json!({}))).invalid(),
        ["phone_number_id"]
    );
    bia.post("/api/whatsapp/profiles", with(json!({}))).created();
}
