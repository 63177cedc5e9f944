//! Budgets of running campaigns: recipients without a rate, the cost in responses, and servers that are killed.

use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::costs::{NUMBER, add_card, campaign_of, priced, refused_for, regular, verify};
use crate::harness::client::Reply;
use crate::harness::rng::{TestRng, runs, seed};
use crate::harness::runs::{calls, expire_leases, final_status, statuses, wait_for_stat, without_statuses};
use crate::harness::users::{User, phone};
use crate::harness::{Options, Server, eventually, text, until};

const CARD: &str = "BR,USD,marketing,0.0625,2026-01-01,,,\n";

fn path(campaign: &str) -> String {
    format!("/api/campaigns/{campaign}")
}

fn set_budget(user: &User<'_>, campaign: &str, amount: f64) -> Reply {
    user.put(
        &path(campaign),
        json!({ "budget": { "amount": amount, "currency": "USD" } }),
    )
}

/// Asserts that a recipient of this market has no rate in the currency of the budget.
#[track_caller]
fn refused_without_rate(reply: Reply, market: &str) {
    let refused = refused_for(reply, "no_rate");
    assert_eq!(refused["details"]["markets"], json!([market]), "{refused}");
}

/// The contact of a send with this status.
fn contact_with(user: &User<'_>, campaign: &str, status: &str) -> String {
    let sends = user.sends(campaign);
    let found = sends.iter().find(|send| send["status"] == status).unwrap();
    text(&found["contact_id"])
}

#[test]
fn run_with_a_budget_needs_a_rate_for_its_remaining_recipients() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    add_card(&server, CARD);
    let id = campaign_of(&ana, 4);
    set_budget(&ana, &id, 0.125).ok();
    assert_eq!(ana.execute(&id).ok()["sent"], 2);
    let moved = contact_with(&ana, &id, "pending");
    let contact = format!("/api/contacts/{moved}");
    ana.put(&contact, json!({ "phone": "+351912345678" })).ok();
    refused_without_rate(set_budget(&ana, &id, 1.0), "PT");
    refused_without_rate(ana.command(&id, "resume").send(), "PT");
    let paused = ana.get(&path(&id)).ok();
    assert_eq!(
        (&paused["pause_reason"], &paused["budget"]["amount"]),
        (&json!("budget"), &json!(0.125))
    );
    // WhatsApp changes the category of the template.
    ana.put(&contact, json!({ "phone": "+5511977777777" })).ok();
    server.db.run("UPDATE message_templates SET category = 'UTILITY'");
    refused_without_rate(ana.command(&id, "resume").send(), "BR");
    server.db.run("UPDATE message_templates SET category = 'MARKETING'");
    // Who cannot be written to needs no rate.
    ana.put(&contact, json!({ "phone": "+351912345678" })).ok();
    ana.delete(&contact).no_content();
    set_budget(&ana, &id, 1.0).ok();
    ana.command(&id, "resume").send().ok();
    wait_for_stat(&ana, &id, "failed", 1);
    assert_eq!(final_status(&ana, &id), "partial");
    assert_eq!(calls(&server).len(), 3);
}

#[test]
fn retry_with_a_budget_needs_a_rate_for_its_recipients() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    add_card(&server, CARD);
    let id = campaign_of(&ana, 3);
    set_budget(&ana, &id, 5.0).ok();
    let failure = WhatsappFault::send_to(&phone(1), WhatsappFaultKind::error(131_026, ""));
    server.whatsapp.script(vec![failure]);
    assert_eq!(ana.execute(&id).ok()["failed"], 1);
    let contact = format!("/api/contacts/{}", contact_with(&ana, &id, "failed"));
    ana.put(&contact, json!({ "phone": "+351912345678" })).ok();
    let retry = || ana.post(&format!("{}/retry-failed", path(&id)), json!({ "force": true }));
    refused_without_rate(retry(), "PT");
    assert_eq!(ana.status(&id), "partial");
    add_card(&server, "PT,USD,marketing,0.125,2026-01-01,,,\n");
    let retried = retry().ok();
    assert_eq!(
        (&retried["status"], &retried["retry"]["tried"]),
        (&json!("sending"), &json!(1))
    );
    assert_eq!(retried["cost"]["currency"], "USD");
    assert_eq!(final_status(&ana, &id), "completed");
    assert_eq!(ana.get(&path(&id)).ok()["cost"]["reserved"], 0.25);
    assert!(verify(&server));
}

