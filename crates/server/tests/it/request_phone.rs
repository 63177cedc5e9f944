//! Contact requests: who may be asked, the message, and the cards that answer it.

use recado_simulators::whatsapp::{ContactCard, Inbound, WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::harness::client::{Reply, Request};
use crate::harness::runs::without_statuses;
use crate::harness::users::{User, now};
use crate::harness::{DEADLINE, Server, eventually, text, until};

const NUMBER: &str = "106500000001";
const ANA: &str = "+5531988887777";
const BIA: &str = "+5511961234567";
const DAY: u64 = 24 * 3600;

/// A text of a person whose phone number WhatsApp hides.
fn hidden(user: &str) -> Inbound {
    Inbound {
        user_id: Some(user.into()),
        name: Some(user.into()),
        ..Inbound::text(NUMBER, "", "oi")
    }
}

fn wait_for_callbacks(server: &Server) {
    assert!(server.whatsapp.wait_idle(DEADLINE));
    until("every callback is processed", || {
        server.db.count("FROM whatsapp_callbacks") == 0
    });
}

fn contact(user: &User<'_>, name: &str) -> Value {
    let list = user.get("/api/contacts?limit=100").ok();
    let contacts = list["data"].as_array().unwrap();
    contacts.iter().find(|contact| contact["name"] == name).unwrap().clone()
}

fn conversation_of(user: &User<'_>, contact: &Value) -> String {
    let list = user.get("/api/conversations?limit=100").ok();
    let conversations = list["data"].as_array().unwrap();
    let found = conversations.iter().find(|found| found["contact_id"] == contact["id"]);
    text(&found.unwrap()["id"])
}

/// Receives a text of a hidden person. Returns the conversation's id.
fn open(user: &User<'_>, wa_user_id: &str) -> String {
    user.server.whatsapp.inbound(&hidden(wa_user_id));
    wait_for_callbacks(user.server);
    conversation_of(user, &contact(user, wa_user_id))
}

fn request(user: &User<'_>, conversation: &str) -> Request {
    user.request("POST", &format!("/api/conversations/{conversation}/request-phone"))
}

fn ask(user: &User<'_>, conversation: &str) -> Reply {
    request(user, conversation)
        .json(&json!({ "text": "Qual é o seu número?" }))
        .send()
}

#[track_caller]
fn assert_refused(reply: Reply, reason: &str) {
    let refused = reply.refused(400, "VALIDATION_ERROR");
    assert_eq!(refused["details"]["reason"], reason, "{refused}");
}

/// Sends a card of the person, and waits until it is shown.
fn send_card(user: &User<'_>, conversation: &str, wa_user_id: &str, card: ContactCard) {
    let wamid = user.server.whatsapp.inbound(&Inbound {
        card: Some(card),
        ..hidden(wa_user_id)
    });
    wait_for_callbacks(user.server);
    let newest = messages(user, conversation)
        .into_iter()
        .find(|message| message["wa_message_id"] == wamid);
    let newest = newest.unwrap();
    assert_eq!(
        (&newest["type"], &newest["direction"]),
        (&json!("contacts"), &json!("inbound"))
    );
}

fn messages(user: &User<'_>, conversation: &str) -> Vec<Value> {
    let page = user
        .get(&format!("/api/conversations/{conversation}/messages?limit=100"))
        .ok();
    page["data"].as_array().unwrap().clone()
}

fn by_hand(origin: Option<&str>) -> ContactCard {
    ContactCard {
        origin: origin.map(str::to_owned),
        ..ContactCard::answer(ANA)
    }
}

/// Moves the requests that have not failed into the past.
fn write_requests_ago(server: &Server, age: &str) {
    server.db.run(&format!(
        "UPDATE messages SET created_at = now() - interval '{age}'
         WHERE type = 'contact_request' AND status <> 'failed'"
    ));
}

#[test]
fn answered_contact_request_sets_the_phone() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let webhook = json!({ "name": "Eventos", "url": "https://e.example", "events": ["contact.updated"],
        "is_active": false });
    ana.post("/api/webhooks", webhook).created();
    let id = open(&ana, "BR.1");
    // A card shared by hand, and an answer to nothing.
    for card in [by_hand(Some("other")), by_hand(None), ContactCard::answer(ANA)] {
        send_card(&ana, &id, "BR.1", card);
        assert_eq!(contact(&ana, "BR.1")["phone"], Value::Null);
    }
    let message = request(&ana, &id)
        .json(&json!({ "text": "Qual é o seu número?" }))
        .send()
        .created();
    let expected = json!({ "id": message["id"], "conversation_id": id, "direction": "outbound",
        "type": "contact_request", "text": "Qual é o seu número?", "status": "sent", "origin": "reply",
        "wa_message_id": message["wa_message_id"], "media": null, "caption": null, "interactive": null, "context": null,
        "deleted_at": null, "referral": null, "pricing": null, "address": "user_id", "created_at": message["created_at"] });
    assert_eq!(message, expected);
    let sent = server.whatsapp.sends().remove(0);
    assert_eq!(sent.callback_data, Some(text(&message["id"])));
    let body = sent.request.body;
    assert_eq!((&body["recipient"], &body["to"]), (&json!("BR.1"), &Value::Null));
    let interactive = json!({ "type": "request_contact_info", "body": { "text": "Qual é o seu número?" },
        "action": { "name": "request_contact_info" } });
    assert_eq!(
        (&body["type"], &body["interactive"]),
        (&json!("interactive"), &interactive)
    );
    // Cards that name no number of the person's own.
    let several = ContactCard {
        numbers: vec![ANA.into(), BIA.into()],
        ..ContactCard::answer(ANA)
    };
    let without_wa_id = ContactCard {
        without_wa_id: true,
        ..ContactCard::answer(ANA)
    };
    for card in [by_hand(Some("other")), by_hand(None), several, without_wa_id] {
        send_card(&ana, &id, "BR.1", card);
        assert_eq!(contact(&ana, "BR.1")["phone"], Value::Null);
    }
    send_card(&ana, &id, "BR.1", ContactCard::answer(ANA));
    assert_eq!(contact(&ana, "BR.1")["phone"], ANA);
    let updated = eventually("contact.updated", || {
        let events = ana.get("/api/webhooks/events?limit=100&type=contact.updated").ok();
        let events = events["data"].as_array().unwrap().clone();
        events.into_iter().find(|event| event["data"]["phone"] == ANA)
    });
    assert!(updated.is_object());
    assert_refused(ask(&ana, &id), "phone_known");
    // A later answer replaces nothing.
    send_card(&ana, &id, "BR.1", ContactCard::answer(BIA));
    assert_eq!(contact(&ana, "BR.1")["phone"], ANA);
    let sent = ana
        .post(
            &format!("/api/conversations/{id}/messages"),
            json!({ "text": "Obrigada!" }),
        )
        .created();
    assert_eq!(sent["status"], "sent");
    assert_eq!(server.whatsapp.sends().pop().unwrap().to.as_deref(), Some(ANA));
}

