//! `CallbackReader` on the callbacks of Meta's Cloud API.

mod account;
mod fields;
mod inbound;
mod pricing;

use recado_domain::callbacks::{
    CallbackChange, CallbackPayload, CallbackReader, ReceivedInbound, ReceivedStatus, StatusUpdate, TemplateChange,
    TemplateUpdate, Unread, Unreadable,
};
use recado_domain::messaging::{MetaStatus, SendStatus};
use recado_domain::shared::SendId;
use recado_domain::templates::{CategoryChange, CategoryUpdate, Review};
use serde_json::Value;
use uuid::Uuid;

use self::account::{ACCOUNT_FIELDS, business_update};
use self::fields::{id, text, unix_time};
use super::review_status::review_status;

/// The callback fields that concern contacts.
const CONTACT_FIELDS: [&str; 4] = ["messages", "user_preferences", "smb_message_echoes", "user_id_update"];

/// The callback fields that concern templates.
const TEMPLATE_FIELDS: [&str; 3] = [
    "message_template_status_update",
    "message_template_quality_update",
    "template_category_update",
];

/// Reads callbacks of the Cloud API.
#[derive(Clone, Copy, Debug)]
pub struct CloudCallbackReader;

impl CallbackReader for CloudCallbackReader {
    fn read(&self, body: &[u8]) -> Result<CallbackPayload, Unreadable> {
        let json: Value = serde_json::from_slice(body).map_err(|_| Unreadable)?;
        let entries = json.get("entry").and_then(Value::as_array).ok_or(Unreadable)?;
        let (mut changes, mut unread) = (Vec::new(), Vec::new());
        for entry in entries {
            let waba_id = id(entry, "id").unwrap_or_default();
            for change in entry.get("changes").and_then(Value::as_array).into_iter().flatten() {
                let Some(value) = change.get("value") else { continue };
                match change.get("field").and_then(Value::as_str) {
                    Some(field) if CONTACT_FIELDS.contains(&field) => {
                        changes.extend(received_statuses(value).map(CallbackChange::Status));
                        changes.extend(received_events(value).map(CallbackChange::Inbound));
                        unread.extend(inbound::unread_kinds(value).map(|kind| Unread {
                            field: field.to_owned(),
                            kind: Some(kind),
                        }));
                    }
                    Some(field) if TEMPLATE_FIELDS.contains(&field) => {
                        changes.extend(template_update(&waba_id, field, value).map(CallbackChange::Template));
                    }
                    Some(field) if ACCOUNT_FIELDS.contains(&field) => {
                        changes.extend(business_update(&waba_id, field, value).map(CallbackChange::Account));
                    }
                    Some(field) => unread.push(Unread {
                        field: field.to_owned(),
                        kind: None,
                    }),
                    None => {}
                }
            }
        }
        Ok(CallbackPayload { changes, unread })
    }
}

/// WhatsApp's id of the number that a change concerns.
fn number_id(value: &Value) -> Option<String> {
    value
        .get("metadata")
        .and_then(|metadata| id(metadata, "phone_number_id"))
}

fn received_events(value: &Value) -> impl Iterator<Item = ReceivedInbound> + '_ {
    let phone_number_id = number_id(value);
    inbound::inbound_events(value).filter_map(move |event| {
        Some(ReceivedInbound {
            phone_number_id: phone_number_id.clone()?,
            event,
        })
    })
}

fn received_statuses(value: &Value) -> impl Iterator<Item = ReceivedStatus> + '_ {
    let phone_number_id = number_id(value);
    let statuses = value.get("statuses").and_then(Value::as_array).into_iter().flatten();
    statuses.filter_map(move |status| {
        Some(ReceivedStatus {
            phone_number_id: phone_number_id.clone()?,
            update: status_update(status)?,
            recipient: inbound::recipient(status, value),
        })
    })
}

