//! Concurrent commands for one campaign, each allowed in the state that it read. No change is lost. The second command
//! is decided on the state that the first one left.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::harness::client::{Reply, Request};
use crate::harness::rng::{TestRng, runs, seed};
use crate::harness::runs::{usage, without_statuses};
use crate::harness::users::User;
use crate::harness::{Options, Server, text, until};

/// A scheduled time that no test reaches.
const FAR_FUTURE: &str = "2099-01-01T12:00:00.000Z";

/// Recipients of each campaign.
const CONTACTS: usize = 3;

/// The commands of a campaign. `DELETE` is its own method, the others are actions.
const COMMANDS: [&str; 4] = ["send", "cancel", "unschedule", "DELETE"];

/// Runs two requests that both read the campaign before either writes it, then write it in this order. The campaign row
/// stays locked until both wait for it.
fn run_overlapping(server: &Server, first: Request, second: Request) -> [u16; 2] {
    reply_overlapping(server, first, second).map(|reply| reply.status)
}

/// `run_overlapping` with the whole responses.
fn reply_overlapping(server: &Server, first: Request, second: Request) -> [Reply; 2] {
    let wait_for_writers = |count: i64| {
        until("the writers wait", || {
            // A transaction caches what it reads from `pg_stat_activity`.
            server.db.run("SELECT pg_stat_clear_snapshot()");
            // Handwritten statements begin with a comment.
            let waiting = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                AND query ~* '^(/[*].*[*]/ )?UPDATE .?campaigns'";
            server.db.count(waiting) == count
        });
    };
    server.db.run("BEGIN; SELECT 1 FROM campaigns FOR UPDATE");
    let first = std::thread::spawn(move || first.send());
    wait_for_writers(1);
    let second = std::thread::spawn(move || second.send());
    wait_for_writers(2);
    server.db.run("COMMIT");
    [first.join().unwrap(), second.join().unwrap()]
}

/// A server without workers: only the clients change campaigns.
fn server_without_workers() -> Server {
    Server::start(Options {
        args: vec!["serve", "--no-workers"],
        ..without_statuses()
    })
}

#[test]
fn concurrent_updates_of_two_fields_are_both_saved() {
    let server = server_without_workers();
    let ana = server.owner();
    let path = format!("/api/campaigns/{}", ana.campaign(json!({ "name": "C" })));
    let put = |body| ana.request("PUT", &path).json(&body);
    let renamed = put(json!({ "name": "Outro" }));
    let narrowed = put(json!({ "rfm_segments": ["champions"] }));
    assert_eq!(run_overlapping(&server, renamed, narrowed), [200, 200]);
    let campaign = ana.get(&path).ok();
    assert_eq!(
        (&campaign["name"], &campaign["rfm_segments"]),
        (&json!("Outro"), &json!(["champions"]))
    );
}

#[test]
fn update_during_schedule_keeps_the_scheduled_time() {
    let server = server_without_workers();
    let ana = server.owner();
    let path = format!("/api/campaigns/{}", ana.campaign(json!({ "name": "C" })));
    let scheduled = ana
        .request("POST", &format!("{path}/schedule"))
        .json(&json!({ "scheduled_at": FAR_FUTURE }));
    let renamed = ana.request("PUT", &path).json(&json!({ "name": "Outro" }));
    assert_eq!(run_overlapping(&server, scheduled, renamed), [200, 200]);
    let campaign = ana.get(&path).ok();
    assert_eq!(
        (text(&campaign["status"]), text(&campaign["scheduled_at"])),
        ("scheduled".to_owned(), FAR_FUTURE.to_owned())
    );
    assert_eq!(campaign["name"], "Outro");
}

/// Regression: the response showed the campaign as it was before the change.
#[test]
fn send_after_a_concurrent_update_shows_the_update() {
    let server = server_without_workers();
    let ana = server.owner();
    let id = ana.campaign(json!({ "name": "C" }));
    let renamed = ana.request("PUT", &format!("/api/campaigns/{id}"));
    let renamed = renamed.json(&json!({ "name": "Outro" }));
    let [renamed, sent] = reply_overlapping(&server, renamed, ana.command(&id, "send"));
    assert_eq!((renamed.status, sent.status), (200, 200));
    assert_eq!(sent.ok()["name"], "Outro");
}

