//! The WhatsApp simulator's callbacks: signature, order, batches, retries and scripted faults.

use std::time::Instant;

use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind, WhatsappOptions, signature};
use serde_json::{Value, json};

use crate::DEADLINE;
use crate::receiver::Receiver;
use crate::whatsapp::{TO, send, start, template};

#[test]
fn callback_signature_matches_the_published_vector() {
    let body = br#"{"object":"whatsapp_business_account","entry":[]}"#;
    let expected = "sha256=d3e4f9da0ce6c71ab3dba55929b8eeeee2455349e534924ead19f98d143e904f";
    assert_eq!(signature("app-secret", body), expected);
}

#[test]
fn callbacks_are_signed_ordered_and_retried() {
    let receiver = Receiver::start(2);
    let url = Some(receiver.url.clone());
    let options = WhatsappOptions {
        callback_url: url,
        sent_ms: Some(1),
        delivered_ms: Some(1),
        read_ms: Some(1),
        ..WhatsappOptions::default()
    };
    let whatsapp = start(options);
    whatsapp.add_template(
        &json!({ "waba_id": "77", "name": "promo", "language": "pt_BR", "components":
        template("promo")["components"] }),
    );
    let id = send(&whatsapp, "+5531988887777").json()["messages"][0]["id"].clone();
    assert!(whatsapp.wait_idle(DEADLINE));
    let posts = receiver.posts();
    assert_eq!(posts[0].body, posts[1].body, "a refused POST is repeated unchanged");
    for post in &posts {
        assert_eq!(post.headers["x-hub-signature-256"], signature("app-secret", &post.body));
    }
    let body = posts[0].json();
    assert_eq!(
        (&body["object"], &body["entry"][0]["id"]),
        (&json!("whatsapp_business_account"), &json!("77"))
    );
    assert_eq!(body["entry"][0]["changes"][0]["field"], "messages");
    assert_eq!(
        body["entry"][0]["changes"][0]["value"]["metadata"]["phone_number_id"],
        "1065"
    );
    let statuses: Vec<Value> = receiver
        .statuses()
        .into_iter()
        .skip(2 * count_statuses(&posts[0].json()))
        .collect();
    assert_eq!(names(&statuses), ["sent", "delivered", "read"]);
    for status in &statuses {
        assert_eq!(status["id"], id);
        assert_eq!(status["recipient_id"], "553188887777");
        assert_eq!(status["biz_opaque_callback_data"], "send-1");
        assert!(status["timestamp"].as_str().unwrap().parse::<u64>().unwrap() > 1_700_000_000);
    }
}

/// The number of statuses in a POST. The two refusals repeat them twice.
fn count_statuses(post: &Value) -> usize {
    post["entry"][0]["changes"][0]["value"]["statuses"]
        .as_array()
        .unwrap()
        .len()
}

fn names(statuses: &[Value]) -> Vec<&str> {
    statuses
        .iter()
        .map(|status| status["status"].as_str().unwrap())
        .collect()
}

#[test]
fn callbacks_are_batched_by_due_time() {
    let receiver = Receiver::start(0);
    let url = Some(receiver.url.clone());
    let whatsapp = start(WhatsappOptions {
        callback_url: url,
        sent_ms: Some(1500),
        delivered_ms: None,
        read_ms: None,
        ..WhatsappOptions::default()
    });
    let began = Instant::now();
    for n in 0..120 {
        assert_eq!(send(&whatsapp, &format!("+55119612{n:05}")).status, 200);
    }
    whatsapp.wait_idle(DEADLINE);
    assert_eq!(receiver.statuses().len(), 120);
    let largest = receiver
        .posts()
        .iter()
        .map(|post| count_statuses(&post.json()))
        .max()
        .unwrap();
    assert!(largest <= 50);
    // Only sends that take less than the delay are certain to become due together.
    if began.elapsed().as_millis() < 1000 {
        assert!(receiver.posts().len() < 120);
    }
}

#[test]
fn callback_faults_reorder_drop_repeat_and_forge() {
    let receiver = Receiver::start(0);
    let url = Some(receiver.url.clone());
    let whatsapp = start(WhatsappOptions {
        callback_url: url,
        ..WhatsappOptions::default()
    });
    let statuses_after = |kind: WhatsappFaultKind| {
        let seen = receiver.statuses().len();
        whatsapp.script(vec![WhatsappFault::send(kind)]);
        assert_eq!(send(&whatsapp, TO).status, 200);
        assert!(whatsapp.wait_idle(DEADLINE));
        let added: Vec<Value> = receiver.statuses().into_iter().skip(seen).collect();
        names(&added).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        statuses_after(WhatsappFaultKind::ReorderCallbacks),
        ["read", "delivered", "sent"]
    );
    assert_eq!(statuses_after(WhatsappFaultKind::DropCallbacks), [""; 0]);
    let doubled = ["sent", "sent", "delivered", "delivered", "read", "read"];
    assert_eq!(statuses_after(WhatsappFaultKind::DuplicateCallbacks { n: 1 }), doubled);
    let before = receiver.posts().len();
    assert_eq!(statuses_after(WhatsappFaultKind::WrongSignature).len(), 3);
    for post in receiver.posts().iter().skip(before) {
        assert_ne!(post.headers["x-hub-signature-256"], signature("app-secret", &post.body));
    }
}

#[test]
fn callback_statuses_follow_never_read_and_fail_percent() {
    let receiver = Receiver::start(0);
    let url = Some(receiver.url.clone());
    let whatsapp = start(WhatsappOptions {
        callback_url: url,
        never_read_percent: 100,
        ..WhatsappOptions::default()
    });
    send(&whatsapp, TO);
    assert!(whatsapp.wait_idle(DEADLINE));
    assert_eq!(names(&receiver.statuses()), ["sent", "delivered"]);
    whatsapp.set_options(|options| options.fail_percent = 100);
    send(&whatsapp, TO);
    assert!(whatsapp.wait_idle(DEADLINE));
    let failed = receiver.statuses().pop().unwrap();
    assert_eq!(
        (&failed["status"], &failed["errors"][0]["code"]),
        (&json!("failed"), &json!(131026))
    );
}