fn status_update(status: &Value) -> Option<StatusUpdate> {
    let status_name = status.get("status")?.as_str()?;
    let new_status = status_name
        .parse()
        .ok()
        .filter(|status| *status != SendStatus::Pending)?;
    let error = status.get("errors").and_then(|errors| errors.get(0));
    let details = error.and_then(|error| {
        let details = error.get("error_data").and_then(|data| text(data, "details"));
        details
            .or_else(|| text(error, "message"))
            .or_else(|| text(error, "title"))
    });
    let at = unix_time(status, "timestamp")?;
    Some(StatusUpdate {
        send_id: id(status, "biz_opaque_callback_data")
            .and_then(|id| Uuid::parse_str(&id).ok())
            .map(SendId),
        message_id: id(status, "id")?,
        status: new_status,
        at,
        error_code: error.and_then(|error| error.get("code")).and_then(Value::as_i64),
        error_message: details,
        pricing: pricing::pricing(status, at),
    })
}

fn template_update(waba_id: &str, field: &str, value: &Value) -> Option<TemplateUpdate> {
    let change = match field {
        "message_template_status_update" => review(value)?,
        "message_template_quality_update" => TemplateChange::Quality(quality(value)?),
        "template_category_update" => TemplateChange::Category(category(value)?),
        _ => return None,
    };
    Some(TemplateUpdate {
        waba_id: waba_id.to_owned(),
        meta_template_id: id(value, "message_template_id")?,
        change,
    })
}

fn review(value: &Value) -> Option<TemplateChange> {
    let status = review_status(value.get("event")?.as_str()?)?;
    let rejection = value.get("rejection_info").and_then(|info| text(info, "reason"));
    let reason = text(value, "reason").filter(|reason| reason != "NONE").or(rejection);
    let recommendation = value
        .get("rejection_info")
        .and_then(|info| text(info, "recommendation"));
    let is_rejected = status == MetaStatus::Rejected;
    Some(TemplateChange::Review(Review {
        status,
        reason: reason.filter(|_| is_rejected),
        recommendation: recommendation.filter(|text| is_rejected && !text.is_empty()),
    }))
}

/// If `correct_category` is set, the update schedules a category: `correct_category` is the future one and
/// `new_category` the current one.
fn category(value: &Value) -> Option<CategoryUpdate> {
    let category_in = |field: &str| text(value, field)?.parse().ok();
    if value.get("correct_category").is_none_or(Value::is_null) {
        return category_in("new_category").map(CategoryUpdate::Changed);
    }
    Some(CategoryUpdate::Scheduled(CategoryChange {
        to: category_in("correct_category")?,
        at: unix_time(value, "category_update_timestamp")?,
    }))
}

/// A quality score: one of the known ones, or any other upper-case word, because WhatsApp may add one.
fn quality(value: &Value) -> Option<String> {
    let score = text(value, "new_quality_score")?;
    let is_word = (1..=32).contains(&score.len()) && score.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    is_word.then_some(score)
}

#[cfg(test)]
mod tests {
    use recado_domain::conversations::Sender;
    use recado_domain::messaging::Category;
    use serde_json::json;
    use time::macros::datetime;

    use super::*;

    fn read(body: &Value) -> Vec<CallbackChange> {
        CloudCallbackReader.read(body.to_string().as_bytes()).unwrap().changes
    }

    fn messages(statuses: &Value) -> Value {
        json!({ "object": "whatsapp_business_account", "entry": [{ "id": "102", "changes": [{ "field": "messages",
            "value": { "metadata": { "phone_number_id": "1065" }, "statuses": statuses } }] }] })
    }

    #[test]
    fn changed_user_id_is_an_inbound_event_of_its_number() {
        let body = json!({ "entry": [{ "id": "102", "changes": [{ "field": "user_id_update", "value": {
            "metadata": { "phone_number_id": "1065" }, "user_id_update": [{ "wa_id": "55119", "user_id": "BR.2" }] } }] }] });
        let read = CloudCallbackReader.read(body.to_string().as_bytes()).unwrap();
        assert!(
            matches!(&read.changes[..], [CallbackChange::Inbound(inbound)] if inbound.phone_number_id == "1065"),
            "{read:?}"
        );
        assert!(read.unread.is_empty());
    }

