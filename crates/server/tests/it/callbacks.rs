//! WhatsApp's callback: the handshake, the signature check, and how status updates change sends.

use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind, signature};
use serde_json::{Value, json};

use crate::harness::runs::{assert_stats_add_up, status, statuses, wait_for_stat, without_statuses};
use crate::harness::users::{User, phone};
use crate::harness::{Server, VERIFY_TOKEN, WHATSAPP_APP_SECRET, text, until};

const NUMBER: &str = "106500000001";

/// Completes a campaign to `contacts` contacts without any status update. Returns the campaign and its sends.
fn completed_campaign(ana: &User<'_>, contacts: usize) -> (String, Vec<Value>) {
    ana.profile_at(NUMBER);
    ana.contacts(contacts);
    let campaign = ana.plain_campaign();
    assert_eq!(ana.execute(&campaign).ok()["status"], "completed");
    let sends = ana.sends(&campaign);
    assert_eq!(sends.len(), contacts);
    (campaign, sends)
}

fn wamid(send: &Value) -> String {
    text(&send["wa_message_id"])
}

#[test]
fn callback_handshake_requires_the_verify_token() {
    let server = Server::new();
    let get = |query: &str| server.get(&format!("/api/whatsapp/webhook?{query}")).send();
    let good = get(&format!(
        "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token={VERIFY_TOKEN}"
    ));
    assert_eq!((good.status, good.text.as_str()), (200, "1158201444"));
    assert!(good.header("content-type").unwrap().starts_with("text/plain"));
    for query in [
        "hub.mode=subscribe&hub.challenge=1&hub.verify_token=wrong".to_owned(),
        "hub.mode=subscribe&hub.challenge=1".to_owned(),
        format!("hub.mode=unsubscribe&hub.challenge=1&hub.verify_token={VERIFY_TOKEN}"),
        format!("hub.mode=subscribe&hub.verify_token={VERIFY_TOKEN}"),
        String::new(),
    ] {
        get(&query).refused(403, "FORBIDDEN");
    }
}

#[test]
fn callback_requires_a_valid_signature() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let (campaign, sends) = completed_campaign(&ana, 1);
    let body = statuses(NUMBER, &[status(&wamid(&sends[0]), "read", None)]).to_string();
    let right = signature(WHATSAPP_APP_SECRET, body.as_bytes());
    let post = |signature: Option<&str>, body: &str| {
        let request = server.post("/api/whatsapp/webhook").body("application/json", body);
        let request = signature
            .iter()
            .fold(request, |request, s| request.header("X-Hub-Signature-256", s));
        request.send()
    };
    let foreign = signature("another secret", body.as_bytes());
    let bare = right.trim_start_matches("sha256=").to_owned();
    let upper = format!("SHA256={bare}");
    let short = right[..right.len() - 2].to_owned();
    for wrong in [
        None,
        Some(foreign.as_str()),
        Some(&bare),
        Some(&upper),
        Some(&short),
        Some("sha256="),
        Some(""),
    ] {
        post(wrong, &body).refused(401, "AUTH_ERROR");
    }
    post(Some(&right), &format!("{body} ")).refused(401, "AUTH_ERROR");
    assert_eq!(ana.stats(&campaign)["read"], 0);
    assert_eq!(server.db.count("FROM whatsapp_callbacks"), 0);
    let reply = post(Some(&right), &body);
    assert_eq!(reply.status, 200);
    assert_eq!(ana.stats(&campaign)["read"], 1);
}

#[test]
fn callback_without_known_content_is_accepted() {
    let server = Server::new();
    let bodies = [
        json!({}),
        json!([]),
        json!("x"),
        json!({ "object": "whatsapp_business_account", "entry": [] }),
        json!({ "entry": [{ "id": 7, "changes": "x" }] }),
        json!({ "entry": [{ "id": "7", "changes": [{ "field": "account_update", "value": { "event": "X" } }] }] }),
        json!({ "entry": [{ "id": "7", "changes": [{ "field": "messages", "value": { "statuses": [{}] } }] }] }),
        statuses("999", &[status("wamid.none", "read", None)]),
        statuses("999", &[status("wamid.none", "played", Some("not-a-uuid"))]),
    ];
    for body in bodies {
        let reply = server.callback(&body);
        assert_eq!(reply.status, 200, "{body}: {}", reply.text);
    }
    let huge = "x".repeat(4 * 1024 * 1024 + 1);
    let request = server
        .post("/api/whatsapp/webhook")
        .body("application/json", huge.clone());
    let huge = request
        .header("X-Hub-Signature-256", &signature(WHATSAPP_APP_SECRET, huge.as_bytes()))
        .send();
    huge.refused(413, "PAYLOAD_TOO_LARGE");
    let large = "x".repeat(3 * 1024 * 1024);
    let request = server
        .post("/api/whatsapp/webhook")
        .body("application/json", large.clone());
    let large = request
        .header("X-Hub-Signature-256", &signature(WHATSAPP_APP_SECRET, large.as_bytes()))
        .send();
    assert_eq!(
        large.status, 200,
        "signed but not JSON: WhatsApp would repeat a refused callback for days"
    );
    until("no callback is stored", || {
        server.db.count("FROM whatsapp_callbacks") == 0
    });
}

