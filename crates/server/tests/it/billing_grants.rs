//! A plan that an administrator granted is a fact of its own, beside what is paid for.

use serde_json::{Value, json};

use crate::billing::{becomes, card_order, order, overview, paid, plan, subscribe};
use crate::harness::users::User;
use crate::harness::{Server, until};

const CARD: &str = "4111 1111 1111 1111";

fn grant(root: &User<'_>, account: &str, plan: &str) {
    let body = json!({ "action": "change_plan", "plan": plan });
    root.post(&format!("/api/admin/accounts/{account}/action"), body).ok();
}

/// A customer whose subscription was cancelled, and whose paid time is over.
fn formerly<'a>(server: &'a Server) -> User<'a> {
    let ana = server.owner();
    subscribe(&ana, card_order(CARD, "123")).created();
    becomes(&ana, "active");
    paid(&ana);
    ana.post("/api/billing/cancel", json!({})).ok();
    server.db.run("UPDATE subscriptions SET current_period_end = now()");
    until("the plan is over", || plan(&ana) == "free");
    ana
}

/// So many of the month's messages are used.
fn use_up(user: &User<'_>, messages: usize) {
    user.server.db.run(&format!(
        "INSERT INTO message_usage_slots (account_id, month, sent)
           VALUES ('{}', date_trunc('month', now() AT TIME ZONE 'UTC')::date, {messages})",
        user.account
    ));
}

#[test]
fn a_former_customer_can_use_what_is_granted() {
    let server = Server::new();
    let (root, ana) = (server.root(), formerly(&server));
    ana.contacts(1);
    let template = ana.approved("Oi", &[]);
    let run = || {
        let id = ana.campaign(json!({ "name": "C", "template_id": template }));
        ana.execute(&id)
    };
    // More than the free plan has.
    use_up(&ana, 300);
    run().refused(400, "VALIDATION_ERROR");
    grant(&root, &ana.account, "growth");
    assert_eq!(run().ok()["sent"], 1);
    let shown = overview(&ana);
    assert_eq!(
        (
            &shown["subscription"],
            &shown["plan"]["id"],
            &shown["plan"]["limits"]["messagesPerMonth"]
        ),
        (&Value::Null, &json!("growth"), &json!(30_000))
    );
    // Administrators see the plan, and that nothing is paid for it.
    let listed = root.get("/api/admin/accounts?plan=growth").ok();
    assert_eq!((&listed["total"], &listed["data"][0]["mrr"]), (&json!(1), &json!(0)));
    let account = root.get(&format!("/api/admin/accounts/{}", ana.account)).ok();
    assert_eq!(account["plan"], "growth");
    // Taken back, it is the free plan again.
    grant(&root, &ana.account, "free");
    assert_eq!(
        (plan(&ana).as_str(), &overview(&ana)["plan"]["id"]),
        ("free", &json!("free"))
    );
    run().refused(400, "VALIDATION_ERROR");
}

#[test]
fn a_grant_outlives_a_subscription_and_takes_nothing_from_it() {
    let server = Server::new();
    let (root, ana) = (server.root(), server.owner());
    grant(&root, &ana.account, "growth");
    // Bought beside it: a smaller plan adds nothing, a larger one does.
    subscribe(&ana, order("PIX")).created();
    let shown = overview(&ana);
    assert_eq!(
        (
            &shown["subscription"]["plan"],
            &shown["plan"]["id"],
            plan(&ana).as_str()
        ),
        (&json!("starter"), &json!("growth"), "growth")
    );
    ana.put("/api/billing/subscription", json!({ "plan": "scale" })).ok();
    assert_eq!(
        (&overview(&ana)["plan"]["id"], plan(&ana).as_str()),
        (&json!("scale"), "scale")
    );
    ana.post("/api/billing/cancel", json!({})).ok();
    assert_eq!(
        (&overview(&ana)["plan"]["id"], plan(&ana).as_str()),
        (&json!("growth"), "growth")
    );
    // What is paid for is not taken by a smaller grant, nor by taking the grant back.
    let bia = server.owner();
    let mut scale = card_order(CARD, "123");
    scale["plan"] = json!("scale");
    subscribe(&bia, scale).created();
    becomes(&bia, "active");
    paid(&bia);
    bia.post("/api/billing/cancel", json!({})).ok();
    for smaller in ["starter", "free"] {
        grant(&root, &bia.account, smaller);
        assert_eq!(
            (&overview(&bia)["plan"]["id"], plan(&bia).as_str()),
            (&json!("scale"), "scale")
        );
    }
    grant(&root, &bia.account, "starter");
    server.db.run(&format!(
        "UPDATE subscriptions SET current_period_end = now() WHERE account_id = '{}'",
        bia.account
    ));
    until("the paid time is over", || plan(&bia) == "starter");
}

/// A subscription that is paid has the plan itself: what was granted before does not outdo it.
#[test]
fn a_change_of_what_is_paid_takes_the_place_of_the_grant() {
    let server = Server::new();
    let (root, ana) = (server.root(), server.owner());
    grant(&root, &ana.account, "scale");
    subscribe(&ana, card_order(CARD, "123")).created();
    becomes(&ana, "active");
    paid(&ana);
    assert_eq!(plan(&ana), "scale");
    grant(&root, &ana.account, "growth");
    let shown = overview(&ana);
    assert_eq!(
        (
            &shown["subscription"]["plan"],
            &shown["plan"]["id"],
            plan(&ana).as_str()
        ),
        (&json!("growth"), &json!("growth"), "growth")
    );
    ana.post("/api/billing/cancel", json!({})).ok();
    server.db.run("UPDATE subscriptions SET current_period_end = now()");
    until("nothing is left", || plan(&ana) == "free");
}