    #[test]
    fn failed_status_is_read_with_error_and_send_id() {
        let send = Uuid::from_u128(5);
        let changes = read(&messages(
            &json!([{ "id": "wamid.1", "status": "failed", "timestamp": "1750030073",
            "biz_opaque_callback_data": send, "errors": [{ "code": 131049, "message": "m",
            "error_data": { "details": "too many" } }] }]),
        ));
        let expected = StatusUpdate {
            send_id: Some(SendId(send)),
            message_id: "wamid.1".into(),
            status: SendStatus::Failed,
            at: datetime!(2025-06-15 23:27:53 UTC),
            error_code: Some(131_049),
            error_message: Some("too many".into()),
            pricing: None,
        };
        assert_eq!(
            changes,
            [CallbackChange::Status(ReceivedStatus {
                phone_number_id: "1065".into(),
                update: expected,
                recipient: None,
            })]
        );
    }

    #[test]
    fn status_names_the_user_id_of_its_recipient() {
        let named = |status: Value, contacts: Value| {
            let mut status = status;
            for (field, value) in [("id", "a"), ("status", "read"), ("timestamp", "1")] {
                status[field] = json!(value);
            }
            let mut body = messages(&json!([status]));
            body["entry"][0]["changes"][0]["value"]["contacts"] = contacts;
            match &read(&body)[..] {
                [CallbackChange::Status(received)] => received.recipient.clone(),
                changes => panic!("{changes:?}"),
            }
        };
        let recipient = |wa_id: Option<&str>, user_id: &str, parent: Option<&str>| {
            Some(Sender {
                wa_id: wa_id.map(str::to_owned),
                user_id: Some(user_id.into()),
                parent_user_id: parent.map(str::to_owned),
                ..Sender::default()
            })
        };
        let own = json!({ "recipient_id": "5511961234567", "recipient_user_id": "BR.1",
            "recipient_parent_user_id": "BR.ENT.1" });
        assert_eq!(
            named(own, json!([])),
            recipient(Some("5511961234567"), "BR.1", Some("BR.ENT.1"))
        );
        assert_eq!(
            named(json!({ "recipient_user_id": "BR.1" }), Value::Null),
            recipient(None, "BR.1", None)
        );
        let contacts = json!([{ "wa_id": "55", "user_id": "BR.2" }, { "wa_id": "5511961234567", "user_id": "BR.1" }]);
        let by_phone = json!({ "recipient_id": "5511961234567" });
        assert_eq!(
            named(by_phone.clone(), contacts),
            recipient(Some("5511961234567"), "BR.1", None)
        );
        assert_eq!(named(by_phone, json!([{ "wa_id": "55", "user_id": "BR.2" }])), None);
        assert_eq!(named(json!({}), json!([{ "wa_id": "55", "user_id": "BR.2" }])), None);
    }

    #[test]
    fn malformed_status_is_skipped_alone() {
        let statuses = json!([{ "id": "a", "status": "played", "timestamp": "1" }, 7, { "status": "read" },
            { "id": "b", "status": "pending", "timestamp": "1" }, { "id": "c", "status": "read", "timestamp": "x" },
            { "id": "d", "status": "read", "timestamp": "1", "biz_opaque_callback_data": "not ours" }]);
        let changes = read(&messages(&statuses));
        let [CallbackChange::Status(received)] = &changes[..] else {
            panic!("{changes:?}")
        };
        assert_eq!(
            (received.update.message_id.as_str(), received.update.send_id),
            ("d", None)
        );
    }

    #[test]
    fn inbound_event_has_the_number_that_received_it() {
        let value = json!({ "metadata": { "phone_number_id": "1065" }, "contacts": [],
            "statuses": [{ "id": "d", "status": "read", "timestamp": "1" }],
            "messages": [{ "from": "5511961234567", "id": "m", "timestamp": "1", "type": "text",
                "text": { "body": "Oi" } }] });
        let mut body = messages(&json!([]));
        body["entry"][0]["changes"][0]["value"] = value;
        let changes = read(&body);
        let [CallbackChange::Status(_), CallbackChange::Inbound(inbound)] = &changes[..] else {
            panic!("{changes:?}")
        };
        assert_eq!(inbound.phone_number_id, "1065");
        body["entry"][0]["changes"][0]["value"]["metadata"] = json!({});
        assert_eq!(read(&body), []);
    }

