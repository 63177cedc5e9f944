//! A stage that many tests of runs share: one account with a number, contacts and a campaign.

use serde_json::{Value, json};

use super::users::User;
use super::{Options, Server, eventually};

/// Waits until a campaign is no longer sending; its status.
#[track_caller]
pub fn ended(user: &User<'_>, campaign: &str) -> String {
    eventually("the run ends", || {
        Some(user.status(campaign)).filter(|status| status != "sending")
    })
}

/// Waits until the counters are these.
#[track_caller]
pub fn counted(user: &User<'_>, campaign: &str, field: &str, wanted: i64) -> Value {
    eventually(&format!("{wanted} {field}"), || {
        let stats = user.stats(campaign);
        adds_up(&stats);
        (stats[field] == wanted).then_some(stats)
    })
}

/// The counters add up to the total, whenever somebody looks.
#[track_caller]
pub fn adds_up(stats: &Value) {
    let of = |field: &str| stats[field].as_i64().unwrap();
    let sum: i64 = ["pending", "sent", "delivered", "read", "failed"]
        .into_iter()
        .map(of)
        .sum();
    assert_eq!(sum, of("total"), "{stats}");
}

/// How often each recipient was called, by the platform's ledger.
pub fn calls(server: &Server) -> std::collections::BTreeMap<String, usize> {
    let mut calls = std::collections::BTreeMap::new();
    for send in server.whatsapp.sends() {
        *calls.entry(send.to.unwrap()).or_default() += 1;
    }
    calls
}

/// Time passes: the lease of whoever held a run is over.
pub fn lease_ends(server: &Server) {
    server
        .db
        .run("UPDATE campaign_queue SET leased_until = now() - interval '1 second' WHERE leased_until IS NOT NULL");
}

/// Time passes: what waits for another try is due.
pub fn waits_end(server: &Server) {
    server
        .db
        .run("UPDATE campaign_sends SET retry_at = now() WHERE retry_at > now() + interval '100 ms'");
}

/// The month's messages of an account: counted, and held for those under way.
pub fn usage(server: &Server, account: &str) -> String {
    server.db.text(&format!(
        "SELECT coalesce(sum(sent), 0) || ' ' || coalesce(sum(reserved), 0) FROM message_usage WHERE account_id = '{account}'"
    ))
}

/// A server whose platform sends no statuses.
pub fn silent() -> Options {
    Options::platform(|platform| {
        (platform.sent_ms, platform.delivered_ms, platform.read_ms) = (None, None, None);
    })
}

/// One status as the platform tells it.
pub fn status(wamid: &str, status: &str, send: Option<&str>) -> Value {
    let mut told = json!({ "id": wamid, "status": status, "timestamp": "1780000000", "recipient_id": "5511960000000" });
    if let Some(send) = send {
        told["biz_opaque_callback_data"] = json!(send);
    }
    told
}

/// The callback of statuses of a number.
pub fn statuses(number: &str, statuses: &[Value]) -> Value {
    json!({ "object": "whatsapp_business_account", "entry": [{ "id": "100000000000001", "changes": [{
        "field": "messages", "value": { "messaging_product": "whatsapp",
        "metadata": { "display_phone_number": "551130000000", "phone_number_id": number },
        "statuses": statuses } }] }] })
}
