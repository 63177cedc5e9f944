//! A WhatsApp simulator that writes raw bytes, for responses that a correct server never gives.

use recado_simulators::raw::{RawServer, Reply};
use serde_json::Value;

use super::eventually;

/// A complete JSON response that closes the connection.
pub fn json(status: &str, body: &str) -> Reply {
    Reply::http_last(&format!("{status}\r\nContent-Type: application/json"), body)
}

/// The response that accepts a message with this id.
pub fn accepted(id: &str) -> Reply {
    let body = format!(r#"{{"messages":[{{"id":"{id}","message_status":"accepted"}}]}}"#);
    json("200 OK", &body)
}

/// Listens until it is dropped.
pub struct RawWhatsapp(RawServer);

impl RawWhatsapp {
    /// Listens at this port (0: any free port). `respond` returns the response for a recipient.
    pub fn start(port: u16, respond: impl Fn(&str) -> Reply + Send + Clone + 'static) -> Self {
        let bind = format!("127.0.0.1:{port}");
        let listening = || {
            let respond = respond.clone();
            RawServer::start_at(&bind, move |request| respond(&recipient(&request.body))).ok()
        };
        Self(eventually("the port is free", listening))
    }

    pub fn base_url(&self) -> String {
        format!("{}/v25.0", self.0.origin())
    }

    /// The recipient of each request in order of arrival.
    pub fn received(&self) -> Vec<String> {
        self.0
            .requests()
            .iter()
            .map(|request| recipient(&request.body))
            .collect()
    }
}

fn recipient(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap();
    body["to"].as_str().unwrap().to_owned()
}
