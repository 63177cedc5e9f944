//! Callbacks: the queued jobs, the signed POST that batches all due changes, and the signature.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use super::core::Core;
use super::graph::in_status;
use super::job::{Job, Message};
use super::numbers::DISPLAY_NUMBER;
use crate::callback_sender::QueuedCallback;
use crate::{locked, set};

pub(super) fn template_change(value: Value) -> Value {
    json!({ "field": "message_template_status_update", "value": value })
}

impl Core {
    /// Executes the due jobs and batches their callbacks into two POSTs at most: correctly and wrongly signed.
    pub(super) fn pack(&self, due: Vec<Job>) -> Vec<QueuedCallback> {
        let (mut right, mut wrong) = (Envelope::default(), Envelope::default());
        for job in due {
            match job {
                Job::Status {
                    message,
                    status,
                    at,
                    wrong_signature,
                } => {
                    let envelope = if wrong_signature { &mut wrong } else { &mut right };
                    envelope.add_status(&message, status_json(&message, status, at));
                }
                Job::Decide {
                    id,
                    version,
                    event,
                    reason,
                } => {
                    let reason = reason.as_deref();
                    let decided = locked(&self.state)
                        .templates
                        .set_status(id, Some(version), event, reason);
                    if let Some(template) = decided {
                        right.add(&template.waba, template_change(template.update(event, reason)));
                    }
                }
                Job::Change { waba, change } => right.add(&waba, change),
            }
        }
        let options = self.options();
        let Some(url) = options.callback_url else {
            return Vec::new();
        };
        let callback = |envelope: Envelope, secret: &str, retry: bool| {
            let body = envelope.into_body()?;
            let headers = vec![("X-Hub-Signature-256", signature(secret, &body))];
            Some(QueuedCallback {
                url: url.clone(),
                headers,
                body,
                retry,
            })
        };
        let wrong_secret = format!("not {}", options.app_secret);
        [
            callback(right, &options.app_secret, true),
            callback(wrong, &wrong_secret, false),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// The changes of a POST by business account.
#[derive(Default)]
struct Envelope(BTreeMap<String, Vec<Value>>);

impl Envelope {
    fn add(&mut self, waba: &str, change: Value) {
        self.0.entry(waba.to_owned()).or_default().push(change);
    }

    /// Adds the status to the other statuses of the same phone number.
    fn add_status(&mut self, message: &Message, status: Value) {
        let changes = self.0.entry(message.waba.clone()).or_default();
        let same_number = |change: &&mut Value| {
            change
                .pointer("/value/metadata/phone_number_id")
                .and_then(Value::as_str)
                == Some(message.number.as_str())
        };
        let statuses = changes
            .iter_mut()
            .find(same_number)
            .and_then(|change| change.pointer_mut("/value/statuses"));
        match statuses.and_then(Value::as_array_mut) {
            Some(statuses) => statuses.push(status),
            None => changes.push(messages_change(&message.number, "statuses", status)),
        }
    }

    fn into_body(self) -> Option<Vec<u8>> {
        if self.0.is_empty() {
            return None;
        }
        let entries: Vec<Value> = self
            .0
            .into_iter()
            .map(|(waba, changes)| json!({ "id": waba, "changes": changes }))
            .collect();
        Some(
            json!({ "object": "whatsapp_business_account", "entry": entries })
                .to_string()
                .into_bytes(),
        )
    }
}

/// A change of the field `messages` with one item under `list` (`statuses` or `messages`).
pub(super) fn messages_change(number: &str, list: &str, item: Value) -> Value {
    let metadata = json!({ "display_phone_number": DISPLAY_NUMBER, "phone_number_id": number });
    let value = json!({ "messaging_product": "whatsapp", "metadata": metadata, list: [item] });
    json!({ "field": "messages", "value": value })
}

fn status_json(message: &Message, status: &str, at: u64) -> Value {
    let mut item = json!({
        "id": message.id,
        "status": status,
        "timestamp": at.to_string(),
        if message.by_user_id { "recipient_user_id" } else { "recipient_id" }: message.recipient,
    });
    if let Some(data) = &message.callback_data {
        set(&mut item, "biz_opaque_callback_data", json!(data));
    }
    if status == "failed" {
        set(
            &mut item,
            "errors",
            json!([in_status(131026, "Message undeliverable.")]),
        );
    } else {
        let category = message.category.to_ascii_lowercase();
        set(
            &mut item,
            "pricing",
            json!({ "billable": !message.is_free, "pricing_model": "PMP",
                "type": if message.is_free { "free_customer_service" } else { "regular" }, "category": category }),
        );
    }
    item
}

/// The value of `X-Hub-Signature-256` for a raw body.
pub fn signature(app_secret: &str, body: &[u8]) -> String {
    // HMAC accepts keys of every length, so this cannot fail. An empty signature would be the safe result.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(app_secret.as_bytes()) else {
        return String::new();
    };
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}
