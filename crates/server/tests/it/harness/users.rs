//! Users with sessions, and the requests that tests send most.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use uuid::Uuid;

use super::client::{Reply, Request};
use super::process::SESSION_SECRET;
use super::{Server, text};

/// A user with a session.
pub struct User<'a> {
    pub server: &'a Server,
    pub id: Uuid,
    pub email: String,
    pub token: String,
    /// The id of the user's account; empty without an account.
    pub account: String,
}

impl User<'_> {
    pub fn request(&self, method: &str, path: &str) -> Request {
        self.server.request(method, path).bearer(&self.token)
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        self.request("GET", path).send()
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: Value) -> Reply {
        self.request("POST", path).json(&body).send()
    }

    #[track_caller]
    pub fn put(&self, path: &str, body: Value) -> Reply {
        self.request("PUT", path).json(&body).send()
    }

    #[track_caller]
    pub fn delete(&self, path: &str) -> Reply {
        self.request("DELETE", path).send()
    }

    /// Creates a contact and returns its id.
    #[track_caller]
    pub fn contact(&self, name: &str, phone: &str) -> String {
        let body = json!({ "name": name, "phone": phone });
        text(&self.post("/api/contacts", body).created()["id"])
    }

    /// Imports `count` contacts and returns their phone numbers in order.
    #[track_caller]
    pub fn contacts(&self, count: usize) -> Vec<String> {
        let phones: Vec<String> = (0..count).map(phone).collect();
        let mut csv = "name,phone\n".to_owned();
        for (number, phone) in phones.iter().enumerate() {
            csv.push_str(&format!("Contato{number} Silva,{phone}\n"));
        }
        let imported = self.import(csv).ok();
        assert_eq!(imported["imported"], count, "{imported}");
        phones
    }

    pub fn import(&self, csv: impl Into<Vec<u8>>) -> Reply {
        self.request("POST", "/api/contacts/import")
            .body("text/csv", csv)
            .send()
    }

    /// Imports contacts with the phone numbers of these positions and one tag.
    #[track_caller]
    pub fn tagged(&self, tag: &str, numbers: Range<usize>) {
        let csv = numbers.fold("name,phone,tags\n".to_owned(), |csv, number| {
            csv + &format!("C,{},{tag}\n", phone(number))
        });
        self.import(csv).ok();
    }

    /// Creates a tag and returns its id.
    #[track_caller]
    pub fn tag(&self, name: &str) -> String {
        text(&self.post("/api/tags", json!({ "name": name })).created()["id"])
    }

    /// Connects a random phone number and returns the profile's id.
    #[track_caller]
    pub fn profile(&self) -> String {
        let number = Uuid::new_v4().as_u128() % 1_000_000_000_000;
        text(&self.profile_at(&number.to_string())["id"])
    }

    /// Connects a random phone number that counts as verified, without a call to WhatsApp.
    #[track_caller]
    pub fn profile_without_check(&self) -> String {
        let number = Uuid::new_v4().as_u128() % 1_000_000_000_000;
        let body = json!({ "name": "Loja", "phone_number_id": number.to_string(), "waba_id": "100000000000001",
                           "access_token": "EAAG-token" });
        let id = text(&self.post("/api/whatsapp/profiles?verify=false", body).created()["id"]);
        self.server.db.run(&format!(
            "UPDATE whatsapp_profiles SET verification_state = 'verified', pending_since = NULL, held_since = NULL,
               next_check_at = NULL WHERE id = '{id}'"
        ));
        id
    }

    /// Connects the WhatsApp number with this `phone_number_id`.
    #[track_caller]
    pub fn profile_at(&self, number: &str) -> Value {
        let body = json!({ "name": "Loja", "phone_number_id": number, "waba_id": "100000000000001",
                           "access_token": "EAAG-token" });
        self.post("/api/whatsapp/profiles", body).created()
    }

    /// Creates a draft template and returns its id.
    #[track_caller]
    pub fn template(&self, name: &str, body_text: &str, examples: &[&str]) -> String {
        let body = json!({ "name": name, "category": "MARKETING", "language": "pt_BR", "template_type": "standard",
                           "body_text": body_text, "example_values": examples });
        text(&self.post("/api/templates", body).created()["id"])
    }

    /// Creates a template, approves it by SQL and returns its id.
    #[track_caller]
    pub fn approved(&self, body_text: &str, examples: &[&str]) -> String {
        let name = format!("t{}", Uuid::new_v4().simple());
        let id = self.template(&name, body_text, examples);
        self.server.db.run(&format!(
            "UPDATE message_templates SET meta_status = 'approved' WHERE id = '{id}'"
        ));
        id
    }

    /// Creates a campaign and returns its id.
    #[track_caller]
    pub fn campaign(&self, body: Value) -> String {
        text(&self.post("/api/campaigns", body).created()["id"])
    }

    /// Creates a campaign with a plain template and all contacts as its audience.
    #[track_caller]
    pub fn plain_campaign(&self) -> String {
        let template = self.approved("Oi {{1}}", &["Ana"]);
        self.campaign(json!({ "name": "Oferta", "template_id": template }))
    }

    /// Imports contacts with the phone numbers of these positions and a new tag, and creates a campaign to that tag.
    #[track_caller]
    pub fn campaign_to(&self, tag: &str, numbers: Range<usize>) -> String {
        let id = self.tag(tag);
        self.tagged(tag, numbers);
        let template = self.approved("Oi", &[]);
        self.campaign(json!({ "name": tag, "template_id": template, "segment_config": { "tag_ids": [id] } }))
    }

    /// Inserts a row that no route creates and returns its id.
    #[track_caller]
    pub fn row(&self, table: &str, columns: &str, values: &str) -> String {
        let (id, account) = (Uuid::now_v7(), &self.account);
        self.server.db.run(&format!(
            "INSERT INTO {table} (account_id, id, {columns}) VALUES ('{account}', '{id}', {values})"
        ));
        id.to_string()
    }

    /// Builds the request of a campaign command.
    pub fn command(&self, campaign: &str, command: &str) -> Request {
        self.request("POST", &format!("/api/campaigns/{campaign}/{command}"))
    }

    #[track_caller]
    pub fn execute(&self, campaign: &str) -> Reply {
        self.command(campaign, "execute").send()
    }

    /// Queues a campaign for the workers.
    #[track_caller]
    pub fn send(&self, campaign: &str) {
        self.command(campaign, "send").send().ok();
    }

    #[track_caller]
    pub fn cancel(&self, campaign: &str) -> Reply {
        self.command(campaign, "cancel").send()
    }

    #[track_caller]
    pub fn stats(&self, campaign: &str) -> Value {
        self.get(&format!("/api/campaigns/{campaign}/stats")).ok()
    }

    #[track_caller]
    pub fn status(&self, campaign: &str) -> String {
        text(&self.get(&format!("/api/campaigns/{campaign}")).ok()["status"])
    }

    /// The first 100 sends of a campaign.
    #[track_caller]
    pub fn sends(&self, campaign: &str) -> Vec<Value> {
        let page = self
            .get(&format!("/api/campaigns/{campaign}/sends?limit=100"))
            .expect(200);
        page["data"].as_array().unwrap().clone()
    }
}

/// The mobile number at this position of the test range.
pub fn phone(number: usize) -> String {
    format!("+55119{:08}", 60_000_000 + number)
}

/// A session token that is valid for one hour.
pub fn token(user: Uuid, email: &str) -> String {
    sign(&json!({ "sub": user, "email": email, "exp": now() + 3600 }))
}

/// A session token with these claims.
pub fn sign(claims: &Value) -> String {
    sign_with(&json!({ "alg": "HS256", "typ": "JWT" }), claims, SESSION_SECRET)
}

/// A token with this header, these claims and this secret.
pub fn sign_with(head: &Value, claims: &Value, secret: &str) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(head), part(claims));
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    let signature = mac.chain_update(&signed).finalize().into_bytes();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Unix time in seconds.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