/// Creates a scheduled campaign whose messages contain `word`, and returns its path.
fn scheduled_campaign(ana: &User<'_>, word: &str) -> String {
    ana.profile();
    ana.contacts(CONTACTS);
    let template = ana.approved("Oi {{1}}", &["Ana"]);
    let body = json!({ "name": "C", "template_id": template, "variables": { "1": word } });
    let path = format!("/api/campaigns/{}", ana.campaign(body));
    ana.post(&format!("{path}/schedule"), json!({ "scheduled_at": FAR_FUTURE }))
        .ok();
    path
}

fn command_request(ana: &User<'_>, path: &str, command: &str) -> Request {
    match command {
        "DELETE" => ana.request("DELETE", path),
        action => ana.request("POST", &format!("{path}/{action}")),
    }
}

/// The response status of a command in a campaign status, and the campaign status after it. A deleted campaign has the
/// status "".
fn expected_step(status: &'static str, command: &str) -> (u16, &'static str) {
    match (command, status) {
        (_, "") => (404, ""),
        ("send", "draft" | "scheduled") => (200, "sending"),
        ("cancel", "scheduled" | "sending") => (200, "cancelled"),
        ("unschedule", "scheduled") => (200, "draft"),
        ("DELETE", "draft" | "scheduled" | "cancelled") => (204, ""),
        _ => (400, status),
    }
}

/// The response statuses of these commands in sequence on a scheduled campaign, and the campaign status after them.
fn expected_sequence(commands: &[&str]) -> (Vec<u16>, &'static str) {
    let mut status = "scheduled";
    let responses = commands.iter().map(|command| {
        let (response, next) = expected_step(status, command);
        status = next;
        response
    });
    (responses.collect(), status)
}

/// The audit entries of a scheduled campaign and its accepted commands, as `action entity`.
fn expected_entries<'a>(accepted: impl Iterator<Item = &'a str>) -> Vec<String> {
    let entry = |command| match command {
        "send" => "create campaign_send",
        "DELETE" => "delete campaign",
        _ => "update campaign",
    };
    ["create campaign", "update campaign"]
        .into_iter()
        .chain(accepted.map(entry))
        .map(str::to_owned)
        .collect()
}

/// The audit entries of the campaign, oldest first, as `action entity`.
fn audit_entries(ana: &User<'_>, path: &str) -> Vec<String> {
    let logs = ana.get("/api/audit-logs?limit=100").ok()["logs"].take();
    let is_about_campaign = |log: &&Value| log["entity_id"].as_str().is_some_and(|id| path.ends_with(id));
    let logs = logs.as_array().unwrap().iter().rev().filter(is_about_campaign);
    logs.map(|log| format!("{} {}", text(&log["action"]), text(&log["entity_type"])))
        .collect()
}

/// The campaign's status, or "" after its deletion.
fn status(ana: &User<'_>, path: &str) -> String {
    match ana.get(path) {
        reply if reply.status == 404 => String::new(),
        reply => text(&reply.ok()["status"]),
    }
}

/// A campaign after its commands, with its expected status.
struct CommandedCampaign<'a> {
    ana: User<'a>,
    path: String,
    word: String,
    status: &'static str,
}

