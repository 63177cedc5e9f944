//! Consent: the contact, WhatsApp and the account can each change it. The newest change wins.

use recado_simulators::whatsapp::{Inbound, Preference};
use serde_json::{Value, json};

use crate::harness::runs::{status, statuses, without_statuses};
use crate::harness::users::{User, now, phone};
use crate::harness::{Server, text, until};
use crate::inbound_webhooks::Hook;

const NUMBER: &str = "106500000001";

/// An account with a connected number and one contact.
struct Fixture<'a> {
    ana: User<'a>,
    server: &'a Server,
    path: String,
    phone: String,
}

impl<'a> Fixture<'a> {
    fn new(server: &'a Server) -> Self {
        let ana = server.owner();
        ana.profile_at(NUMBER);
        let phone = phone(1);
        let path = format!("/api/contacts/{}", ana.contact("Bia", &phone));
        Self {
            ana,
            server,
            path,
            phone,
        }
    }

    fn is_opted_out(&self) -> bool {
        self.ana.get(&self.path).ok()["opted_out_at"].is_string()
    }

    fn set_opt_out(&self, opted_out: bool) -> Value {
        self.ana.put(&self.path, json!({ "opted_out": opted_out })).ok()
    }

    /// Applies a `user_preferences` callback of WhatsApp: `stop` or `resume`.
    fn apply_preference(&self, value: &str, timestamp: u64) {
        self.server.whatsapp.preference(&Preference {
            phone_number_id: NUMBER.into(),
            from: self.phone.clone(),
            value: value.into(),
            timestamp: Some(timestamp),
            ..Preference::default()
        });
        self.wait_for_callbacks();
    }

    fn receive_message(&self, message: &str, timestamp: u64) {
        self.server.whatsapp.inbound(&Inbound {
            timestamp: Some(timestamp),
            ..Inbound::text(NUMBER, &self.phone, message)
        });
        self.wait_for_callbacks();
    }

    /// Applies a failed status with code 131050: the contact stopped marketing messages.
    fn apply_stopped_status(&self, wamid: &str, timestamp: u64) {
        let mut failed = status(wamid, "failed", None);
        failed["timestamp"] = json!(timestamp.to_string());
        failed["errors"] = json!([{ "code": 131_050, "title": "stopped" }]);
        self.server.callback(&statuses(NUMBER, &[failed]));
        self.wait_for_callbacks();
    }

    fn wait_for_callbacks(&self) {
        assert!(self.server.whatsapp.wait_idle(crate::harness::DEADLINE));
        until("every callback is processed", || {
            self.server.db.count("FROM whatsapp_callbacks") == 0
        });
    }

    /// Sends a campaign to the contact and returns the message's WhatsApp id.
    fn send_campaign(&self) -> String {
        let campaign = self.ana.plain_campaign();
        self.ana.execute(&campaign).ok();
        text(&self.ana.sends(&campaign)[0]["wa_message_id"])
    }
}

#[test]
fn older_opt_outs_do_not_undo_an_opt_in_of_the_api() {
    let server = Server::start(without_statuses());
    let fixture = Fixture::new(&server);
    let wamid = fixture.send_campaign();
    let stopped_at = now() - 100;
    fixture.apply_preference("stop", stopped_at);
    assert!(fixture.is_opted_out());
    assert_eq!(fixture.set_opt_out(false)["opted_out_at"], json!(null));
    // WhatsApp delivers at least once, for days, in any order.
    fixture.apply_preference("stop", stopped_at);
    fixture.apply_stopped_status(&wamid, stopped_at);
    fixture.receive_message("SAIR", stopped_at + 10);
    assert!(!fixture.is_opted_out());
    // A later opt-out of the contact wins.
    fixture.apply_preference("stop", now() + 10);
    assert!(fixture.is_opted_out());
}

#[test]
fn repeated_opt_out_of_same_second_keeps_later_opt_in() {
    let server = Server::start(without_statuses());
    let fixture = Fixture::new(&server);
    let stopped_at = now();
    fixture.apply_preference("stop", stopped_at);
    fixture.set_opt_out(false);
    fixture.apply_preference("stop", stopped_at);
    assert!(!fixture.is_opted_out());
}

#[test]
fn older_opt_in_does_not_undo_an_opt_out_of_the_api() {
    let server = Server::start(without_statuses());
    let fixture = Fixture::new(&server);
    let resumed_at = now() - 100;
    let first = fixture.set_opt_out(true)["opted_out_at"].clone();
    fixture.apply_preference("resume", resumed_at);
    assert!(fixture.is_opted_out());
    assert_eq!(
        fixture.set_opt_out(true)["opted_out_at"],
        first,
        "the first opt-out keeps its time"
    );
    fixture.apply_preference("resume", now() + 10);
    assert!(!fixture.is_opted_out());
    // The account's change comes later, so it wins even if WhatsApp's clock is ahead.
    assert!(fixture.set_opt_out(true)["opted_out_at"].is_string());
    fixture.apply_preference("resume", now());
    assert!(fixture.is_opted_out());
}

#[test]
fn opt_out_by_import_or_webhook_counts_as_of_now() {
    let server = Server::start(without_statuses());
    let fixture = Fixture::new(&server);
    let hook = Hook::new(&fixture.ana);
    let import = |_: &str| {
        let file = json!({ "name": "Bia", "phone": phone(1), "opted_out": true }).to_string();
        let request = fixture.ana.request("POST", "/api/contacts/import");
        request.body("application/x-ndjson", file).send().ok();
    };
    let call_webhook = |message_id: &str| {
        let data = json!({ "name": "Bia", "phone": phone(1), "opted_out": true });
        let body = json!({ "type": "contact.upserted", "data": data });
        hook.call(&server, message_id, &body).ok();
    };
    let opt_outs: [&dyn Fn(&str); 2] = [&import, &call_webhook];
    for (number, opt_out) in opt_outs.into_iter().enumerate() {
        // The import or webhook call counts as a new opt-out, also if the contact already is opted out.
        fixture.apply_preference("stop", now() - 200);
        opt_out(&format!("m{number}"));
        fixture.apply_preference("resume", now() - 100);
        assert!(fixture.is_opted_out(), "{number}");
        fixture.set_opt_out(false);
        opt_out(&format!("n{number}"));
        assert!(fixture.is_opted_out(), "{number}");
        fixture.set_opt_out(false);
    }
}

#[test]
fn contact_created_opted_out_stays_so_until_newer_opt_in() {
    let server = Server::start(without_statuses());
    let fixture = Fixture::new(&server);
    fixture.ana.delete(&fixture.path).no_content();
    let made = json!({ "name": "Bia", "phone": fixture.phone, "opted_out": true });
    let made = fixture.ana.post("/api/contacts", made).created();
    let fixture = Fixture {
        path: format!("/api/contacts/{}", text(&made["id"])),
        ..fixture
    };
    fixture.apply_preference("resume", now() - 100);
    assert!(fixture.is_opted_out());
    fixture.apply_preference("resume", now() + 10);
    assert!(!fixture.is_opted_out());
}
