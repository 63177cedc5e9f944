//! What a number receives while it is verified, and while it is not.

use serde_json::{Value, json};

use crate::harness::runs::without_statuses;
use crate::harness::scrape::scrape;
use crate::harness::users::{User, now};
use crate::harness::{Server, text, until};

const NUMBER: &str = "106500000021";
const WABA: &str = "100000000000001";
const ANA: &str = "5531988887777";

/// A callback with these messages: WhatsApp's id and the Unix time of each.
fn messages(server: &Server, messages: &[(&str, u64)]) {
    let shown = messages.iter().map(|(id, at)| {
        json!({ "from": ANA, "id": id, "timestamp": at.to_string(), "type": "text", "text": { "body": "oi" } })
    });
    let value = json!({
        "messaging_product": "whatsapp",
        "metadata": { "display_phone_number": "15550001111", "phone_number_id": NUMBER },
        "contacts": [{ "profile": { "name": "Ana" }, "wa_id": ANA }],
        "messages": shown.collect::<Vec<Value>>(),
    });
    send(server, "messages", &value);
}

fn send(server: &Server, field: &str, value: &Value) {
    let body = json!({ "object": "whatsapp_business_account",
        "entry": [{ "id": WABA, "changes": [{ "field": field, "value": value }] }] });
    assert_eq!(server.callback(&body).status, 200);
    until("every callback is processed", || {
        server.db.count("FROM whatsapp_callbacks") == 0
    });
}

/// Connects the number, and sets its state without a call to WhatsApp.
fn connect(user: &User<'_>, state: &str) {
    user.profile_at(NUMBER);
    set_state(user, state);
}

fn set_state(user: &User<'_>, state: &str) {
    let held_since = match state {
        "verified" => "held_since",
        _ => "coalesce(held_since, now())",
    };
    user.server.db.run(&format!(
        "UPDATE whatsapp_profiles SET verification_state = '{state}', held_since = {held_since},
           pending_since = NULL, suspected_check = NULL, suspected_since = NULL, next_check_at = NULL,
           verification_version = verification_version + 1
         WHERE account_id = '{}'",
        user.account
    ));
}

/// WhatsApp's ids and the Unix times of the account's messages.
fn received(user: &User<'_>) -> Vec<(String, u64)> {
    let rows = user.server.db.rows(&format!(
        "SELECT wa_message_id, extract(epoch FROM created_at)::bigint::text FROM messages
         WHERE account_id = '{}' ORDER BY wa_message_id",
        user.account
    ));
    rows.iter()
        .map(|row| (row[0].clone().unwrap(), row[1].clone().unwrap().parse().unwrap()))
        .collect()
}

fn expected(messages: &[(&str, u64)]) -> Vec<(String, u64)> {
    messages.iter().map(|(id, at)| ((*id).to_owned(), *at)).collect()
}

/// Everything that the API shows of conversations and contacts.
fn shown(user: &User<'_>) -> usize {
    let count = |path: &str| user.get(path).ok()["data"].as_array().unwrap().len();
    count("/api/conversations") + count("/api/contacts")
}

fn meta_status(user: &User<'_>, template: &str) -> String {
    text(&user.get(&format!("/api/templates/{template}")).ok()["meta_status"])
}

