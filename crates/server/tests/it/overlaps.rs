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
