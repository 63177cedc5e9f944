//! Retries of failed sends: which error codes are retried, and when.

use std::collections::BTreeMap;

use recado_simulators::whatsapp::{Preference, WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::harness::client::Reply;
use crate::harness::runs::{calls, final_status, without_statuses};
use crate::harness::users::{User, now, phone};
use crate::harness::{Server, text, until};

const NUMBER: &str = "106500000031";

fn retry(user: &User<'_>, campaign: &str, body: Value) -> Reply {
    user.post(&format!("/api/campaigns/{campaign}/retry-failed"), body)
}

/// The time `seconds` from now, in the API's format.
fn seconds_ahead(seconds: i64) -> String {
    let at = time::OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
    at.format(&time::format_description::well_known::Rfc3339).unwrap()
}

/// WhatsApp rejects the next message to each of these contacts with the code.
fn script_rejections(server: &Server, codes: &[(usize, u32)]) {
    let fault =
        |(number, code): &(usize, u32)| WhatsappFault::send_to(&phone(*number), WhatsappFaultKind::error(*code, ""));
    server.whatsapp.script(codes.iter().map(fault).collect());
}

/// Creates and runs a campaign to `count` contacts, of which WhatsApp rejects these.
fn run_with_failures(user: &User<'_>, count: usize, codes: &[(usize, u32)]) -> String {
    user.profile_at(NUMBER);
    user.contacts(count);
    script_rejections(user.server, codes);
    let id = user.plain_campaign();
    user.send(&id);
    assert_eq!(final_status(user, &id), "partial");
    id
}

/// The reason, code and count of each group of sends that the retry leaves out.
fn left_out(retry: &Value) -> Vec<(String, i64, i64)> {
    let groups = retry["left_out"].as_array().unwrap();
    let fields = |group: &Value| {
        (
            text(&group["reason"]),
            group["code"].as_i64().unwrap(),
            group["count"].as_i64().unwrap(),
        )
    };
    groups.iter().map(fields).collect()
}

fn group(reason: &str, code: i64, count: i64) -> (String, i64, i64) {
    (reason.to_owned(), code, count)
}

/// Checks that the tried and the left-out sends add up to the failed sends.
fn assert_covers_failures(retry: &Value, failed: &Value) {
    let left_out_count: i64 = left_out(retry).iter().map(|(_, _, count)| count).sum();
    assert_eq!(
        Some(retry["tried"].as_i64().unwrap() + left_out_count),
        failed.as_i64(),
        "{retry}"
    );
}

fn calls_to(server: &Server, numbers: &[usize]) -> Vec<usize> {
    let calls: BTreeMap<String, usize> = calls(server);
    let called = |number: &usize| -> usize {
        let phone = phone(*number);
        let own_calls = calls
            .iter()
            .filter(|(to, _)| phone.ends_with(to.trim_start_matches('+')));
        own_calls.map(|(_, count)| *count).sum()
    };
    numbers.iter().map(called).collect()
}

/// The `failure_class` and `retry_after` of the send to a contact.
fn failure_class(user: &User<'_>, campaign: &str, number: usize) -> (Value, Value) {
    let sends = user.sends(campaign);
    let send = sends
        .iter()
        .find(|send| send["contacts"]["phone"] == phone(number))
        .unwrap();
    (send["failure_class"].clone(), send["retry_after"].clone())
}

#[test]
fn retry_without_body_leaves_out_sends_by_error_code() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = run_with_failures(
        &ana,
        8,
        &[
            (1, 131_049),
            (2, 131_026),
            (3, 131_047),
            (4, 131_051),
            (5, 131_050),
            (6, 131_051),
        ],
    );
    server.db.run(&format!(
        "UPDATE contacts SET opted_out_at = now() WHERE phone = '{}'",
        phone(6)
    ));
    assert_eq!(failure_class(&ana, &id, 0), (json!(null), json!(null)));
    for (number, class) in [(2, "later"), (3, "never"), (4, "again"), (5, "never")] {
        assert_eq!(failure_class(&ana, &id, number).0, class, "{number}");
    }
    let (class, after) = failure_class(&ana, &id, 1);
    assert_eq!(class, "later");
    assert!(text(&after) > seconds_ahead(23 * 3600), "{after}");

    let failed = ana.stats(&id)["failed"].clone();
    let shown = ana.post(&format!("/api/campaigns/{id}/preview"), json!({})).ok()["retry"].clone();
    assert_covers_failures(&shown, &failed);
    assert_eq!(server.whatsapp.sends().len(), 8);
    let again = ana
        .request("POST", &format!("/api/campaigns/{id}/retry-failed"))
        .send()
        .ok();
    assert_eq!((&again["status"], &again["id"]), (&json!("sending"), &json!(id)));
    assert_eq!(again["retry"], shown);
    assert_covers_failures(&again["retry"], &failed);
    let expected = [
        group("later", 131_049, 1),
        group("never", 131_047, 1),
        group("never", 131_050, 1),
        group("opted_out", 131_051, 1),
    ];
    assert_eq!(
        (&again["retry"]["tried"], left_out(&again["retry"])),
        (&json!(2), expected.to_vec())
    );
    let earliest = |at: usize| again["retry"]["left_out"][at]["earliest"].clone();
    assert_eq!((earliest(0), earliest(1)), (after, json!(null)));
    assert_eq!(final_status(&ana, &id), "partial");
    assert_eq!(calls_to(&server, &[0, 1, 2, 3, 4, 5, 6, 7]), [1, 1, 2, 1, 2, 1, 1, 1]);

    let refused = retry(&ana, &id, json!({})).refused(400, "VALIDATION_ERROR");
    assert_eq!(refused["details"]["reason"], "nothing_to_retry");
    assert_eq!(left_out(&refused["details"]), expected);
    assert_eq!(ana.status(&id), "partial");
    let audit = "FROM audit_logs WHERE action = 'update' AND entity_type = 'campaign' AND changes ? 'retry'";
    until("the audit row", || server.db.count(audit) == 1);
    assert_eq!(
        server
            .db
            .text(&format!("SELECT changes -> 'retry' ->> 'tried' {audit}")),
        "2"
    );
}

