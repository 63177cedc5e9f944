//! The WhatsApp simulator's templates: creation, review, lists, edits, deletion, and the checks of sends.

use recado_simulators::whatsapp::{Approval, WhatsappFault, WhatsappFaultKind, WhatsappOptions};
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::whatsapp::{TO, call, code, message, send, start, template};
use crate::{request, wait_until};

#[test]
fn template_send_is_checked_against_the_registry() {
    let whatsapp = start(WhatsappOptions::default());
    let id = whatsapp.add_template(&template("promo"));
    assert_eq!(send(&whatsapp, TO).status, 200);
    let mut english = message(TO, &["Ana"]);
    english["template"]["language"]["code"] = json!("en");
    assert_eq!(code(&call(&whatsapp, "POST", "/1065/messages", Some(&english))), 132001);
    let two = call(&whatsapp, "POST", "/1065/messages", Some(&message(TO, &["Ana", "10"])));
    assert_eq!((two.status, code(&two)), (400, 132000));
    assert!(
        two.json()["error"]["error_data"]["details"]
            .as_str()
            .unwrap()
            .contains("(2)")
    );
    for (event, expected) in [("PAUSED", 132015), ("DISABLED", 132016), ("REJECTED", 132001)] {
        assert!(whatsapp.set_template_status(&id, event, None));
        assert_eq!(code(&send(&whatsapp, TO)), expected, "{event}");
    }
    assert!(!whatsapp.set_template_status("1", "PAUSED", None));
}

#[test]
fn template_lives_from_creation_to_deletion() {
    let receiver = Receiver::start(0);
    let whatsapp = start(WhatsappOptions {
        callback_url: Some(receiver.url.clone()),
        ..WhatsappOptions::default()
    });
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        let created = call(&whatsapp, "POST", "/77/message_templates", Some(&template(name))).json();
        assert_eq!(
            (&created["status"], &created["category"]),
            (&json!("PENDING"), &json!("MARKETING"))
        );
        ids.push(created["id"].as_str().unwrap().to_owned());
    }
    let again = call(&whatsapp, "POST", "/77/message_templates", Some(&template("a")));
    assert_eq!((again.status, code(&again)), (400, 100));
    wait_until("three approvals", || receiver.values().len() == 3);
    let update = receiver.values().remove(0);
    assert_eq!(update["event"], "APPROVED");
    assert!(update["message_template_id"].is_u64());
    assert_eq!(update["message_template_id"].to_string(), ids[0]);
    assert_eq!(receiver.posts()[0].json()["entry"][0]["id"], "77");
    let shown = call(&whatsapp, "GET", &format!("/{}?fields=name,status", ids[0]), None).json();
    assert_eq!(shown, json!({ "id": ids[0], "name": "a", "status": "APPROVED" }));

    let first = call(&whatsapp, "GET", "/77/message_templates?limit=2", None).json();
    assert_eq!(first["data"].as_array().unwrap().len(), 2);
    let next = first["paging"]["next"].as_str().unwrap();
    let last = request("GET", next, &[("authorization", "Bearer t")], None)
        .unwrap()
        .json();
    assert_eq!(last["data"][0]["name"], "c");
    assert!(last["paging"]["next"].is_null());
    let filtered = call(&whatsapp, "GET", "/77/message_templates?name=b&status=APPROVED", None).json();
    assert_eq!(filtered["data"].as_array().unwrap().len(), 1);
    assert_eq!(
        call(&whatsapp, "GET", "/78/message_templates", None).json()["data"],
        json!([])
    );

    whatsapp.set_options(|options| options.template_approval = Approval::Manual);
    let edit = json!({ "components": [{ "type": "BODY", "text": "Olá!" }] });
    assert_eq!(
        call(&whatsapp, "POST", &format!("/{}", ids[0]), Some(&edit)).json(),
        json!({ "success": true })
    );
    assert_eq!(
        call(&whatsapp, "GET", &format!("/{}", ids[0]), None).json()["status"],
        "PENDING"
    );
    assert_eq!(
        code(&call(&whatsapp, "POST", &format!("/{}", ids[0]), Some(&edit))),
        100
    );
    assert_eq!(
        call(&whatsapp, "DELETE", "/77/message_templates?name=a", None).status,
        200
    );
    assert_eq!(
        call(&whatsapp, "DELETE", "/77/message_templates?name=a", None).status,
        400
    );
    assert_eq!(call(&whatsapp, "GET", &format!("/{}", ids[0]), None).status, 400);
}

#[test]
fn template_creation_is_checked_and_review_can_reject() {
    let receiver = Receiver::start(0);
    let approval = Approval::Reject {
        after_ms: 0,
        reason: "INVALID_FORMAT".into(),
    };
    let url = Some(receiver.url.clone());
    let whatsapp = start(WhatsappOptions {
        callback_url: url,
        template_approval: approval,
        ..WhatsappOptions::default()
    });
    let created = |body: Value| call(&whatsapp, "POST", "/77/message_templates", Some(&body));
    let body = |text: &str| {
        json!({ "name": "x", "language": "pt_BR", "category": "UTILITY",
                                    "components": [{ "type": "BODY", "text": text }] })
    };
    assert_eq!(code(&created(template("Bad Name"))), 100);
    assert_eq!(code(&created(body("{{1}} oi"))), 2388299);
    assert_eq!(code(&created(body("Oi {{1}}!"))), 2388072);
    assert_eq!(code(&created(body(&"a".repeat(1025)))), 2388040);
    whatsapp.script(vec![WhatsappFault::template(WhatsappFaultKind::error(2388019, ""))]);
    assert_eq!(code(&created(template("x"))), 2388019);
    assert_eq!(created(template("x")).status, 200);
    wait_until("the rejection", || receiver.values().len() == 1);
    let value = receiver.values().remove(0);
    assert_eq!(
        (&value["event"], &value["reason"]),
        (&json!("REJECTED"), &json!("INVALID_FORMAT"))
    );
}