    #[test]
    fn nul_is_removed_from_texts_and_rejected_in_ids() {
        let changes = read(&messages(&json!([
            { "id": "a\u{0}", "status": "read", "timestamp": "1" },
            { "id": "b", "status": "failed", "timestamp": "1", "errors": [{ "code": 1, "message": "x\u{0}y" }] }])));
        let [CallbackChange::Status(only)] = &changes[..] else {
            panic!("{changes:?}")
        };
        assert_eq!(only.update.error_message.as_deref(), Some("xy"));
    }

    #[test]
    fn template_review_is_read_with_numeric_id() {
        let value = |event: &str| {
            json!({ "event": event, "message_template_id": 1689556908129835_i64, "reason": "SCAM",
                "rejection_info": { "reason": "x", "recommendation": "Change it" } })
        };
        let body = |event| {
            json!({ "entry": [{ "id": "102", "changes": [
            { "field": "message_template_status_update", "value": value(event) }] }] })
        };
        let CallbackChange::Template(update) = read(&body("REJECTED")).remove(0) else {
            panic!()
        };
        assert_eq!(
            (update.waba_id.as_str(), update.meta_template_id.as_str()),
            ("102", "1689556908129835")
        );
        let rejected = TemplateChange::Review(Review {
            status: MetaStatus::Rejected,
            reason: Some("SCAM".into()),
            recommendation: Some("Change it".into()),
        });
        assert_eq!(update.change, rejected);
        let CallbackChange::Template(update) = read(&body("APPROVED")).remove(0) else {
            panic!()
        };
        let approved = TemplateChange::Review(MetaStatus::Approved.into());
        assert_eq!(update.change, approved);
        for event in ["FLAGGED", "LOCKED", "ARCHIVED", "SOMETHING_NEW", ""] {
            assert_eq!(read(&body(event)), [], "{event}");
        }
    }

    #[test]
    fn template_quality_and_category_are_validated() {
        let change = |field: &str, value: Value| {
            let body = json!({ "entry": [{ "id": "102", "changes": [{ "field": field, "value": value }] }] });
            match read(&body).pop() {
                Some(CallbackChange::Template(update)) => Some(update.change),
                _ => None,
            }
        };
        let quality = |score: &str| {
            let value = json!({ "message_template_id": 1, "new_quality_score": score });
            change("message_template_quality_update", value)
        };
        for score in ["GREEN", "YELLOW", "RED", "UNKNOWN"] {
            assert_eq!(quality(score), Some(TemplateChange::Quality(score.into())));
        }
        assert_eq!(
            (quality(""), quality("<b>"), quality(&"X".repeat(33))),
            (None, None, None)
        );
        let category = |name: &str| {
            let value = json!({ "message_template_id": "1", "previous_category": "MARKETING", "new_category": name });
            change("template_category_update", value)
        };
        let utility = TemplateChange::Category(CategoryUpdate::Changed(Category::Utility));
        assert_eq!(category("UTILITY"), Some(utility));
        let scheduled = |to: &str, at: Value| {
            let value = json!({ "message_template_id": 1, "new_category": "MARKETING", "correct_category": to,
                "category_update_timestamp": at });
            change("template_category_update", value)
        };
        let coming = TemplateChange::Category(CategoryUpdate::Scheduled(CategoryChange {
            to: Category::Utility,
            at: datetime!(2025-06-15 23:27:53 UTC),
        }));
        assert_eq!(scheduled("UTILITY", json!(1_750_030_073)), Some(coming.clone()));
        assert_eq!(scheduled("UTILITY", json!("1750030073")), Some(coming));
        assert_eq!(
            (scheduled("OTHER", json!(1)), scheduled("UTILITY", json!("soon"))),
            (None, None)
        );
        assert_eq!(category("OTHER"), None);
        assert_eq!(
            change(
                "message_template_components_update",
                json!({ "event": "APPROVED", "message_template_id": 1 })
            ),
            None
        );
    }

    #[test]
    fn callback_body_without_entries_is_rejected() {
        assert_eq!(
            CloudCallbackReader.read(b"{\"entry\":[]}"),
            Ok(CallbackPayload::default())
        );
        for body in [&b"{"[..], b"[]", b"{}", b"{\"entry\":3}", b""] {
            assert_eq!(CloudCallbackReader.read(body), Err(Unreadable));
        }
    }
}