#[test]
fn response_of_a_command_has_the_cost_of_after_it() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    add_card(&server, CARD);
    let budget = json!({ "amount": 0.125, "currency": "USD" });
    let stored = |campaign: &Value| ana.get(&path(&text(&campaign["id"]))).ok()["cost"].clone();
    let created = ana
        .post("/api/campaigns", json!({ "name": "x", "budget": budget }))
        .created();
    assert_eq!(
        created["cost"],
        json!({ "amount": 0, "currency": "USD", "reserved": 0, "unpriced": 0 })
    );
    assert_eq!(created["cost"], stored(&created));

    let id = campaign_of(&ana, 3);
    let failure = WhatsappFault::send_to(&phone(0), WhatsappFaultKind::error(131_026, ""));
    server.whatsapp.script(vec![failure]);
    ana.put(&path(&id), json!({ "budget": budget })).ok();
    assert_eq!(ana.execute(&id).ok()["paused"], true);
    let sends = ana.sends(&id);
    let sent = sends.iter().find(|send| send["status"] == "sent").unwrap();
    server.callback(&statuses(NUMBER, &[priced(sent, "delivered", 0, regular("marketing"))]));
    let spent = ana.get(&path(&id)).ok()["cost"].clone();
    assert_eq!(spent["amount"], 0.0625);
    let removed = ana.put(&path(&id), json!({ "budget": null })).ok();
    assert_eq!(removed["cost"], stored(&removed));
    let changed = ana.put(&path(&id), json!({ "budget": budget })).ok();
    assert_eq!(changed["cost"], spent);
    set_budget(&ana, &id, 1.0).ok();
    let resumed = ana.command(&id, "resume").send().ok();
    assert_eq!(resumed["cost"]["amount"], 0.0625);
    assert_eq!(final_status(&ana, &id), "partial");
    let retried = ana
        .post(&format!("{}/retry-failed", path(&id)), json!({ "force": true }))
        .ok();
    assert_eq!(retried["cost"]["amount"], 0.0625);
}

/// Campaigns by default.
const CAMPAIGNS: u64 = 2;

const CONTACTS: usize = 120;

/// Kills per campaign.
const KILLS: u64 = 3;

/// The messages that fit into the budget after each kill.
const FITTING: i64 = 30;

/// Waits until the run pauses, and asserts that what WhatsApp got fits into the budget.
fn assert_within(ana: &User<'_>, id: &str, messages: i64) {
    let paused = eventually("the run pauses", || {
        let campaign = ana.get(&path(id)).ok();
        (campaign["pause_reason"] == "budget").then_some(campaign)
    });
    let called: usize = calls(ana.server).values().sum();
    let budget = paused["budget"]["amount"].as_f64().unwrap();
    assert!(i64::try_from(called).unwrap() <= messages, "{called} calls");
    let started = format!("FROM campaign_sends WHERE campaign_id = '{id}' AND started_at IS NOT NULL");
    let started = ana.server.db.count(&started);
    assert!(started <= messages, "{started} messages were started");
    let amount = |field: &str| paused["cost"][field].as_f64().unwrap();
    assert!(amount("amount") + amount("reserved") <= budget, "{paused}");
}

/// A kill that leaves the run to another server while the first one still sends.
fn send_with_kill(ana: &User<'_>, id: &str, rng: &mut TestRng, messages: i64) {
    let server = ana.server;
    let before = server.whatsapp.counters().accepted;
    let budget = f64::from(i32::try_from(messages).unwrap()) * 0.0625;
    set_budget(ana, id, budget).ok();
    let second = server.sibling();
    match ana.status(id).as_str() {
        "draft" => ana.send(id),
        _ => drop(ana.command(id, "resume").send().ok()),
    }
    until("the run makes progress", || {
        server.whatsapp.counters().accepted >= before + 1 + rng.below(10)
    });
    // A lease that ends too early: two servers send messages of one run.
    expire_leases(server);
    std::thread::sleep(rng.duration_below(60_000));
    server.kill();
    server.run(&["serve"]);
    expire_leases(server);
    assert_within(ana, id, messages);
    drop(second);
}

#[test]
fn budget_holds_with_two_servers_and_kills() {
    let (runs, seed) = (runs(CAMPAIGNS), seed(20_261_129));
    let server = Server::start(Options::with_whatsapp(|whatsapp| {
        whatsapp.latency_ms = 10;
        (whatsapp.sent_ms, whatsapp.delivered_ms, whatsapp.read_ms) = (Some(20), Some(40), None);
    }));
    add_card(&server, CARD);
    for run in 0..runs {
        println!("campaign {run} of seed {seed}");
        let mut rng = TestRng::of(seed, run);
        let ana = server.owner();
        server.db.run("UPDATE accounts SET plan = 'scale'");
        let profile = ana.profile();
        let send_rate = json!({ "messages_per_second": 200 });
        ana.put(&format!("/api/whatsapp/profiles/{profile}"), send_rate).ok();
        ana.contacts(CONTACTS);
        let id = ana.plain_campaign();
        server.whatsapp.reset();
        for kill in 1..=KILLS {
            let messages = FITTING * i64::try_from(kill).unwrap();
            send_with_kill(&ana, &id, &mut rng, messages);
        }
        assert!(verify(&server));
    }
}