#[test]
fn throttled_send_is_retried_after_a_day_or_by_force() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = run_with_failures(&ana, 3, &[(0, 131_049), (1, 131_049), (2, 131_026)]);
    let refused = retry(&ana, &id, json!({ "codes": [131_049] })).refused(400, "VALIDATION_ERROR");
    assert_eq!(
        left_out(&refused["details"]),
        [group("later", 131_049, 2), group("not_chosen", 131_026, 1)]
    );
    // The retry delay of one send is over.
    server.db.run(&format!(
        "UPDATE campaign_sends SET failed_at = failed_at - interval '25 hours'
         WHERE contact_id = (SELECT id FROM contacts WHERE phone = '{}')",
        phone(0)
    ));
    script_rejections(&server, &[(0, 131_049)]);
    let again = retry(&ana, &id, json!({ "codes": [131_049] })).ok();
    assert_eq!(again["retry"]["tried"], 1);
    final_status(&ana, &id);
    assert_eq!(calls_to(&server, &[0, 1, 2]), [2, 1, 1]);
    // The delay after a second failure is longer.
    let (_, after) = failure_class(&ana, &id, 0);
    assert!(text(&after) > seconds_ahead(47 * 3600), "{after}");
    let forced = retry(&ana, &id, json!({ "codes": [131_049], "force": true, "unknown": 1 })).ok();
    assert_eq!(
        (&forced["retry"]["tried"], left_out(&forced["retry"])),
        (&json!(2), vec![group("not_chosen", 131_026, 1)])
    );
    final_status(&ana, &id);
    assert_eq!(calls_to(&server, &[0, 1, 2]), [3, 2, 1]);
}

#[test]
fn marketing_opt_out_is_retried_only_after_an_opt_in() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = run_with_failures(&ana, 2, &[(0, 131_050)]);
    let refused = retry(&ana, &id, json!({ "codes": [131_050], "force": true })).refused(400, "VALIDATION_ERROR");
    assert_eq!(left_out(&refused["details"]), [group("never", 131_050, 1)]);
    server.whatsapp.preference(&Preference {
        phone_number_id: NUMBER.into(),
        from: phone(0),
        value: "resume".into(),
        timestamp: Some(now() + 10),
        ..Preference::default()
    });
    until("the contact has opted in", || {
        server.db.count("FROM contacts WHERE opted_out_at IS NOT NULL") == 0
    });
    assert_eq!(failure_class(&ana, &id, 0).0, "again");
    assert_eq!(
        retry(&ana, &id, json!({})).ok()["retry"],
        json!({ "tried": 1, "left_out": [] })
    );
    assert_eq!(final_status(&ana, &id), "completed");
    assert_eq!(calls_to(&server, &[0, 1]), [2, 1]);
}

#[test]
fn opt_out_cleared_by_the_account_allows_a_retry() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = run_with_failures(&ana, 1, &[(0, 131_050)]);
    let contact = text(&ana.sends(&id)[0]["contact_id"]);
    ana.put(&format!("/api/contacts/{contact}"), json!({ "opted_out": false }))
        .ok();
    assert_eq!(retry(&ana, &id, json!({})).ok()["retry"]["tried"], 1);
    assert_eq!(final_status(&ana, &id), "completed");
    assert_eq!(calls_to(&server, &[0]), [2]);
}