#[test]
fn answer_with_another_persons_number_changes_no_contact() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contact("Bia", BIA);
    let (first, second) = (open(&ana, "BR.1"), open(&ana, "BR.2"));
    ask(&ana, &first).created();
    let before = [contact(&ana, "Bia"), contact(&ana, "BR.1"), contact(&ana, "BR.2")];
    send_card(&ana, &first, "BR.1", ContactCard::answer(BIA));
    // The request was to another person.
    send_card(&ana, &second, "BR.2", ContactCard::answer(ANA));
    // The request is older than a week.
    ask(&ana, &second).created();
    write_requests_ago(&server, "7 days 1 minute");
    send_card(&ana, &second, "BR.2", ContactCard::answer(ANA));
    let after = [contact(&ana, "Bia"), contact(&ana, "BR.1"), contact(&ana, "BR.2")];
    assert_eq!(after, before);
    // The same request is answered in time.
    write_requests_ago(&server, "6 days 23 hours");
    send_card(&ana, &second, "BR.2", ContactCard::answer(ANA));
    assert_eq!(contact(&ana, "BR.2")["phone"], ANA);
}

#[test]
fn contact_is_asked_once_a_day_however_many_ask() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let id = open(&ana, "BR.1");
    let path = format!("/api/conversations/{id}/request-phone");
    for wrong in [
        json!({ "text": "" }),
        json!({ "text": " " }),
        json!({ "text": "é".repeat(1025) }),
        json!({ "text": 7 }),
    ] {
        assert_eq!(ana.post(&path, wrong).invalid(), ["text"]);
    }
    // A request that WhatsApp refused did not ask.
    let refusal = WhatsappFaultKind::error(131_051, "unsupported");
    server.whatsapp.script(vec![WhatsappFault::send(refusal)]);
    ask(&ana, &id).refused(502, "WHATSAPP_ERROR");
    assert_eq!(messages(&ana, &id)[0]["status"], "failed");
    let call = request(&ana, &id).json(&json!({ "text": "Qual é o seu número?" }));
    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let calls = vec![call; 8].into_iter();
        let threads: Vec<_> = calls.map(|call| scope.spawn(move || call.send())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (created, refused): (Vec<Reply>, Vec<Reply>) = replies.into_iter().partition(|reply| reply.status == 201);
    assert_eq!((created.len(), refused.len()), (1, 7));
    for reply in refused {
        assert_refused(reply, "asked_already");
    }
    assert_eq!(server.whatsapp.sends().len(), 2);
    write_requests_ago(&server, "23 hours 59 minutes");
    assert_refused(ask(&ana, &id), "asked_already");
    write_requests_ago(&server, "24 hours");
    // Without a text, the contact is asked in Portuguese, then in the language of most templates.
    let default = request(&ana, &id).send().created();
    assert!(text(&default["text"]).contains("telefone"), "{default}");
    write_requests_ago(&server, "2 days");
    let template = json!({ "name": "welcome", "category": "UTILITY", "language": "en_US", "template_type": "standard",
        "body_text": "Hello" });
    ana.post("/api/templates", template).created();
    let english = ana.post(&path, json!({})).created();
    assert!(text(&english["text"]).contains("phone number"), "{english}");
}

