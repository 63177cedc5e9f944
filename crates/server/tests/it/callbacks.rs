//! The platform's callback: who may post it, and what its news does to sends.

use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind, signature};
use serde_json::{Value, json};

use crate::harness::runs::{adds_up, counted, silent, status, statuses};
use crate::harness::users::{User, phone};
use crate::harness::{Server, VERIFY_TOKEN, WHATSAPP_APP_SECRET, text, until};

const NUMBER: &str = "106500000001";

/// A finished campaign to so many contacts, whose platform told nothing since; its sends.
fn sent(ana: &User<'_>, contacts: usize) -> (String, Vec<Value>) {
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
fn the_handshake_proves_the_address() {
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
fn only_the_right_signature_is_heard() {
    let server = Server::start(silent());
    let ana = server.owner();
    let (campaign, sends) = sent(&ana, 1);
    let body = statuses(NUMBER, &[status(&wamid(&sends[0]), "read", None)]).to_string();
    let right = signature(WHATSAPP_APP_SECRET, body.as_bytes());
    let post = |signature: Option<&str>, body: &str| {
        let request = server.post("/api/whatsapp/webhook").body("application/json", body);
        let request = signature
            .iter()
            .fold(request, |request, s| request.header("X-Hub-Signature-256", s));
        request.send()
    };
    let other = signature("another secret", body.as_bytes());
    let bare = right.trim_start_matches("sha256=").to_owned();
    let upper = format!("SHA256={bare}");
    let short = right[..right.len() - 2].to_owned();
    for wrong in [
        None,
        Some(other.as_str()),
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
fn a_body_without_news_is_taken() {
    let server = Server::new();
    let odd = [
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
    for body in odd {
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
        "not JSON, but signed: the platform would repeat it for days"
    );
    until("nothing is kept", || server.db.count("FROM whatsapp_callbacks") == 0);
}

#[test]
fn statuses_move_forward_only_and_the_counters_add_up() {
    let server = Server::start(silent());
    let ana = server.owner();
    let (campaign, sends) = sent(&ana, 1);
    let wamid = wamid(&sends[0]);
    let tell = |news: &str| {
        assert_eq!(
            server.callback(&statuses(NUMBER, &[status(&wamid, news, None)])).status,
            200
        );
        let stats = ana.stats(&campaign);
        adds_up(&stats);
        text(&ana.sends(&campaign)[0]["status"])
    };
    let heard = [
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
    .map(tell);
    assert_eq!(
        heard,
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
fn what_was_sent_from_a_number_that_is_not_there_any_more_is_still_told_of() {
    let server = Server::start(silent());
    let (ana, bia) = (server.owner(), server.owner());
    let (campaign, sends) = sent(&ana, 2);
    let profile = text(&ana.get("/api/whatsapp/profiles").ok()["data"][0]["id"]);
    let path = format!("/api/whatsapp/profiles/{profile}");
    ana.put(&path, json!({ "phone_number_id": "106500000002" })).ok();
    server.callback(&statuses(NUMBER, &[status(&wamid(&sends[0]), "delivered", None)]));
    assert_eq!(ana.stats(&campaign)["delivered"], 1);
    ana.delete(&path).gone();
    // Whoever has the number now learns nothing of what others sent.
    bia.profile_at(NUMBER);
    let news = sends.iter().map(|send| status(&wamid(send), "read", None));
    server.callback(&statuses(NUMBER, &news.collect::<Vec<_>>()));
    assert_eq!(ana.stats(&campaign)["read"], 2);
    until("nothing is kept", || server.db.count("FROM whatsapp_callbacks") == 0);
}

#[test]
fn failed_is_final_and_tells_why() {
    let server = Server::start(silent());
    let ana = server.owner();
    let (campaign, sends) = sent(&ana, 2);
    let mut failed = status(&wamid(&sends[0]), "failed", None);
    failed["errors"] = json!([{ "code": 131_049, "title": "Not delivered", "message": "m",
        "error_data": { "details": "To keep the ecosystem healthy" } }]);
    server.callback(&statuses(NUMBER, &[failed]));
    for late in ["sent", "delivered", "read"] {
        server.callback(&statuses(NUMBER, &[status(&wamid(&sends[0]), late, None)]));
    }
    // A message that was delivered cannot fail any more.
    for news in ["delivered", "failed"] {
        server.callback(&statuses(NUMBER, &[status(&wamid(&sends[1]), news, None)]));
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
    // What failed after all does not count towards the month.
    assert_eq!(server.db.text("SELECT sent FROM message_usage"), "1");
}

#[test]
fn a_batch_is_applied_whole_and_twice_changes_nothing() {
    let server = Server::start(silent());
    let ana = server.owner();
    let (campaign, sends) = sent(&ana, 30);
    let mut news: Vec<Value> = Vec::new();
    for (position, send) in sends.iter().enumerate() {
        news.push(status(&wamid(send), "read", None));
        news.push(status(
            &wamid(send),
            if position % 2 == 0 { "delivered" } else { "sent" },
            None,
        ));
    }
    news.push(status("wamid.somebody-else's", "read", None));
    for _ in 0..2 {
        assert_eq!(server.callback(&statuses(NUMBER, &news)).status, 200);
        assert_eq!(ana.stats(&campaign)["read"], 30);
    }
    adds_up(&ana.stats(&campaign));
}

#[test]
fn concurrent_callbacks_of_the_same_sends_count_once() {
    let server = Server::start(silent());
    let ana = server.owner();
    let (campaign, sends) = sent(&ana, 20);
    let news = |word: &str, reverse: bool| {
        let mut news: Vec<Value> = sends.iter().map(|send| status(&wamid(send), word, None)).collect();
        if reverse {
            news.reverse();
        }
        let body = statuses(NUMBER, &news).to_string();
        let signed = signature(WHATSAPP_APP_SECRET, body.as_bytes());
        server
            .post("/api/whatsapp/webhook")
            .header("X-Hub-Signature-256", &signed)
            .body("application/json", body)
    };
    std::thread::scope(|scope| {
        for round in 0..8 {
            let word = ["sent", "delivered", "read"][round % 3];
            let request = news(word, round % 2 == 0);
            scope.spawn(move || assert_eq!(request.send().status, 200));
        }
    });
    let stats = counted(&ana, &campaign, "read", 20);
    adds_up(&stats);
}

#[test]
fn news_finds_its_send_by_our_id_before_the_platforms_is_known() {
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contacts(1);
    // Accepted, and nobody heard the answer: the send has no id of the platform's.
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
    let told = server.whatsapp.sends()[0].callback_data.clone().unwrap();
    assert_eq!(json!(told), send["id"], "what comes back names our send");
    server.callback(&statuses(NUMBER, &[status("wamid.X", "delivered", Some(&told))]));
    let send = ana.sends(&campaign)[0].clone();
    assert_eq!(
        (&send["status"], &send["wa_message_id"]),
        (&json!("delivered"), &json!("wamid.X"))
    );
    server.callback(&statuses(NUMBER, &[status("wamid.X", "read", None)]));
    assert_eq!(ana.stats(&campaign)["read"], 1);
}

#[test]
fn news_that_comes_before_its_record_is_kept_and_applied() {
    let server = Server::start(silent());
    let ana = server.owner();
    let (campaign, sends) = sent(&ana, 1);
    // By the platform's id alone, which is not recorded yet.
    server.db.run("UPDATE campaign_sends SET wa_message_id = NULL");
    server.callback(&statuses(NUMBER, &[status(&wamid(&sends[0]), "read", None)]));
    assert_eq!(ana.stats(&campaign)["sent"], 1);
    assert_eq!(server.db.count("FROM whatsapp_callbacks"), 1);
    server.db.run(&format!(
        "UPDATE campaign_sends SET wa_message_id = '{}'",
        wamid(&sends[0])
    ));
    counted(&ana, &campaign, "read", 1);
    until("it is forgotten", || server.db.count("FROM whatsapp_callbacks") == 0);
}

#[test]
fn another_accounts_number_moves_nothing() {
    let server = Server::start(silent());
    let (ana, bia) = (server.owner(), server.owner());
    let (campaign, sends) = sent(&ana, 1);
    bia.profile_at("222");
    let news = |number: &str| {
        statuses(
            number,
            &[status(&wamid(&sends[0]), "read", Some(&text(&sends[0]["id"])))],
        )
    };
    server.callback(&news("222"));
    server.callback(&news("333"));
    assert_eq!(ana.stats(&campaign)["read"], 0);
    // The same number in both accounts: the send is found where it is.
    bia.profile_at(NUMBER);
    server.callback(&news(NUMBER));
    assert_eq!(ana.stats(&campaign)["read"], 1);
}

#[test]
fn the_platforms_own_order_and_repetitions_are_survived() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    ana.contacts(12);
    let faults = (0..12).map(|number| {
        let kind = match number % 3 {
            0 => WhatsappFaultKind::DuplicateCallbacks { n: 3 },
            1 => WhatsappFaultKind::ReorderCallbacks,
            _ => WhatsappFaultKind::WrongSignature,
        };
        WhatsappFault::send_to(&phone(number), kind)
    });
    server.whatsapp.script(faults.collect());
    let campaign = ana.plain_campaign();
    assert_eq!(ana.execute(&campaign).ok()["sent"], 12);
    let stats = counted(&ana, &campaign, "read", 8);
    assert_eq!(stats["sent"], 4, "what is wrongly signed is not heard");
}
