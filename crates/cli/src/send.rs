//! `recado send`: one message to one person, sent at most once.

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use crate::api::Api;
use crate::{Connection, Failure};

/// How often the status is read while `--wait` waits.
const INTERVAL: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
pub struct Options {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    recipient: Recipient,
    /// Name of an approved template.
    #[arg(long, value_name = "NAME", required_unless_present = "text", requires = "language")]
    template: Option<String>,
    /// Language of the template, as pt_BR.
    #[arg(long, value_name = "CODE", requires = "template")]
    language: Option<String>,
    /// Value of a placeholder of the template, as 1=Ana; repeat it for each.
    #[arg(long = "var", value_name = "PLACEHOLDER=VALUE", value_parser = parse_variable, requires = "template")]
    variables: Vec<(String, String)>,
    /// Text to a person who wrote within the last 24 hours.
    #[arg(long, conflicts_with = "template")]
    text: Option<String>,
    /// Your own name for the message. The same reference again sends nothing and prints the first message.
    #[arg(long, value_name = "TEXT")]
    reference: Option<String>,
    /// Id of the WhatsApp number that sends.
    #[arg(long, value_name = "ID")]
    profile: Option<String>,
    /// Time of sending, as 2026-12-24T18:00:00Z, at most 30 days ahead.
    #[arg(long, value_name = "TIME")]
    send_at: Option<String>,
    /// Wait up to this many seconds until the message is sent or failed.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "60")]
    wait: Option<u64>,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Recipient {
    /// Phone number of the recipient, as +5511961234567. An unknown number becomes a contact.
    #[arg(long, value_name = "PHONE")]
    to: Option<String>,
    /// Id of a contact.
    #[arg(long, value_name = "ID")]
    contact: Option<String>,
    /// WhatsApp's id of a person without a known number.
    #[arg(long, value_name = "ID")]
    user_id: Option<String>,
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must have the form PLACEHOLDER=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) async fn run(options: Options) -> Result<(), Failure> {
    let api = Api::new(&options.connection)?;
    let (wait, body) = (options.wait, body(options));
    let mut message = api.post_unique(&["messages"], &body).await?;
    if let Some(seconds) = wait {
        message = wait_until_sent(&api, message, Duration::from_secs(seconds)).await?;
    }
    println!("{message:#}");
    match message["status"].as_str() {
        Some("failed" | "cancelled") => Err(Failure::Refused(format!(
            "the message is {}: {}",
            message["status"].as_str().unwrap_or_default(),
            message["error_message"].as_str().unwrap_or("no reason is known"),
        ))),
        Some("pending") if wait.is_some() => Err(Failure::Partial(
            "the message is accepted and not sent yet; GET /api/messages/{id} shows its status".into(),
        )),
        _ => Ok(()),
    }
}

/// The body of `POST /api/messages`. Without a reference of the user it has a random one, so that the request can be
/// repeated after a lost response.
fn body(options: Options) -> Value {
    let recipient = options.recipient;
    let to: Map<String, Value> = [
        ("phone", recipient.to),
        ("contact_id", recipient.contact),
        ("wa_user_id", recipient.user_id),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?))))
    .collect();
    let reference = options.reference.unwrap_or_else(|| format!("cli-{}", Uuid::new_v4()));
    let mut body = json!({ "to": to, "client_reference": reference });
    if let Some(name) = options.template {
        let variables: Map<String, Value> = options
            .variables
            .into_iter()
            .map(|(name, value)| (name, Value::String(value)))
            .collect();
        body["template"] = json!({ "name": name, "language": options.language, "variables": variables });
    }
    for (name, value) in [
        ("text", options.text),
        ("profile_id", options.profile),
        ("send_at", options.send_at),
    ] {
        if let Some(value) = value {
            body[name] = Value::String(value);
        }
    }
    body
}

/// Reads the message until it left `pending` or the time is over, and returns it as read last.
async fn wait_until_sent(api: &Api, mut message: Value, limit: Duration) -> Result<Value, Failure> {
    let end = Instant::now() + limit;
    while message["status"] == "pending" && Instant::now() < end {
        tokio::time::sleep(INTERVAL).await;
        let id = message["id"].as_str().unwrap_or_default().to_owned();
        message = api.get(&["messages", &id], &[]).await?;
    }
    Ok(message)
}
