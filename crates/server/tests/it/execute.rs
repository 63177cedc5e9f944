//! Executing a campaign: preconditions, audience, rendered placeholders and the final report.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::runs::{wait_for_stat, without_statuses};
use crate::harness::users::{User, phone};
use crate::harness::{Server, text};

/// Asserts that executing is refused with 400 and has no effect. Returns the message.
#[track_caller]
fn execute_refused(ana: &User<'_>, id: &str) -> String {
    let error = ana.execute(id).refused(400, "VALIDATION_ERROR");
    assert_eq!(ana.status(id), "draft");
    let db = &ana.server.db;
    assert_eq!(db.count("FROM campaign_sends") + db.count("FROM campaign_queue"), 0);
    assert!(ana.server.whatsapp.sends().is_empty());
    text(&error["message"])
}

#[test]
fn execute_checks_each_precondition() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    let template = ana.approved("Oi {{1}}", &["Ana"]);
    let id = ana.campaign(json!({ "name": "Oferta", "template_id": template }));
    assert!(execute_refused(&ana, &id).contains("no contact"));
    ana.contact("Ana", &phone(1));
    let none = ana.campaign(json!({ "name": "Sem" }));
    assert!(execute_refused(&ana, &none).contains("template"));
    let draft = ana.template("rascunho", "Oi", &[]);
    let draft = ana.campaign(json!({ "name": "Rascunho", "template_id": draft }));
    assert!(execute_refused(&ana, &draft).contains("not approved"));
    ana.delete(&format!("/api/templates/{template}")).no_content();
    assert!(execute_refused(&ana, &id).contains("template"));
}

#[test]
fn execute_without_active_plan_is_refused() {
    let server = Server::new();
    let ana = server.owner();
    ana.contact("Ana", &phone(1));
    let id = ana.plain_campaign();
    let account = &ana.account;
    server
        .db
        .run(&format!("UPDATE accounts SET plan = 'starter' WHERE id = '{account}'"));
    let subscribe = |status: &str, end: &str| {
        server.db.run(&format!(
            "DELETE FROM subscriptions; INSERT INTO subscriptions (account_id, id, plan, cycle, status, billing_type,
               value, current_period_end, lapsed_at) VALUES ('{account}', '{}', 'starter', 'MONTHLY', '{status}', 'PIX',
               9700, now() + interval '{end}', now())",
            Uuid::now_v7()
        ));
    };
    for (status, end) in [
        ("pending", "1 day"),
        ("inactive", "1 day"),
        ("past_due", "-1 day"),
        ("cancelled", "-1 day"),
    ] {
        subscribe(status, end);
        assert!(execute_refused(&ana, &id).contains("plan"), "{status}");
    }
    // A second account: refused requests count towards the rate limit on executing.
    let bia = server.owner();
    bia.contact("Ana", &phone(1));
    let id = bia.plain_campaign();
    let account = &bia.account;
    server.db.run(&format!(
        "UPDATE accounts SET plan = 'starter' WHERE id = '{account}';
         INSERT INTO subscriptions (account_id, id, plan, cycle, status, billing_type, value, current_period_end)
           VALUES ('{account}', '{}', 'starter', 'MONTHLY', 'cancelled', 'PIX', 9700, now() + interval '1 day')",
        Uuid::now_v7()
    ));
    bia.execute(&id).ok();
}

#[test]
fn execute_names_the_empty_placeholder() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    ana.contacts(3);
    let template = ana.approved("Oi {{1}}, use {{2}}", &["Ana", "X"]);
    let with =
        |variables: Value| ana.campaign(json!({ "name": "Oferta", "template_id": template, "variables": variables }));
    let message = execute_refused(&ana, &with(json!({ "2": "{attributes.coupon}" })));
    assert!(message.contains("{{2}}"), "{message}");
    let message = execute_refused(&ana, &with(json!({ "1": " ", "2": "x" })));
    assert!(message.contains("{{1}}"), "{message}");
    let report = ana.execute(&with(json!({ "2": "{attributes.coupon|PROMO10}" }))).ok();
    assert_eq!(report["sent"], 3);
}

