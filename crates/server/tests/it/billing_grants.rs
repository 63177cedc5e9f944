//! Grants: a plan that a platform administrator gave is stored separately from the paid plan. The better one is active.

use serde_json::{Value, json};

use crate::billing::{card_order, order, overview, plan, subscribe, wait_for_first_payment, wait_for_status};
use crate::harness::users::User;
use crate::harness::{Server, until};

const CARD: &str = "4111 1111 1111 1111";

fn grant_plan(root: &User<'_>, account: &str, plan: &str) {
    let body = json!({ "action": "change_plan", "plan": plan });
    root.post(&format!("/api/admin/accounts/{account}/action"), body).ok();
}

/// Creates an owner whose subscription is cancelled and whose paid period has ended.
fn former_customer<'a>(server: &'a Server) -> User<'a> {
    let ana = server.owner();
    subscribe(&ana, card_order(CARD, "123")).created();
    wait_for_status(&ana, "active");
    wait_for_first_payment(&ana);
    ana.post("/api/billing/cancel", json!({})).ok();
    server.db.run("UPDATE subscriptions SET current_period_end = now()");
    until("the paid period has ended", || plan(&ana) == "free");
    ana
}

/// Records `messages` sent messages in this month.
fn use_quota(user: &User<'_>, messages: usize) {
    user.server.db.run(&format!(
        "INSERT INTO message_usage_slots (account_id, month, sent)
           VALUES ('{}', date_trunc('month', now() AT TIME ZONE 'UTC')::date, {messages})",
        user.account
    ));
}

#[test]
fn granted_plan_is_active_for_former_customer() {
    let server = Server::new();
    let (root, ana) = (server.root(), former_customer(&server));
    ana.contacts(1);
    let template = ana.approved("Oi", &[]);
    let execute_campaign = || {
        let id = ana.campaign(json!({ "name": "C", "template_id": template }));
        ana.execute(&id)
    };
    // More than the free plan includes.
    use_quota(&ana, 300);
    execute_campaign().refused(400, "VALIDATION_ERROR");
    grant_plan(&root, &ana.account, "growth");
    assert_eq!(execute_campaign().ok()["sent"], 1);
    let shown = overview(&ana);
    assert_eq!(
        (
            &shown["subscription"],
            &shown["plan"]["id"],
            &shown["plan"]["limits"]["messagesPerMonth"]
        ),
        (&Value::Null, &json!("growth"), &json!(30_000))
    );
    // Administrators see the plan and no revenue.
    let listed = root.get("/api/admin/accounts?plan=growth").ok();
    assert_eq!((&listed["total"], &listed["data"][0]["mrr"]), (&json!(1), &json!(0)));
    let account = root.get(&format!("/api/admin/accounts/{}", ana.account)).ok();
    assert_eq!(account["plan"], "growth");
    // Granting `free` ends the grant.
    grant_plan(&root, &ana.account, "free");
    assert_eq!(
        (plan(&ana).as_str(), &overview(&ana)["plan"]["id"]),
        ("free", &json!("free"))
    );
    execute_campaign().refused(400, "VALIDATION_ERROR");
}

#[test]
fn grant_outlives_subscription_and_never_reduces_it() {
    let server = Server::new();
    let (root, ana) = (server.root(), server.owner());
    grant_plan(&root, &ana.account, "growth");
    // A smaller paid plan adds nothing to the grant, a larger one does.
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
    // Neither a smaller grant nor its end reduces a paid plan.
    let bia = server.owner();
    let mut scale = card_order(CARD, "123");
    scale["plan"] = json!("scale");
    subscribe(&bia, scale).created();
    wait_for_status(&bia, "active");
    wait_for_first_payment(&bia);
    bia.post("/api/billing/cancel", json!({})).ok();
    for smaller in ["starter", "free"] {
        grant_plan(&root, &bia.account, smaller);
        assert_eq!(
            (&overview(&bia)["plan"]["id"], plan(&bia).as_str()),
            (&json!("scale"), "scale")
        );
    }
    grant_plan(&root, &bia.account, "starter");
    server.db.run(&format!(
        "UPDATE subscriptions SET current_period_end = now() WHERE account_id = '{}'",
        bia.account
    ));
    until("the paid period has ended", || plan(&bia) == "starter");
}

/// A grant to an account with a paid subscription changes the subscription's plan and replaces the earlier grant.
#[test]
fn grant_to_paying_account_changes_its_subscription_plan() {
    let server = Server::new();
    let (root, ana) = (server.root(), server.owner());
    grant_plan(&root, &ana.account, "scale");
    subscribe(&ana, card_order(CARD, "123")).created();
    wait_for_status(&ana, "active");
    wait_for_first_payment(&ana);
    assert_eq!(plan(&ana), "scale");
    grant_plan(&root, &ana.account, "growth");
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
    until("no plan is left", || plan(&ana) == "free");
}
