//! Commands for one campaign at the same time: each was told that it is allowed. None is lost, and one is refused only
//! where what the other made of the campaign refuses it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::harness::client::Request;
use crate::harness::rng::{TestRng, runs, seed};
use crate::harness::runs::{silent, usage};
use crate::harness::users::User;
use crate::harness::{Options, Server, text, until};

/// When nothing starts by itself.
const FAR: &str = "2099-01-01T12:00:00.000Z";

/// Whom each campaign goes to.
const CONTACTS: usize = 3;

/// What is asked of a campaign.
const COMMANDS: [&str; 4] = ["send", "cancel", "unschedule", "DELETE"];

/// Lets both requests read the campaign, and write it in this order: its row is held until both wait for it.
fn side_by_side(server: &Server, first: Request, second: Request) -> [u16; 2] {
    let waiting = |count: i64| {
        until("the writers wait", || {
            // Inside of a transaction what was seen of others is kept.
            server.db.run("SELECT pg_stat_clear_snapshot()");
            // Statements written by hand begin with a comment.
            let waiting = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                AND query ~* '^(/[*].*[*]/ )?UPDATE .?campaigns'";
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
        ..silent()
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
    let scheduled = ana
        .request("POST", &format!("{path}/schedule"))
        .json(&json!({ "scheduled_at": FAR }));
    let renamed = ana.request("PUT", &path).json(&json!({ "name": "Outro" }));
    assert_eq!(side_by_side(&server, scheduled, renamed), [200, 200]);
    let campaign = ana.get(&path).ok();
    assert_eq!(
        (text(&campaign["status"]), text(&campaign["scheduled_at"])),
        ("scheduled".to_owned(), FAR.to_owned())
    );
    assert_eq!(campaign["name"], "Outro");
}

/// The path of a new campaign that is scheduled, and whose messages carry this word.
fn scheduled(ana: &User<'_>, word: &str) -> String {
    ana.profile();
    ana.contacts(CONTACTS);
    let template = ana.approved("Oi {{1}}", &["Ana"]);
    let body = json!({ "name": "C", "template_id": template, "variables": { "1": word } });
    let path = format!("/api/campaigns/{}", ana.campaign(body));
    ana.post(&format!("{path}/schedule"), json!({ "scheduled_at": FAR }))
        .ok();
    path
}

fn asked(ana: &User<'_>, path: &str, command: &str) -> Request {
    match command {
        "DELETE" => ana.request("DELETE", path),
        action => ana.request("POST", &format!("{path}/{action}")),
    }
}

/// What a command is told by a campaign in this status, and where it leads; a removed one has no status.
fn decided(status: &'static str, command: &str) -> (u16, &'static str) {
    match (command, status) {
        (_, "") => (404, ""),
        ("send", "draft" | "scheduled") => (200, "sending"),
        ("cancel", "scheduled" | "sending") => (200, "cancelled"),
        ("unschedule", "scheduled") => (200, "draft"),
        ("DELETE", "draft" | "scheduled" | "cancelled") => (204, ""),
        _ => (400, status),
    }
}

/// One after the other, these commands are told this, and this becomes of a scheduled campaign.
fn in_turn(commands: &[&str]) -> (Vec<u16>, &'static str) {
    let mut status = "scheduled";
    let told = commands.iter().map(|command| {
        let (told, next) = decided(status, command);
        status = next;
        told
    });
    (told.collect(), status)
}

/// The audit log's words for a scheduled campaign and the commands that were accepted.
fn entries<'a>(accepted: impl Iterator<Item = &'a str>) -> Vec<String> {
    let word = |command| match command {
        "send" => "create campaign_send",
        "DELETE" => "delete campaign",
        _ => "update campaign",
    };
    ["create campaign", "update campaign"]
        .into_iter()
        .chain(accepted.map(word))
        .map(str::to_owned)
        .collect()
}

/// What the audit log says of the campaign, oldest first.
fn audited(ana: &User<'_>, path: &str) -> Vec<String> {
    let logs = ana.get("/api/audit-logs?limit=100").ok()["logs"].take();
    let of_campaign = |log: &&Value| log["entity_id"].as_str().is_some_and(|id| path.ends_with(id));
    let logs = logs.as_array().unwrap().iter().rev().filter(of_campaign);
    logs.map(|log| format!("{} {}", text(&log["action"]), text(&log["entity_type"])))
        .collect()
}

/// Where the campaign is; nothing where it was removed.
fn status(ana: &User<'_>, path: &str) -> String {
    match ana.get(path) {
        reply if reply.status == 404 => String::new(),
        reply => text(&reply.ok()["status"]),
    }
}

/// A campaign that was commanded, and where it has to be.
struct Commanded<'a> {
    ana: User<'a>,
    path: String,
    word: String,
    status: &'static str,
}

/// Lets workers carry out what is sending. That was sent once to everybody, nothing else was sent to anybody, and nothing is
/// held for it.
fn carried_out(server: &Server, campaigns: &[Commanded<'_>]) {
    let _workers = server.sibling();
    until("no run is left", || server.db.count("FROM campaign_queue") == 0);
    let mut calls: BTreeMap<(String, String), usize> = BTreeMap::new();
    for send in server.whatsapp.sends() {
        *calls.entry((send.parameters.join(""), send.to.unwrap())).or_default() += 1;
    }
    for Commanded {
        ana,
        path,
        word,
        status: wanted,
    } in campaigns
    {
        let goes = *wanted == "sending";
        assert_eq!(status(ana, path), if goes { "completed" } else { wanted }, "{word}");
        let called: Vec<usize> = calls
            .iter()
            .filter(|((of, _), _)| of == word)
            .map(|(_, calls)| *calls)
            .collect();
        assert_eq!(called, vec![1; if goes { CONTACTS } else { 0 }], "{word}");
        let used = usage(server, &ana.account);
        assert_eq!(
            used,
            if goes {
                format!("{CONTACTS} 0")
            } else {
                "0 0".to_owned()
            },
            "{word}"
        );
    }
}

/// F12, F13: `send` beside `cancel`, `unschedule` beside `send` and `DELETE`, and every other pair.
#[test]
fn of_two_commands_at_once_the_second_is_decided_on_what_the_first_made_of_it() {
    let server = quiet();
    let mut campaigns = Vec::new();
    for first in COMMANDS {
        for second in COMMANDS {
            let (ana, word) = (server.owner(), format!("{first} {second}"));
            let path = scheduled(&ana, &word);
            let told = side_by_side(&server, asked(&ana, &path, first), asked(&ana, &path, second));
            let (wanted, after) = in_turn(&[first, second]);
            assert_eq!(told.to_vec(), wanted, "{word}");
            assert_eq!(status(&ana, &path), after, "{word}");
            let accepted = [first, second].into_iter().zip(told).filter(|(_, told)| *told < 300);
            assert_eq!(
                audited(&ana, &path),
                entries(accepted.map(|(command, _)| command)),
                "{word}"
            );
            campaigns.push(Commanded {
                ana,
                path,
                word,
                status: after,
            });
        }
    }
    carried_out(&server, &campaigns);
}

/// Every order of these commands.
fn orders(commands: &[&'static str]) -> Vec<Vec<&'static str>> {
    if commands.is_empty() {
        return vec![vec![]];
    }
    let with_first = |at: usize| {
        let mut rest = commands.to_vec();
        let first = rest.remove(at);
        orders(&rest)
            .into_iter()
            .map(move |order| [vec![first], order].concat())
    };
    (0..commands.len()).flat_map(with_first).collect()
}

/// Sends all at once, each to one of two servers and after a moment of its own; what each is told.
fn at_once(ana: &User<'_>, path: &str, port: u16, rng: &mut TestRng) -> BTreeMap<&'static str, u16> {
    let requests = COMMANDS.map(|command| {
        let request = asked(ana, path, command);
        let request = if rng.below(2) == 0 { request } else { request.at(port) };
        (command, request, rng.moment(2000))
    });
    std::thread::scope(|scope| {
        let threads = requests.map(|(command, request, moment)| {
            let told = scope.spawn(move || {
                std::thread::sleep(moment);
                request.send().status
            });
            (command, told)
        });
        threads
            .into_iter()
            .map(|(command, told)| (command, told.join().unwrap()))
            .collect()
    })
}

/// F12, F13: whatever the answers, there is an order in which the commands would have been told just that.
#[test]
fn commands_at_once_on_two_servers_are_told_what_they_would_be_one_after_the_other() {
    let server = quiet();
    let other = server.sibling_of(&["serve", "--no-workers"]);
    let (rounds, seed) = (runs(40), seed(1));
    let mut campaigns = Vec::new();
    for round in 0..rounds {
        let (ana, word) = (server.owner(), format!("round {round}"));
        let path = scheduled(&ana, &word);
        let told = at_once(&ana, &path, other.port(), &mut TestRng::of(seed, round));
        let after = status(&ana, &path);
        let explained = orders(&COMMANDS).into_iter().find_map(|order| {
            let (wanted, status) = in_turn(&order);
            (status == after
                && order
                    .iter()
                    .zip(&wanted)
                    .all(|(command, told_it)| told[command] == *told_it))
            .then_some(status)
        });
        let status = explained.unwrap_or_else(|| panic!("{word}, seed {seed}: {told:?} {after:?}"));
        let (mut audited, accepted) = (audited(&ana, &path), told.iter().filter(|(_, told)| **told < 300));
        let mut wanted = entries(accepted.map(|(command, _)| *command));
        audited.sort();
        wanted.sort();
        assert_eq!(audited, wanted, "{word}, seed {seed}");
        campaigns.push(Commanded {
            ana,
            path,
            word,
            status,
        });
    }
    let met: BTreeSet<&str> = campaigns.iter().map(|campaign| campaign.status).collect();
    assert!(met.len() > 1, "the commands never met: {met:?}");
    carried_out(&server, &campaigns);
}
