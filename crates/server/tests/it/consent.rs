//! Whether a contact may be written to: the person, WhatsApp and the account each have a say, and the newest one counts.

use recado_simulators::whatsapp::{Inbound, Preference};
use serde_json::{Value, json};

use crate::harness::runs::{silent, status, statuses};
use crate::harness::users::{User, now, phone};
use crate::harness::{Server, text, until};
use crate::hooks::Hook;

const NUMBER: &str = "106500000001";

/// An account with a connected number and one contact.
struct Scene<'a> {
    ana: User<'a>,
    server: &'a Server,
    path: String,
    phone: String,
}

impl<'a> Scene<'a> {
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

    fn is_out(&self) -> bool {
        self.ana.get(&self.path).ok()["opted_out_at"].is_string()
    }

    fn put(&self, opted_out: bool) -> Value {
        self.ana.put(&self.path, json!({ "opted_out": opted_out })).ok()
    }

    /// WhatsApp's own switch, and that everything was applied.
    fn prefers(&self, value: &str, timestamp: u64) {
        self.server.whatsapp.preference(&Preference {
            phone_number_id: NUMBER.into(),
            from: self.phone.clone(),
            value: value.into(),
            timestamp: Some(timestamp),
            ..Preference::default()
        });
        self.settled();
    }

    fn writes(&self, words: &str, timestamp: u64) {
        self.server.whatsapp.inbound(&Inbound {
            timestamp: Some(timestamp),
            ..Inbound::text(NUMBER, &self.phone, words)
        });
        self.settled();
    }

    /// A status of the contact's message: they stopped marketing.
    fn stopped(&self, wamid: &str, timestamp: u64) {
        let mut failed = status(wamid, "failed", None);
        failed["timestamp"] = json!(timestamp.to_string());
        failed["errors"] = json!([{ "code": 131_050, "title": "stopped" }]);
        self.server.callback(&statuses(NUMBER, &[failed]));
        self.settled();
    }

    fn settled(&self) {
        assert!(self.server.whatsapp.wait_idle(crate::harness::DEADLINE));
        until("every callback is processed", || {
            self.server.db.count("FROM whatsapp_callbacks") == 0
        });
    }

    /// Sends the contact a campaign; the message's id.
    fn sent(&self) -> String {
        let campaign = self.ana.plain_campaign();
        self.ana.execute(&campaign).ok();
        text(&self.ana.sends(&campaign)[0]["wa_message_id"])
    }
}

#[test]
fn older_refusals_do_not_undo_an_opt_in_of_the_api() {
    let server = Server::start(silent());
    let scene = Scene::new(&server);
    let wamid = scene.sent();
    let said = now() - 100;
    scene.prefers("stop", said);
    assert!(scene.is_out());
    assert_eq!(scene.put(false)["opted_out_at"], json!(null));
    // WhatsApp delivers at least once, for days, in any order.
    scene.prefers("stop", said);
    scene.stopped(&wamid, said);
    scene.writes("SAIR", said + 10);
    assert!(!scene.is_out());
    // What the person says afterwards counts.
    scene.prefers("stop", now() + 10);
    assert!(scene.is_out());
}

#[test]
fn refusal_of_this_second_is_taken_back_and_its_repetition_ignored() {
    let server = Server::start(silent());
    let scene = Scene::new(&server);
    let said = now();
    scene.prefers("stop", said);
    scene.put(false);
    scene.prefers("stop", said);
    assert!(!scene.is_out());
}

#[test]
fn older_consent_does_not_undo_an_opt_out_of_the_api() {
    let server = Server::start(silent());
    let scene = Scene::new(&server);
    let said = now() - 100;
    let first = scene.put(true)["opted_out_at"].clone();
    scene.prefers("resume", said);
    assert!(scene.is_out());
    assert_eq!(scene.put(true)["opted_out_at"], first, "the first time counts");
    scene.prefers("resume", now() + 10);
    assert!(!scene.is_out());
    // The account's word comes later, whatever the clocks say.
    assert!(scene.put(true)["opted_out_at"].is_string());
    scene.prefers("resume", now());
    assert!(scene.is_out());
}

#[test]
fn opt_out_of_an_import_or_a_system_counts_as_of_now() {
    let server = Server::start(silent());
    let scene = Scene::new(&server);
    let hook = Hook::new(&scene.ana);
    let imported = |_: &str| {
        let file = json!({ "name": "Bia", "phone": phone(1), "opted_out": true }).to_string();
        let request = scene.ana.request("POST", "/api/contacts/import");
        request.body("application/x-ndjson", file).send().ok();
    };
    let told = |message: &str| {
        let data = json!({ "name": "Bia", "phone": phone(1), "opted_out": true });
        let body = json!({ "type": "contact.upserted", "data": data });
        hook.call(&server, message, &body).ok();
    };
    let ways: [&dyn Fn(&str); 2] = [&imported, &told];
    for (number, way) in ways.into_iter().enumerate() {
        // Said long ago: the newer word is that of the file, also where it repeats what is known.
        scene.prefers("stop", now() - 200);
        way(&format!("m{number}"));
        scene.prefers("resume", now() - 100);
        assert!(scene.is_out(), "{number}");
        scene.put(false);
        way(&format!("n{number}"));
        assert!(scene.is_out(), "{number}");
        scene.put(false);
    }
}

#[test]
fn contact_created_with_an_opt_out_keeps_it_until_something_newer() {
    let server = Server::start(silent());
    let scene = Scene::new(&server);
    scene.ana.delete(&scene.path).gone();
    let made = json!({ "name": "Bia", "phone": scene.phone, "opted_out": true });
    let made = scene.ana.post("/api/contacts", made).created();
    let scene = Scene {
        path: format!("/api/contacts/{}", text(&made["id"])),
        ..scene
    };
    scene.prefers("resume", now() - 100);
    assert!(scene.is_out());
    scene.prefers("resume", now() + 10);
    assert!(!scene.is_out());
}