#[test]
fn run_without_connected_number_is_simulated() {
    let server = Server::new();
    let ana = server.owner();
    ana.contacts(30);
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    assert_eq!(
        report,
        json!({ "total": 30, "sent": 30, "failed": 0, "simulated": true, "status": "sent" })
    );
    assert!(server.whatsapp.ledger().is_empty());
    let stats = ana.stats(&id);
    assert_eq!(
        stats,
        json!({ "total": 30, "pending": 0, "sent": 30, "delivered": 0, "read": 0, "failed": 0 })
    );
    assert_eq!(
        server.db.text("SELECT sent || ' ' || reserved FROM message_usage"),
        "30 0"
    );
    let page = ana
        .get(&format!("/api/campaigns/{id}/sends?limit=10&page=3"))
        .expect(200);
    assert_eq!((&page["total"], &page["totalPages"]), (&json!(30), &json!(3)));
    let send = &page["data"][0];
    let fields: Vec<&String> = send.as_object().unwrap().keys().collect();
    assert_eq!((fields.len(), &send["address"]), (14, &json!("phone")), "{send}");
    assert!(
        send["sent_at"].is_string() && send["contacts"]["phone"].is_string(),
        "{send}"
    );
}

#[test]
fn run_sends_each_contact_one_message() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    let phones = ana.contacts(55);
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    assert_eq!(
        report,
        json!({ "total": 55, "sent": 55, "failed": 0, "simulated": false, "status": "completed" })
    );
    let called: BTreeSet<String> = server
        .whatsapp
        .sends()
        .into_iter()
        .map(|send| send.to.unwrap())
        .collect();
    assert_eq!(called, phones.into_iter().collect());
    let counters = server.whatsapp.counters();
    assert_eq!((counters.accepted, counters.per_recipient_max), (55, 1));
    wait_for_stat(&ana, &id, "read", 55);
    let sends = ana.sends(&id);
    assert!(
        sends
            .iter()
            .all(|send| send["wa_message_id"].as_str().unwrap().starts_with("wamid."))
    );
    let order: Vec<String> = sends.iter().map(|send| text(&send["sent_at"])).collect();
    assert!(order.is_sorted_by(|a, b| a >= b), "latest first");
    // A deleted contact's send leaves the list of sends, but stays in the counters.
    let deleted = text(&sends[0]["contact_id"]);
    ana.delete(&format!("/api/contacts/{deleted}")).no_content();
    assert_eq!(ana.stats(&id)["total"], 55);
}

#[test]
fn placeholders_are_rendered_for_each_contact() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let add = |name: &str, number: usize, email: Value, attributes: Value| {
        let body = json!({ "name": name, "phone": phone(number), "email": email, "attributes": attributes });
        ana.post("/api/contacts", body).created();
    };
    add(
        "Ana Maria Souza",
        1,
        json!("ana@loja.example"),
        json!({ "coupon": "ANA5", "points": 12 }),
    );
    add("Bia", 2, json!(null), json!({ "coupon": "" }));
    let examples = ["Ana", "Ana Maria", "X", "mail", "5"];
    let template = ana.approved("{{1}} {{2}} {{3}} {{4}} {{5}} fim", &examples);
    let variables = json!({ "2": "{name|cliente}", "3": "use {attributes.coupon|PROMO10}!", "4": "{email|sem}",
                            "5": "{attributes.points|0} {phone}" });
    let id = ana.campaign(json!({ "name": "O", "template_id": template, "variables": variables }));
    ana.execute(&id).ok();
    let sent = server.whatsapp.sends();
    let parameters_of = |number: usize| {
        let send = sent
            .iter()
            .find(|send| send.to.as_deref() == Some(&phone(number)))
            .unwrap();
        assert_eq!(send.language.as_deref(), Some("pt_BR"));
        send.parameters.clone()
    };
    let ana_parameters = [
        "Ana",
        "Ana Maria Souza",
        "use ANA5!",
        "ana@loja.example",
        &format!("12 {}", phone(1)),
    ];
    let bia_parameters = ["Bia", "Bia", "use PROMO10!", "sem", &format!("0 {}", phone(2))];
    assert_eq!(parameters_of(1), ana_parameters);
    assert_eq!(parameters_of(2), bia_parameters);
}