#[test]
fn contact_request_is_refused_by_state() {
    let server = Server::start(without_statuses());
    let (ana, bia) = (server.owner(), server.owner());
    ana.profile_at(NUMBER);
    let id = open(&ana, "BR.1");
    ask(&bia, &id).refused(404, "NOT_FOUND");
    let viewer = server.member(&ana.account, "viewer");
    assert_eq!(ask(&viewer, &id).status, 401);
    server.whatsapp.inbound(&Inbound {
        timestamp: Some(now() - DAY - 1),
        ..hidden("BR.2")
    });
    server.whatsapp.inbound(&Inbound {
        name: Some("Conhecida".into()),
        ..Inbound::text(NUMBER, BIA, "oi")
    });
    wait_for_callbacks(&server);
    let late = conversation_of(&ana, &contact(&ana, "BR.2"));
    assert_refused(ask(&ana, &late), "outside_window");
    let known = conversation_of(&ana, &contact(&ana, "Conhecida"));
    assert_refused(ask(&ana, &known), "phone_known");
    server
        .db
        .run("UPDATE whatsapp_profiles SET verification_state = 'failed', next_check_at = NULL, failed_since = now()");
    assert_refused(ask(&ana, &id), "number_unverified");
    assert!(server.whatsapp.sends().is_empty());
    assert_eq!(server.db.count("FROM messages WHERE type = 'contact_request'"), 0);
}

/// The outcome of the call is unknown: the request stays pending, and its answer counts.
#[test]
fn contact_request_with_unknown_outcome_is_pending_and_answered() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let id = open(&ana, "BR.1");
    server
        .whatsapp
        .script(vec![WhatsappFault::send(WhatsappFaultKind::AcceptThenReset)]);
    let message = ask(&ana, &id).created();
    assert_eq!(
        (&message["status"], &message["wa_message_id"]),
        (&json!("pending"), &Value::Null)
    );
    assert_refused(ask(&ana, &id), "asked_already");
    send_card(&ana, &id, "BR.1", ContactCard::answer(ANA));
    assert_eq!(contact(&ana, "BR.1")["phone"], ANA);
}
