//! Helpers for tests of campaign runs.

use serde_json::{Value, json};

use super::users::User;
use super::{Options, Server, eventually};

/// Waits until a campaign is no longer sending and returns its status.
#[track_caller]
pub fn final_status(user: &User<'_>, campaign: &str) -> String {
    eventually("the run ends", || {
        Some(user.status(campaign)).filter(|status| status != "sending")
    })
}

/// Waits until a field of the campaign's stats has this value and returns the stats.
#[track_caller]
pub fn wait_for_stat(user: &User<'_>, campaign: &str, field: &str, expected: i64) -> Value {
    eventually(&format!("{expected} {field}"), || {
        let stats = user.stats(campaign);
        assert_stats_add_up(&stats);
        (stats[field] == expected).then_some(stats)
    })
}

/// Asserts that the stats by status add up to the total, which must hold at any time.
#[track_caller]
pub fn assert_stats_add_up(stats: &Value) {
    let value = |field: &str| stats[field].as_i64().unwrap();
    let sum: i64 = ["pending", "sent", "delivered", "read", "failed"]
        .into_iter()
        .map(value)
        .sum();
    assert_eq!(sum, value("total"), "{stats}");
}

/// The calls per recipient that the WhatsApp simulator received.
pub fn calls(server: &Server) -> std::collections::BTreeMap<String, usize> {
    let mut calls = std::collections::BTreeMap::new();
    for send in server.whatsapp.sends() {
        *calls.entry(send.to.unwrap()).or_default() += 1;
    }
    calls
}

/// Expires the leases of all claimed runs and of the claimed queues of direct messages.
pub fn expire_leases(server: &Server) {
    for table in ["campaign_queue", "direct_message_queues"] {
        server.db.run(&format!(
            "UPDATE {table} SET leased_until = now() - interval '1 second' WHERE leased_until IS NOT NULL"
        ));
    }
}

/// Makes all sends due that wait for a retry.
pub fn make_retries_due(server: &Server) {
    server
        .db
        .run("UPDATE campaign_sends SET retry_at = now() WHERE retry_at > now() + interval '100 ms'");
}

/// The account's messages of the month: the sent and the reserved ones.
pub fn usage(server: &Server, account: &str) -> String {
    server.db.text(&format!(
        "SELECT coalesce(sum(sent), 0) || ' ' || coalesce(sum(reserved), 0) FROM message_usage WHERE account_id = '{account}'"
    ))
}

/// Options with a WhatsApp simulator that sends no status updates.
pub fn without_statuses() -> Options {
    Options::with_whatsapp(|whatsapp| {
        (whatsapp.sent_ms, whatsapp.delivered_ms, whatsapp.read_ms) = (None, None, None);
    })
}

/// A status update as WhatsApp reports it.
pub fn status(wamid: &str, status: &str, send: Option<&str>) -> Value {
    let mut update =
        json!({ "id": wamid, "status": status, "timestamp": "1780000000", "recipient_id": "5511960000000" });
    if let Some(send) = send {
        update["biz_opaque_callback_data"] = json!(send);
    }
    update
}

/// A callback with status updates of a phone number.
pub fn statuses(number: &str, statuses: &[Value]) -> Value {
    json!({ "object": "whatsapp_business_account", "entry": [{ "id": "100000000000001", "changes": [{
        "field": "messages", "value": { "messaging_product": "whatsapp",
        "metadata": { "display_phone_number": "551130000000", "phone_number_id": number },
        "statuses": statuses } }] }] })
}