/// F41b. Must hold: an account whose token does not fit a number sees no message and no template event of it.
#[test]
fn account_without_a_verified_number_sees_nothing_of_it() {
    let server = Server::start(without_statuses());
    let (ana, bia) = (server.owner(), server.owner());
    for state in ["failed", "pending"] {
        connect_once(&bia, state);
        messages(&server, &[("wamid.before", now())]);
    }
    connect(&ana, "verified");
    let at = now() - 60;
    messages(&server, &[("wamid.a", at), ("wamid.b", at + 1)]);
    assert_eq!(received(&ana), expected(&[("wamid.a", at), ("wamid.b", at + 1)]));
    let preference = json!({
        "metadata": { "phone_number_id": NUMBER },
        "user_preferences": [{ "wa_id": ANA, "category": "marketing_messages", "value": "stop",
            "timestamp": now() }],
    });
    send(&server, "user_preferences", &preference);

    // Both know a template of the same id at WhatsApp.
    let templates = [&ana, &bia].map(|user| {
        let template = user.approved("Oi", &[]);
        server.db.run(&format!(
            "UPDATE message_templates SET meta_template_id = '77' WHERE id = '{template}'"
        ));
        template
    });
    let update = json!({ "event": "PAUSED", "message_template_id": 77, "message_template_name": "t",
        "message_template_language": "pt_BR" });
    send(&server, "message_template_status_update", &update);
    assert_eq!(meta_status(&ana, &templates[0]), "paused");
    assert_eq!(meta_status(&bia, &templates[1]), "approved");

    let path = text(&ana.get("/api/whatsapp/profiles").ok()["data"][0]["id"]);
    ana.delete(&format!("/api/whatsapp/profiles/{path}")).no_content();
    messages(&server, &[("wamid.after", now())]);
    assert_eq!((received(&bia), shown(&bia)), (vec![], 0));
    let seen = "FROM whatsapp_profiles WHERE last_inbound_at IS NOT NULL OR last_callback_at IS NOT NULL";
    assert_eq!(server.db.count(seen), 0);
    // What is held cannot be read in the database.
    assert!(server.db.count("FROM whatsapp_held_messages") >= 4);
    let readable = format!("FROM whatsapp_held_messages WHERE position('{ANA}' IN encode(event, 'escape')) > 0");
    assert_eq!(server.db.count(&readable), 0);
}

/// Connects the number unless the account has it, and sets its state.
fn connect_once(user: &User<'_>, state: &str) {
    if user.get("/api/whatsapp/profiles").ok()["data"] == json!([]) {
        user.profile_at(NUMBER);
    }
    set_state(user, state);
}

/// F41b. Must hold: what came while a number was not verified is there afterwards, each message once.
#[test]
fn messages_of_an_unverified_time_arrive_later_once() {
    let server = Server::start(without_statuses());
    let (ana, bia) = (server.owner(), server.owner());
    connect(&ana, "verified");
    connect(&bia, "verified");
    until("no number waits for held messages", || {
        server.db.count("FROM whatsapp_profiles WHERE held_since IS NOT NULL") == 0
    });
    let at = now() - 3600;
    let all = [
        ("wamid.1", at),
        ("wamid.2", at + 1),
        ("wamid.3", at + 2),
        ("wamid.4", at + 3),
    ];
    messages(&server, &all[..1]);
    set_state(&ana, "failed");
    // WhatsApp delivers each of them twice.
    for _ in 0..2 {
        messages(&server, &all[1..2]);
        messages(&server, &all[2..3]);
    }
    assert_eq!(received(&ana), expected(&all[..1]));
    assert_eq!(received(&bia), expected(&all[..3]));
    // The server is killed before it could give them.
    server.kill();
    set_state(&ana, "verified");
    server.run(&["serve"]);
    until("the held messages were given", || received(&ana).len() == 3);
    messages(&server, &all[3..]);
    for user in [&ana, &bia] {
        assert_eq!(received(user), expected(&all));
    }
    until("the wait ends", || {
        server.db.count("FROM whatsapp_profiles WHERE held_since IS NOT NULL") == 0
    });
    let conversations = ana.get("/api/conversations").ok();
    assert_eq!(conversations["data"].as_array().unwrap().len(), 1);
}

#[test]
fn messages_that_nobody_claims_are_dropped_after_seven_days_and_counted() {
    let server = Server::start(without_statuses().with_metrics());
    let ana = server.owner();
    connect(&ana, "failed");
    messages(&server, &[("wamid.1", now()), ("wamid.2", now()), ("wamid.3", now())]);
    let unclaimed = || scrape(server.metrics_port()).sum("recado_whatsapp_unclaimed_total", &[]);
    until("the counter is exposed", || unclaimed() == Some(0.0));
    server.stop();
    server.db.run(
        "UPDATE whatsapp_held_messages SET received_at = now() - interval '7 days 1 second'
         WHERE seq < (SELECT max(seq) FROM whatsapp_held_messages)",
    );
    server.run(&["serve"]);
    until("old messages are dropped", || {
        server.db.count("FROM whatsapp_held_messages") == 1
    });
    until("the dropped messages are counted", || unclaimed() == Some(2.0));
    set_state(&ana, "verified");
    until("the last one is given", || received(&ana).len() == 1);
}
