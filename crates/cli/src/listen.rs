//! `recado listen`: forwards the feed of webhook events to a program on this machine.

use std::num::NonZeroU16;
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

use crate::api::{Api, client, is_this_machine, not_recado};
use crate::{CommandFailure, Connection, field, print_line, printable};

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
pub struct ListenOptions {
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
    let address = match text.parse::<NonZeroU16>() {
        Ok(port) => format!("http://127.0.0.1:{port}/"),
        Err(_) => text.to_owned(),
    };
    let wrong = "must be a port or an address as http://127.0.0.1:3000/webhooks";
    let url: Url = address.parse().map_err(|_| wrong)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong.into());
    }
    match is_this_machine(&url) {
        true => Ok(url),
        false => Err("must be on this machine; for another host register a webhook (POST /api/webhooks)".into()),
    }
}

pub(crate) async fn run(options: ListenOptions) -> Result<(), CommandFailure> {
    let api = Api::new(&options.connection)?;
    let secret = secret()?;
    check_that_events_are_stored(&api, options.kind.as_deref()).await?;
    let program = Program {
        http: client()?,
        target: options.target,
        secret: [secret],
    };
    let mut cursor = options.cursor.unwrap_or_else(Uuid::now_v7).to_string();
    eprintln!("forwarding events to {}; Ctrl-C ends it", program.target);
    loop {
        let mut query = vec![("cursor", cursor.as_str()), ("limit", PAGE)];
        query.extend(options.kind.as_deref().map(|kind| ("type", kind)));
        let page = api.get(&["webhooks", "events"], &query).await?;
        for event in field(&page, "data").as_array().ok_or_else(not_recado)? {
            program.forward(event).await?;
        }
        let next = field(&page, "nextCursor").as_str().unwrap_or(&cursor).to_owned();
        // A page without progress is not asked for again at once, whatever it says.
        if *field(&page, "hasMore") != true || next == cursor {
            tokio::time::sleep(INTERVAL).await;
        }
        cursor = next;
    }
}

/// An event is stored only if an outbound endpoint of the account subscribes to its type or to `*`.
async fn check_that_events_are_stored(api: &Api, kind: Option<&str>) -> Result<(), CommandFailure> {
    let subscribes = |endpoint: &Value| {
        let mut events = field(endpoint, "events").as_array().into_iter().flatten();
        let is_wanted = |event: &Value| kind.is_none() || event == "*" || kind == event.as_str();
        *field(endpoint, "direction") == "outbound" && events.any(is_wanted)
    };
    let mut is_subscribed = false;
    // An account has at most two pages of endpoints.
    for page in ["1", "2"] {
        let endpoints = api.get(&["webhooks"], &[("limit", PAGE), ("page", page)]).await?;
        let endpoints = field(&endpoints, "data").as_array().ok_or_else(not_recado)?;
        is_subscribed |= endpoints.iter().any(subscribes);
    }
    match is_subscribed {
        true => Ok(()),
        false => Err(CommandFailure::Refused(
            "the account does not store these events, because no webhook subscribes to them; create one that delivers \
             nothing: POST /api/webhooks { \"name\": \"feed\", \"url\": \"https://example.com/\", \
             \"events\": [\"*\"], \"is_active\": false }"
                .into(),
        )),
    }
}

fn secret() -> Result<SecretBytes, CommandFailure> {
    if let Some(text) = std::env::var(SECRET).ok().filter(|text| !text.is_empty()) {
        return SecretBytes::from_signing_secret(&SecretString::from(text))
            .ok_or_else(|| CommandFailure::Usage(format!("{SECRET} must be a signing secret: whsec_ and base64")));
    }
    let random = [Uuid::new_v4(), Uuid::new_v4()]
        .map(|id| id.simple().to_string())
        .concat();
    let secret = SecretBytes::from_hex(&SecretString::from(random))
        .ok_or_else(|| CommandFailure::Refused("a secret cannot be made".into()))?;
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
    async fn forward(&self, event: &Value) -> Result<(), CommandFailure> {
        let text = |name: &str| field(event, name).as_str().unwrap_or_default();
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
        let line = format!("{} {} {} {outcome}", text("timestamp"), text("type"), text("id"));
        print_line(&printable(&line))
    }

    /// A delivery as docs/webhooks.md describes it.
    fn request(&self, event: &Value) -> Result<GatewayRequest, CommandFailure> {
        let (id, now) = (
            field(event, "id").as_str().unwrap_or_default(),
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
                .map_err(|_| CommandFailure::Refused("the server sent an event with a malformed id".into()))?;
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
        for text in [
            "70000",
            "0",
            "https://example.com/hooks",
            "http://10.0.0.1",
            "ftp://127.0.0.1/",
            "localhost:3000",
            "",
        ] {
            assert!(parse_target(text).is_err(), "{text}");
        }
    }
}