/// Lets workers execute the campaigns that are `sending`. Each of their recipients gets one message, no other campaign
/// sends, and no reservation is left.
fn assert_runs_complete(server: &Server, campaigns: &[CommandedCampaign<'_>]) {
    let _workers = server.sibling();
    until("no run is left", || server.db.count("FROM campaign_queue") == 0);
    let mut calls: BTreeMap<(String, String), usize> = BTreeMap::new();
    for send in server.whatsapp.sends() {
        *calls.entry((send.parameters.join(""), send.to.unwrap())).or_default() += 1;
    }
    for CommandedCampaign {
        ana,
        path,
        word,
        status: expected,
    } in campaigns
    {
        let is_sending = *expected == "sending";
        assert_eq!(
            status(ana, path),
            if is_sending { "completed" } else { expected },
            "{word}"
        );
        let called: Vec<usize> = calls
            .iter()
            .filter(|((campaign_word, _), _)| campaign_word == word)
            .map(|(_, calls)| *calls)
            .collect();
        assert_eq!(called, vec![1; if is_sending { CONTACTS } else { 0 }], "{word}");
        let used = usage(server, &ana.account);
        assert_eq!(
            used,
            if is_sending {
                format!("{CONTACTS} 0")
            } else {
                "0 0".to_owned()
            },
            "{word}"
        );
    }
}

/// F12, F13: every pair of commands, for example `send` with `cancel`, or `unschedule` with `send` or `DELETE`.
#[test]
fn second_of_two_commands_is_decided_on_the_new_state() {
    let server = server_without_workers();
    let mut campaigns = Vec::new();
    for first in COMMANDS {
        for second in COMMANDS {
            let (ana, word) = (server.owner(), format!("{first} {second}"));
            let path = scheduled_campaign(&ana, &word);
            let responses = run_overlapping(
                &server,
                command_request(&ana, &path, first),
                command_request(&ana, &path, second),
            );
            let (expected, after) = expected_sequence(&[first, second]);
            assert_eq!(responses.to_vec(), expected, "{word}");
            assert_eq!(status(&ana, &path), after, "{word}");
            let accepted = [first, second]
                .into_iter()
                .zip(responses)
                .filter(|(_, response)| *response < 300);
            assert_eq!(
                audit_entries(&ana, &path),
                expected_entries(accepted.map(|(command, _)| command)),
                "{word}"
            );
            campaigns.push(CommandedCampaign {
                ana,
                path,
                word,
                status: after,
            });
        }
    }
    assert_runs_complete(&server, &campaigns);
}

/// All permutations of these commands.
fn permutations(commands: &[&'static str]) -> Vec<Vec<&'static str>> {
    if commands.is_empty() {
        return vec![vec![]];
    }
    let with_first = |at: usize| {
        let mut rest = commands.to_vec();
        let first = rest.remove(at);
        permutations(&rest)
            .into_iter()
            .map(move |order| [vec![first], order].concat())
    };
    (0..commands.len()).flat_map(with_first).collect()
}

/// Sends all commands concurrently, each to a random one of two servers after a random delay. Returns the response
/// status of each.
fn send_concurrently(ana: &User<'_>, path: &str, port: u16, rng: &mut TestRng) -> BTreeMap<&'static str, u16> {
    let requests = COMMANDS.map(|command| {
        let request = command_request(ana, path, command);
        let request = if rng.below(2) == 0 { request } else { request.at(port) };
        (command, request, rng.duration_below(2000))
    });
    std::thread::scope(|scope| {
        let threads = requests.map(|(command, request, delay)| {
            let response = scope.spawn(move || {
                std::thread::sleep(delay);
                request.send().status
            });
            (command, response)
        });
        threads
            .into_iter()
            .map(|(command, response)| (command, response.join().unwrap()))
            .collect()
    })
}

/// F12, F13: the responses match some sequential order of the commands (serializability).
#[test]
fn concurrent_commands_match_some_sequential_order() {
    let server = server_without_workers();
    let second_server = server.sibling_with_args(&["serve", "--no-workers"]);
    let (rounds, seed) = (runs(40), seed(1));
    let mut campaigns = Vec::new();
    for round in 0..rounds {
        let (ana, word) = (server.owner(), format!("round {round}"));
        let path = scheduled_campaign(&ana, &word);
        let responses = send_concurrently(&ana, &path, second_server.port(), &mut TestRng::of(seed, round));
        let after = status(&ana, &path);
        let matching_status = permutations(&COMMANDS).into_iter().find_map(|order| {
            let (expected, status) = expected_sequence(&order);
            (status == after
                && order
                    .iter()
                    .zip(&expected)
                    .all(|(command, response)| responses[command] == *response))
            .then_some(status)
        });
        let status = matching_status.unwrap_or_else(|| panic!("{word}, seed {seed}: {responses:?} {after:?}"));
        let (mut audit_entries, accepted) = (
            audit_entries(&ana, &path),
            responses.iter().filter(|(_, response)| **response < 300),
        );
        let mut expected = expected_entries(accepted.map(|(command, _)| *command));
        audit_entries.sort();
        expected.sort();
        assert_eq!(audit_entries, expected, "{word}, seed {seed}");
        campaigns.push(CommandedCampaign {
            ana,
            path,
            word,
            status,
        });
    }
    let final_statuses: BTreeSet<&str> = campaigns.iter().map(|campaign| campaign.status).collect();
    assert!(
        final_statuses.len() > 1,
        "the commands never overlapped: {final_statuses:?}"
    );
    assert_runs_complete(&server, &campaigns);
}