#[test]
fn audience_is_a_union_narrowed_by_filters() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let (vip, b2b) = (ana.tag("vip"), ana.tag("b2b"));
    let add = |number: usize, tags: &[&str], email: Option<&str>, city: &str| {
        let body = json!({ "name": "C", "phone": phone(number), "tag_ids": tags, "email": email,
                           "attributes": { "cidade": city } });
        text(&ana.post("/api/contacts", body).created()["id"])
    };
    add(1, &[&vip], Some("a@loja.example"), "Santos");
    let both = add(2, &[&vip, &b2b], None, "Santos");
    add(3, &[&b2b], Some("c@loja.example"), "Osasco");
    let member = add(4, &[], Some("d@loja.example"), "Santos");
    let out = add(5, &[&vip], None, "Santos");
    let hidden = add(6, &[&vip], None, "Santos");
    let rfm = add(7, &[], None, "Santos");
    add(8, &[], None, "Santos");
    let (segment, account) = (Uuid::now_v7(), &ana.account);
    server.db.run(&format!(
        "UPDATE contacts SET opted_out_at = now() WHERE id = '{out}';
         UPDATE contacts SET phone = NULL, wa_user_id = 'BR.1' WHERE id = '{hidden}';
         INSERT INTO segments (account_id, id, name) VALUES ('{account}', '{segment}', 'S');
         INSERT INTO segment_members VALUES ('{account}', '{segment}', '{member}'), ('{account}', '{segment}', '{both}'),
           ('{account}', '{segment}', '{out}');
         INSERT INTO contact_rfm VALUES ('{account}', '{rfm}', 5, 5, 5, 'champions')"
    ));
    let template = ana.approved("Oi", &[]);
    let reached = |body: Value| {
        server.whatsapp.reset();
        // The runs of this test stay within the rate limit on executing.
        let mut campaign = json!({ "name": "O", "template_id": template });
        campaign
            .as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        let report = ana.execute(&ana.campaign(campaign)).ok();
        let mut reached: Vec<usize> = (1..=8)
            .filter(|n| {
                server
                    .whatsapp
                    .sends()
                    .iter()
                    .any(|send| send.to.as_deref() == Some(&phone(*n)))
            })
            .collect();
        reached.sort_unstable();
        assert_eq!(report["total"], reached.len(), "no contact twice");
        reached
    };
    assert_eq!(
        reached(json!({})),
        [1, 2, 3, 4, 7, 8],
        "all contacts with a phone number and without an opt-out"
    );
    let union = json!({ "segment_id": segment, "segment_config": { "tag_ids": [vip] }, "rfm_segments": ["champions"] });
    assert_eq!(reached(union), [1, 2, 4, 7]);
    let narrowed = json!({ "segment_id": segment, "segment_config": { "tag_ids": [vip, b2b], "filters":
        { "has_email": true, "attributes": { "cidade": "Santos" } } } });
    assert_eq!(reached(narrowed), [1, 4]);
    let recent =
        json!({ "segment_config": { "filters": { "created_after": "2020-01-01T00:00:00Z", "has_email": false } } });
    assert_eq!(reached(recent), [2, 7, 8]);
    let past = json!({ "name": "O", "template_id": template,
        "segment_config": { "filters": { "created_before": "2020-01-01T00:00:00Z" } } });
    ana.execute(&ana.campaign(past)).refused(400, "VALIDATION_ERROR");
}

#[test]
fn concurrent_executes_start_one_run() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "20"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(20);
    let id = ana.plain_campaign();
    let request = ana.command(&id, "execute");
    let mut statuses = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| request.clone().send().status)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 400, 400, 400]);
    assert_eq!(server.whatsapp.counters().accepted, 20);
}
