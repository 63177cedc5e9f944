//! `recado listen`: forwards the feed of webhook events to a program on this machine.

use std::time::Duration;

use clap::Args;
use http::header::{HeaderName, HeaderValue};
use recado_domain::webhooks::{SecretBytes, sign};
use recado_gateways::http::{CallError, GatewayRequest, Http};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use time::OffsetDateTime;
use url::Url;
use uuid::Uuid;

use crate::api::{Api, client, is_this_machine};
use crate::{Connection, Failure};

/// Pause between two reads of a feed without new events, and between two attempts to reach the program.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time limit of the program, as that of a delivery.
const TIMEOUT: Duration = Duration::from_secs(15);

const PAGE: &str = "100";

/// The secret of the signatures. Without it, a random one is printed.
const SECRET: &str = "RECADO_WEBHOOK_SECRET";

#[derive(Args, Debug)]
#[command(
    after_help = "The signatures use the secret in RECADO_WEBHOOK_SECRET (whsec_...), else a random one, which is printed.\n\
    An event waits until the program accepts connections. A response that is not 2xx is printed, and the event is not repeated."
)]
pub struct Options {
    #[command(flatten)]
    connection: Connection,
    /// Port of the program on this machine, or its whole address, as http://127.0.0.1:3000/webhooks.
    #[arg(value_name = "PORT|URL", value_parser = parse_target)]
    target: Url,
    /// Only events of this type, as message.received.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Continue after the event with this id. Default: only events from now on, by the clock of this machine.
    #[arg(long, value_name = "ID")]
    cursor: Option<Uuid>,
}

/// A port of this machine, or an address with a loopback host.
fn parse_target(text: &str) -> Result<Url, String> {
    let address = match text.parse::<u16>() {
        Ok(port) => format!("http://127.0.0.1:{port}/"),
        Err(_) => text.to_owned(),
    };
    let url: Url = address
        .parse()
        .map_err(|_| "must be a port or an address as http://127.0.0.1:3000/webhooks")?;
    match is_this_machine(&url) {
        true => Ok(url),
        false => Err("must be on this machine; for another host register a webhook (POST /api/webhooks)".into()),
    }
}

pub(crate) async fn run(options: Options) -> Result<(), Failure> {
    let api = Api::new(&options.connection)?;
    check_that_events_are_stored(&api).await?;
    let program = Program {
        http: client()?,
        target: options.target,
        secret: [secret()?],
    };
    let mut cursor = options.cursor.unwrap_or_else(Uuid::now_v7).to_string();
    eprintln!("forwarding events to {}; Ctrl-C ends it", program.target);
    loop {
        let mut query = vec![("cursor", cursor.as_str()), ("limit", PAGE)];
        query.extend(options.kind.as_deref().map(|kind| ("type", kind)));
        let page = api.get(&["webhooks", "events"], &query).await?;
        for event in page["data"].as_array().into_iter().flatten() {
            program.forward(event).await?;
        }
        if let Some(next) = page["nextCursor"].as_str() {
            cursor = next.to_owned();
        }
        if page["hasMore"] != true {
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// An event is stored only if an endpoint of the account subscribes to it.
async fn check_that_events_are_stored(api: &Api) -> Result<(), Failure> {
    let endpoints = api.get(&["webhooks"], &[("limit", PAGE)]).await?;
    let mut endpoints = endpoints["data"].as_array().into_iter().flatten();
    match endpoints.any(|endpoint| endpoint["direction"] == "outbound") {
        true => Ok(()),
        false => Err(Failure::Refused(
            "the account stores no events, because no webhook subscribes to them; create one that delivers nothing: \
             POST /api/webhooks { \"name\": \"feed\", \"url\": \"https://example.com/\", \"events\": [\"*\"], \"is_active\": false }"
                .into(),
        )),
    }
}

fn secret() -> Result<SecretBytes, Failure> {
    if let Some(text) = std::env::var(SECRET).ok().filter(|text| !text.is_empty()) {
        return SecretBytes::from_signing_secret(&SecretString::from(text))
            .ok_or_else(|| Failure::Usage(format!("{SECRET} must be a signing secret: whsec_ and base64")));
    }
    let random = [Uuid::new_v4(), Uuid::new_v4()]
        .map(|id| id.simple().to_string())
        .concat();
    let secret = SecretBytes::from_hex(&SecretString::from(random))
        .ok_or_else(|| Failure::Refused("a secret cannot be made".into()))?;
    eprintln!("signing secret: {}", secret.signing_secret().expose_secret());
    Ok(secret)
}

/// The program that gets the events.
struct Program {
    http: Http,
    target: Url,
    secret: [SecretBytes; 1],
}

impl Program {
    /// Sends the event once the program accepts connections, and prints the response.
    async fn forward(&self, event: &Value) -> Result<(), Failure> {
        let field = |name: &str| event[name].as_str().unwrap_or_default();
        let mut is_waiting = false;
        let outcome = loop {
            match self.http.call(self.request(event)?).await {
                Ok(response) => break response.status.to_string(),
                Err(CallError::MaybeSent(problem)) => break problem,
                Err(CallError::NotSent(problem)) if !is_waiting => {
                    eprintln!("waiting for the program: {problem}");
                    is_waiting = true;
                }
                Err(CallError::NotSent(_)) => {}
            }
            tokio::time::sleep(INTERVAL).await;
        };
        println!("{} {} {} {outcome}", field("timestamp"), field("type"), field("id"));
        Ok(())
    }

    /// A delivery as docs/webhooks.md describes it.
    fn request(&self, event: &Value) -> Result<GatewayRequest, Failure> {
        let (id, now) = (
            event["id"].as_str().unwrap_or_default(),
            OffsetDateTime::now_utc().unix_timestamp(),
        );
        let signature = sign(&self.secret, id, now, event.to_string().as_bytes());
        let mut request = GatewayRequest::post(self.target.as_str(), event).timeout(TIMEOUT);
        for (name, value) in [
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", now.to_string()),
            ("webhook-signature", signature),
        ] {
            let value = HeaderValue::from_str(&value)
                .map_err(|_| Failure::Refused("the server sent an event with a malformed id".into()))?;
            request = request.header(HeaderName::from_static(name), value);
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_a_port_or_an_address_of_this_machine() {
        for (text, address) in [
            ("3000", "http://127.0.0.1:3000/"),
            ("http://localhost:3000/hooks?a=1", "http://localhost:3000/hooks?a=1"),
            ("http://[::1]:9", "http://[::1]:9/"),
        ] {
            assert_eq!(parse_target(text).unwrap().as_str(), address);
        }
        for text in ["70000", "https://example.com/hooks", "http://10.0.0.1", ""] {
            assert!(parse_target(text).is_err(), "{text}");
        }
    }
}