#[test]
fn concurrent_retries_call_each_recipient_once() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "200"));
    let (second_server, ana) = (server.sibling(), server.owner());
    let codes: Vec<(usize, u32)> = (0..10).map(|number| (number, 131_051)).collect();
    let id = run_with_failures(&ana, 10, &codes);
    let path = format!("/api/campaigns/{id}/retry-failed");
    let requests = [
        ana.request("POST", &path),
        second_server.request("POST", &path).bearer(&ana.token),
    ];
    let mut statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads = requests.map(|request| scope.spawn(move || request.send().status));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 400]);
    assert_eq!(final_status(&ana, &id), "completed");
    assert!(calls(&server).values().all(|count| *count == 2));
    assert_eq!(server.whatsapp.sends().len(), 20);
}

#[test]
fn invalid_retry_request_names_the_field() {
    let server = Server::new();
    let ana = server.owner();
    let many: Vec<i64> = (1..=51).collect();
    for (body, field) in [
        (json!({ "codes": "131026" }), "codes"),
        (json!({ "codes": [131_026, "x"] }), "codes[1]"),
        (json!({ "codes": many }), "codes"),
    ] {
        assert_eq!(retry(&ana, &ana.plain_campaign(), body).invalid(), [field]);
    }
    let bia = server.owner();
    let id = bia.plain_campaign();
    for (body, field) in [
        (json!({ "codes": [] }), "codes"),
        (json!({ "not_before": "soon" }), "not_before"),
        (json!({ "not_before": seconds_ahead(31 * 86_400) }), "not_before"),
        (json!({ "force": "yes" }), "force"),
    ] {
        assert_eq!(retry(&bia, &id, body).invalid(), [field]);
    }
    // A draft has nothing to retry, now or later.
    let refused = retry(&bia, &id, json!({ "not_before": seconds_ahead(60) })).refused(400, "VALIDATION_ERROR");
    assert_eq!(refused["details"]["reason"], "status");
}

#[test]
fn scheduled_retry_starts_and_can_be_replaced_or_removed() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = run_with_failures(&ana, 2, &[(0, 131_051)]);
    let path = format!("/api/campaigns/{id}");
    let campaign_field = |field: &str| ana.get(&path).ok()[field].clone();
    let far = retry(&ana, &id, json!({ "not_before": seconds_ahead(86_400) })).ok();
    assert_eq!((&far["status"], &far["retry"]["tried"]), (&json!("partial"), &json!(1)));
    assert!(far["retry_scheduled_at"].is_string(), "{far}");
    assert_eq!(campaign_field("retry_scheduled_at"), far["retry_scheduled_at"]);
    let unscheduled = ana.command(&id, "unschedule").send().ok();
    assert_eq!(
        (&unscheduled["status"], &unscheduled["retry_scheduled_at"]),
        (&json!("partial"), &json!(null))
    );
    ana.command(&id, "unschedule").send().refused(400, "VALIDATION_ERROR");

    retry(&ana, &id, json!({ "not_before": seconds_ahead(86_400) })).ok();
    let near = retry(&ana, &id, json!({ "not_before": seconds_ahead(1) })).ok();
    assert!(text(&near["retry_scheduled_at"]) < text(&far["retry_scheduled_at"]));
    until("the retry has run", || ana.status(&id) == "completed");
    assert_eq!(campaign_field("retry_scheduled_at"), json!(null));
    assert_eq!(calls_to(&server, &[0, 1]), [2, 1]);
    let audit = "FROM audit_logs WHERE action = 'update' AND entity_type = 'campaign' AND changes ? 'retry'";
    until("the audit rows", || server.db.count(audit) == 5);
    let distinct_users = format!("SELECT count(DISTINCT user_id) {audit}");
    assert_eq!(server.db.text(&distinct_users), "1");
}

#[test]
fn scheduled_retry_without_sends_to_retry_warns() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = run_with_failures(&ana, 2, &[(0, 131_047)]);
    let scheduled = retry(&ana, &id, json!({ "not_before": seconds_ahead(1) })).ok();
    assert_eq!(
        (&scheduled["retry"]["tried"], &scheduled["status"]),
        (&json!(0), &json!("partial"))
    );
    until("a notification is stored", || {
        server
            .db
            .count("FROM notifications WHERE title LIKE 'Failed sends not retried%'")
            == 1
    });
    let campaign = ana.get(&format!("/api/campaigns/{id}")).ok();
    assert_eq!(
        (&campaign["status"], &campaign["retry_scheduled_at"]),
        (&json!("partial"), &json!(null))
    );
    assert_eq!(
        server
            .db
            .text("SELECT type FROM notifications WHERE title LIKE 'Failed sends not%'"),
        "warning"
    );
    assert_eq!(calls_to(&server, &[0, 1]), [1, 1]);
}