#[test]
fn statuses_only_move_forward_and_counters_add_up() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let (campaign, sends) = completed_campaign(&ana, 1);
    let wamid = wamid(&sends[0]);
    let report = |name: &str| {
        assert_eq!(
            server.callback(&statuses(NUMBER, &[status(&wamid, name, None)])).status,
            200
        );
        let stats = ana.stats(&campaign);
        assert_stats_add_up(&stats);
        text(&ana.sends(&campaign)[0]["status"])
    };
    let shown = [
        "delivered",
        "sent",
        "delivered",
        "bogus",
        "read",
        "delivered",
        "sent",
        "failed",
        "read",
    ]
    .map(report);
    assert_eq!(
        shown,
        [
            "delivered",
            "delivered",
            "delivered",
            "delivered",
            "read",
            "read",
            "read",
            "read",
            "read"
        ]
    );
    assert_eq!(server.db.text("SELECT sent FROM message_usage"), "1");
}

#[test]
fn status_of_disconnected_number_still_updates_its_sends() {
    let server = Server::start(without_statuses());
    let (ana, bia) = (server.owner(), server.owner());
    let (campaign, sends) = completed_campaign(&ana, 2);
    let profile = text(&ana.get("/api/whatsapp/profiles").ok()["data"][0]["id"]);
    let path = format!("/api/whatsapp/profiles/{profile}");
    ana.put(&path, json!({ "phone_number_id": "106500000002" })).ok();
    server.callback(&statuses(NUMBER, &[status(&wamid(&sends[0]), "delivered", None)]));
    assert_eq!(ana.stats(&campaign)["delivered"], 1);
    ana.delete(&path).no_content();
    // A status update applies to the account that sent the message, not to the one that has the number now.
    bia.profile_at(NUMBER);
    let updates = sends.iter().map(|send| status(&wamid(send), "read", None));
    server.callback(&statuses(NUMBER, &updates.collect::<Vec<_>>()));
    assert_eq!(ana.stats(&campaign)["read"], 2);
    until("no callback is stored", || {
        server.db.count("FROM whatsapp_callbacks") == 0
    });
}

#[test]
fn failed_status_is_final_and_stores_the_reason() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let (campaign, sends) = completed_campaign(&ana, 2);
    let mut failed = status(&wamid(&sends[0]), "failed", None);
    failed["errors"] = json!([{ "code": 131_049, "title": "Not delivered", "message": "m",
        "error_data": { "details": "To keep the ecosystem healthy" } }]);
    server.callback(&statuses(NUMBER, &[failed]));
    for late in ["sent", "delivered", "read"] {
        server.callback(&statuses(NUMBER, &[status(&wamid(&sends[0]), late, None)]));
    }
    // A delivered message can no longer fail.
    for name in ["delivered", "failed"] {
        server.callback(&statuses(NUMBER, &[status(&wamid(&sends[1]), name, None)]));
    }
    let stats = ana.stats(&campaign);
    assert_eq!(
        stats,
        json!({ "total": 2, "pending": 0, "sent": 0, "delivered": 1, "read": 0, "failed": 1 })
    );
    let now = ana.sends(&campaign);
    let failed = now.iter().find(|send| send["status"] == "failed").unwrap();
    assert_eq!(failed["error_code"], 131_049);
    assert_eq!(failed["error_message"], "To keep the ecosystem healthy");
    // A send that fails later does not count towards the month's quota.
    assert_eq!(server.db.text("SELECT sent FROM message_usage"), "1");
}

#[test]
fn status_batch_applies_completely_and_only_once() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let (campaign, sends) = completed_campaign(&ana, 30);
    let mut updates: Vec<Value> = Vec::new();
    for (position, send) in sends.iter().enumerate() {
        updates.push(status(&wamid(send), "read", None));
        updates.push(status(
            &wamid(send),
            if position % 2 == 0 { "delivered" } else { "sent" },
            None,
        ));
    }
    updates.push(status("wamid.unknown", "read", None));
    for _ in 0..2 {
        assert_eq!(server.callback(&statuses(NUMBER, &updates)).status, 200);
        assert_eq!(ana.stats(&campaign)["read"], 30);
    }
    assert_stats_add_up(&ana.stats(&campaign));
}

