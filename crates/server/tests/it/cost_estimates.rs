//! Estimates of a preview against what the same run costs, with the simulator's prices.

use recado_simulators::whatsapp::Inbound;
use serde_json::{Value, json};

use crate::conversations::wait_for_callbacks;
use crate::costs::{NUMBER, add_card, verify};
use crate::harness::runs::wait_for_stat;
use crate::harness::users::{User, phone};
use crate::harness::{Server, eventually, text};

/// The rates are sums of powers of two, so that the amounts are exact.
const CARD: &str = "BR,USD,marketing,0.0625,2026-01-01,,,\n\
    BR,USD,utility,0.03125,2026-01-01,,,\n\
    Europe,USD,marketing,0.125,2026-01-01,PT;ES,,\n\
    Europe,USD,utility,0.0625,2026-01-01,PT;ES,,\n\
    AR,USD,marketing,0.25,2026-01-01,,,\n\
    AR,USD,utility,0.5,2026-01-01,,,\n";

/// An approved template that the simulator knows with its category.
fn template(user: &User<'_>, name: &str, category: &str) -> String {
    let body = json!({ "name": name, "category": category, "language": "pt_BR", "template_type": "standard",
        "body_text": "Oi", "example_values": [] });
    let id = text(&user.post("/api/templates", body).created()["id"]);
    user.server
        .whatsapp
        .add_template(&json!({ "name": name, "language": "pt_BR", "category": category,
        "components": [{ "type": "BODY", "text": "Oi" }] }));
    user.server.db.run(&format!(
        "UPDATE message_templates SET meta_status = 'approved' WHERE id = '{id}'"
    ));
    id
}

/// A second number of the account.
const OTHER_NUMBER: &str = "106500000002";

/// Contacts of three markets, of whom some have written to the number. One wrote to another number of the account: Recado
/// estimates that the message may be free, and WhatsApp charges it.
fn audience(user: &User<'_>) {
    user.contacts(6);
    for number in 0..4 {
        user.contact("Joana", &format!("+35191234567{number}"));
    }
    for number in 0..3 {
        user.contact("Lucía", &format!("+541123456{number}89"));
    }
    for from in [&phone(0), &phone(1), "+351912345670", "+541123456189"] {
        user.server.whatsapp.inbound(&Inbound::text(NUMBER, from, "oi"));
    }
    user.server
        .whatsapp
        .inbound(&Inbound::text(OTHER_NUMBER, &phone(2), "oi"));
    wait_for_callbacks(user.server);
    let open = "FROM conversations WHERE last_inbound_at > now() - interval '24 hours'";
    assert_eq!(user.server.db.count(open), 5);
}

/// Previews and executes a campaign, and returns low, actual and high amount.
fn run(user: &User<'_>, template: &str) -> [f64; 3] {
    let id = user.campaign(json!({ "name": "Aviso", "template_id": template }));
    let estimate = user
        .request("POST", &format!("/api/campaigns/{id}/preview"))
        .send()
        .ok()["cost"]
        .clone();
    assert_eq!(
        (&estimate["currency"], &estimate["unpriced"]),
        (&json!("USD"), &json!(0))
    );
    user.execute(&id).ok();
    wait_for_stat(user, &id, "read", 13);
    wait_for_callbacks(user.server);
    let cost = eventually("every message has its price", || {
        let cost = user.get(&format!("/api/campaigns/{id}")).ok()["cost"].clone();
        (cost["amount"] != json!(0)).then_some(cost)
    });
    assert_eq!((&cost["currency"], &cost["unpriced"]), (&json!("USD"), &json!(0)));
    let number = |value: &Value| value.as_f64().unwrap();
    [
        number(&estimate["low"]),
        number(&cost["amount"]),
        number(&estimate["high"]),
    ]
}

#[test]
fn run_costs_what_its_preview_estimates() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.profile_at(OTHER_NUMBER);
    add_card(&server, CARD);
    let (utility, marketing) = (
        template(&ana, "aviso", "UTILITY"),
        template(&ana, "oferta", "MARKETING"),
    );
    audience(&ana);
    // 6 in Brazil, 4 in Portugal, 3 in Argentina; 3, 1 and 1 of them in an open window.
    let high = 6.0 * 0.03125 + 4.0 * 0.0625 + 3.0 * 0.5;
    let low = 3.0 * 0.03125 + 3.0 * 0.0625 + 2.0 * 0.5;
    let [estimated_low, actual, estimated_high] = run(&ana, &utility);
    assert_eq!((estimated_low, estimated_high), (low, high));
    assert_eq!(
        actual,
        low + 0.03125,
        "a window with another number makes no message free"
    );
    assert!(estimated_low < actual && actual < estimated_high);
    // A window makes no marketing message free.
    let marketing_cost = 6.0 * 0.0625 + 4.0 * 0.125 + 3.0 * 0.25;
    assert_eq!(run(&ana, &marketing), [marketing_cost; 3]);
    assert!(verify(&server));
}
