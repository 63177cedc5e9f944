//! Commands for one campaign at the same time: both were told that it is allowed, and neither is lost or refused.

use serde_json::json;

use crate::harness::client::Request;
use crate::harness::{Options, Server, text, until};

/// Lets both requests read the campaign, and write it in this order: its row is held until both wait for it.
fn side_by_side(server: &Server, first: Request, second: Request) -> [u16; 2] {
    let waiting = |count: i64| {
        until("the writers wait", || {
            // Inside of a transaction what was seen of others is kept.
            server.db.run("SELECT pg_stat_clear_snapshot()");
            let waiting = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                AND query ILIKE 'UPDATE%campaigns%'";
            server.db.count(waiting) == count
        });
    };
    server.db.run("BEGIN; SELECT 1 FROM campaigns FOR UPDATE");
    let first = std::thread::spawn(move || first.send().status);
    waiting(1);
    let second = std::thread::spawn(move || second.send().status);
    waiting(2);
    server.db.run("COMMIT");
    [first.join().unwrap(), second.join().unwrap()]
}

/// Nobody but the clients touches campaigns.
fn quiet() -> Server {
    Server::start(Options {
        args: vec!["serve", "--no-workers"],
        ..Options::default()
    })
}

#[test]
fn of_two_changes_at_once_none_is_lost() {
    let server = quiet();
    let ana = server.owner();
    let path = format!("/api/campaigns/{}", ana.campaign(json!({ "name": "C" })));
    let put = |body| ana.request("PUT", &path).json(&body);
    let renamed = put(json!({ "name": "Outro" }));
    let narrowed = put(json!({ "rfm_segments": ["champions"] }));
    assert_eq!(side_by_side(&server, renamed, narrowed), [200, 200]);
    let campaign = ana.get(&path).ok();
    assert_eq!(
        (&campaign["name"], &campaign["rfm_segments"]),
        (&json!("Outro"), &json!(["champions"]))
    );
}

#[test]
fn a_change_beside_a_schedule_leaves_its_time_alone() {
    let server = quiet();
    let ana = server.owner();
    let path = format!("/api/campaigns/{}", ana.campaign(json!({ "name": "C" })));
    let at = "2099-01-01T12:00:00.000Z";
    let scheduled = ana
        .request("POST", &format!("{path}/schedule"))
        .json(&json!({ "scheduled_at": at }));
    let renamed = ana.request("PUT", &path).json(&json!({ "name": "Outro" }));
    assert_eq!(side_by_side(&server, scheduled, renamed), [200, 200]);
    let campaign = ana.get(&path).ok();
    assert_eq!(
        (text(&campaign["status"]), text(&campaign["scheduled_at"])),
        ("scheduled".to_owned(), at.to_owned())
    );
    assert_eq!(campaign["name"], "Outro");
}

#[test]
fn a_campaign_that_begins_while_it_is_cancelled_is_cancelled() {
    let server = quiet();
    let ana = server.owner();
    let id = ana.campaign(json!({ "name": "C", "scheduled_at": "2099-01-01T12:00:00Z" }));
    let path = format!("/api/campaigns/{id}");
    ana.request("POST", &format!("{path}/schedule")).send().ok();
    let (send, cancel) = (format!("{path}/send"), format!("{path}/cancel"));
    let both = [ana.request("POST", &send), ana.request("POST", &cancel)];
    let [send, cancel] = both;
    assert_eq!(side_by_side(&server, send, cancel), [200, 200]);
    assert_eq!(ana.status(&id), "cancelled");
    let told = ana.get("/api/audit-logs?entityType=campaign&action=update").ok();
    assert_eq!(told["logs"][0]["changes"], json!({ "previousStatus": "sending" }));
    assert_eq!(server.db.count("FROM campaign_queue"), 0);
}

#[test]
fn a_campaign_that_is_unscheduled_while_it_is_sent_or_removed_is() {
    let server = quiet();
    let ana = server.owner();
    let scheduled = || {
        let id = ana.campaign(json!({ "name": "C", "scheduled_at": "2099-01-01T12:00:00Z" }));
        ana.request("POST", &format!("/api/campaigns/{id}/schedule"))
            .send()
            .ok();
        format!("/api/campaigns/{id}")
    };
    let unscheduled = |path: &str| ana.request("POST", &format!("{path}/unschedule"));
    let path = scheduled();
    let send = ana.request("POST", &format!("{path}/send"));
    assert_eq!(side_by_side(&server, unscheduled(&path), send), [200, 200]);
    assert_eq!(ana.get(&path).ok()["status"], "sending");
    let path = scheduled();
    let removed = ana.request("DELETE", &path);
    assert_eq!(side_by_side(&server, unscheduled(&path), removed), [200, 204]);
    ana.get(&path).refused(404, "NOT_FOUND");
}