#[test]
fn concurrent_callbacks_of_the_same_sends_count_once() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let (campaign, sends) = completed_campaign(&ana, 20);
    let callback = |name: &str, reverse: bool| {
        let mut updates: Vec<Value> = sends.iter().map(|send| status(&wamid(send), name, None)).collect();
        if reverse {
            updates.reverse();
        }
        let body = statuses(NUMBER, &updates).to_string();
        let signed = signature(WHATSAPP_APP_SECRET, body.as_bytes());
        server
            .post("/api/whatsapp/webhook")
            .header("X-Hub-Signature-256", &signed)
            .body("application/json", body)
    };
    std::thread::scope(|scope| {
        for round in 0..8 {
            let name = ["sent", "delivered", "read"][round % 3];
            let request = callback(name, round % 2 == 0);
            scope.spawn(move || assert_eq!(request.send().status, 200));
        }
    });
    let stats = wait_for_stat(&ana, &campaign, "read", 20);
    assert_stats_add_up(&stats);
}

#[test]
fn status_finds_send_by_callback_data_without_whatsapp_id() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contacts(1);
    // WhatsApp accepts the message, but its response is lost: the send has no WhatsApp id.
    server
        .whatsapp
        .script(vec![WhatsappFault::send(WhatsappFaultKind::AcceptThenReset)]);
    let campaign = ana.plain_campaign();
    let report = ana.execute(&campaign).ok();
    assert_eq!(
        (&report["sent"], &report["failed"], &report["status"]),
        (&json!(0), &json!(1), &json!("partial"))
    );
    let send = ana.sends(&campaign)[0].clone();
    assert_eq!(
        (&send["status"], &send["wa_message_id"]),
        (&json!("pending"), &json!(null))
    );
    let callback_data = server.whatsapp.sends()[0].callback_data.clone().unwrap();
    assert_eq!(json!(callback_data), send["id"], "the callback data is the send's id");
    let delivered = status("wamid.X", "delivered", Some(&callback_data));
    server.callback(&statuses(NUMBER, &[delivered]));
    let send = ana.sends(&campaign)[0].clone();
    assert_eq!(
        (&send["status"], &send["wa_message_id"]),
        (&json!("delivered"), &json!("wamid.X"))
    );
    server.callback(&statuses(NUMBER, &[status("wamid.X", "read", None)]));
    assert_eq!(ana.stats(&campaign)["read"], 1);
}

#[test]
fn status_that_precedes_the_recorded_id_is_applied_later() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let (campaign, sends) = completed_campaign(&ana, 1);
    // The status update names only WhatsApp's id, which is not recorded yet.
    server.db.run("UPDATE campaign_sends SET wa_message_id = NULL");
    server.callback(&statuses(NUMBER, &[status(&wamid(&sends[0]), "read", None)]));
    assert_eq!(ana.stats(&campaign)["sent"], 1);
    assert_eq!(server.db.count("FROM whatsapp_callbacks"), 1);
    server.db.run(&format!(
        "UPDATE campaign_sends SET wa_message_id = '{}'",
        wamid(&sends[0])
    ));
    wait_for_stat(&ana, &campaign, "read", 1);
    until("the callback is deleted", || {
        server.db.count("FROM whatsapp_callbacks") == 0
    });
}

#[test]
fn status_on_other_accounts_number_changes_nothing() {
    let server = Server::start(without_statuses());
    let (ana, bia) = (server.owner(), server.owner());
    let (campaign, sends) = completed_campaign(&ana, 1);
    bia.profile_at("222");
    let read_on = |number: &str| {
        statuses(
            number,
            &[status(&wamid(&sends[0]), "read", Some(&text(&sends[0]["id"])))],
        )
    };
    server.callback(&read_on("222"));
    server.callback(&read_on("333"));
    assert_eq!(ana.stats(&campaign)["read"], 0);
    // Both accounts have the number: the status update finds the account of the send.
    bia.profile_at(NUMBER);
    server.callback(&read_on(NUMBER));
    assert_eq!(ana.stats(&campaign)["read"], 1);
}

#[test]
fn repeated_and_reordered_callbacks_are_tolerated() {
    const REPEATS: u32 = 10;
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    ana.contacts(12);
    let faults = (0..12).map(|number| {
        let kind = match number % 3 {
            0 => WhatsappFaultKind::DuplicateCallbacks { n: REPEATS },
            1 => WhatsappFaultKind::ReorderCallbacks,
            _ => WhatsappFaultKind::WrongSignature,
        };
        WhatsappFault::send_to(&phone(number), kind)
    });
    server.whatsapp.script(faults.collect());
    let campaign = ana.plain_campaign();
    assert_eq!(ana.execute(&campaign).ok()["sent"], 12);
    let stats = wait_for_stat(&ana, &campaign, "read", 8);
    assert_eq!(stats["sent"], 4, "callbacks with a wrong signature are refused");
}
