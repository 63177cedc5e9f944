//! `recado send`: one message to one person, sent at most once.

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use crate::api::Api;
use crate::{CommandFailure, Connection, field, print_line};

/// How often the status is read while `--wait` waits.
const INTERVAL: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
pub struct SendOptions {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    recipient: Recipient,
    /// Name of an approved template.
    #[arg(long, value_name = "NAME", required_unless_present = "text", requires = "language")]
    template: Option<String>,
    /// Language of the template, as pt_BR.
    #[arg(long, value_name = "CODE", requires = "template", conflicts_with = "text")]
    language: Option<String>,
    /// Value of a placeholder of the template, as 1=Ana; repeat it for each.
    #[arg(long = "var", value_name = "PLACEHOLDER=VALUE", value_parser = parse_variable, requires = "template", conflicts_with = "text")]
    variables: Vec<(String, String)>,
    /// Text to a person who wrote within the last 24 hours.
    #[arg(long, conflicts_with = "template")]
    text: Option<String>,
    /// Your own name for the message, unique for ever. The same command again prints the first message; another message
    /// under this name is refused. Default: a random name, which is printed on standard error.
    #[arg(long, value_name = "TEXT")]
    reference: Option<String>,
    /// Id of the WhatsApp number that sends.
    #[arg(long, value_name = "ID")]
    profile: Option<String>,
    /// Time of sending, as 2026-12-24T18:00:00Z, at most 30 days ahead.
    #[arg(long, value_name = "TIME")]
    send_at: Option<String>,
    /// Wait up to this many seconds until the message is sent or failed.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "60",
        value_parser = clap::value_parser!(u64).range(0..=86_400))]
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

pub(crate) async fn run(options: SendOptions) -> Result<(), CommandFailure> {
    let api = Api::new(&options.connection)?;
    let reference = options.reference.clone().unwrap_or_else(|| {
        let random = format!("cli-{}", Uuid::new_v4());
        eprintln!("reference: {random}");
        random
    });
    let (wait, body) = (options.wait, body(options, &reference)?);
    let message = api
        .post_unique(&["messages"], &body)
        .await
        .map_err(|failure| match failure {
            CommandFailure::Unreachable(text) => CommandFailure::Unreachable(format!(
                "{text}; the message may be accepted: to repeat the command safely, add --reference {reference}"
            )),
            other => other,
        })?;
    let waited = match wait {
        Some(seconds) => wait_until_sent(&api, message, Duration::from_secs(seconds)).await,
        None => Waited { message, failure: None },
    };
    print_line(&format!("{:#}", waited.message))?;
    let text = |name: &str| field(&waited.message, name).as_str().unwrap_or_default();
    let id = text("id");
    match (text("status"), waited.failure) {
        (_, Some(failure)) => Err(CommandFailure::Partial(format!(
            "the message {id} is accepted; its status cannot be read: {failure}"
        ))),
        (status @ ("failed" | "cancelled"), None) => Err(CommandFailure::Refused(format!(
            "the message is {status}: {}",
            text("error_message")
        ))),
        ("pending", None) if wait.is_some() => Err(CommandFailure::Partial(format!(
            "the message is accepted and not sent yet; GET /api/messages/{id} shows its status"
        ))),
        _ => Ok(()),
    }
}

/// The body of `POST /api/messages`. Its reference lets the request be repeated after a lost response.
fn body(options: SendOptions, reference: &str) -> Result<Value, CommandFailure> {
    let recipient = options.recipient;
    let to: Map<String, Value> = [
        ("phone", recipient.to),
        ("contact_id", recipient.contact),
        ("wa_user_id", recipient.user_id),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?))))
    .collect();
    let mut body = Map::from_iter([("to".into(), json!(to)), ("client_reference".into(), json!(reference))]);
    if let Some(name) = options.template {
        let mut variables = Map::new();
        for (placeholder, value) in options.variables {
            if variables.insert(placeholder.clone(), Value::String(value)).is_some() {
                return Err(CommandFailure::Usage(format!("--var {placeholder} is given twice")));
            }
        }
        let template = json!({ "name": name, "language": options.language, "variables": variables });
        body.insert("template".into(), template);
    }
    for (name, value) in [
        ("text", options.text),
        ("profile_id", options.profile),
        ("send_at", options.send_at),
    ] {
        if let Some(value) = value {
            body.insert(name.into(), Value::String(value));
        }
    }
    Ok(Value::Object(body))
}

/// The message as it was read last, and why it could not be read again.
struct Waited {
    message: Value,
    failure: Option<CommandFailure>,
}

/// Reads the message until it left `pending` or the time is over.
async fn wait_until_sent(api: &Api, mut message: Value, limit: Duration) -> Waited {
    let start = Instant::now();
    let id = field(&message, "id").as_str().unwrap_or_default().to_owned();
    while *field(&message, "status") == "pending" && start.elapsed() < limit {
        tokio::time::sleep(INTERVAL).await;
        match api.get(&["messages", &id], &[]).await {
            Ok(read) => message = read,
            Err(failure) => {
                return Waited {
                    message,
                    failure: Some(failure),
                };
            }
        }
    }
    Waited { message, failure: None }
}
