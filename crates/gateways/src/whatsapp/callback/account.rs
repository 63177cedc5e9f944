//! Reads updates of business accounts and their numbers.

use recado_domain::whatsapp::verification::{AffectedNumbers, BusinessUpdate, NumberFacts};
use serde_json::Value;

use crate::whatsapp::graph::messaging_limit;

/// The longest text of an update, in characters.
const TEXT_CHARS: usize = 300;

/// The callback fields with updates.
pub(super) const ACCOUNT_FIELDS: [&str; 5] = [
    "account_update",
    "account_alerts",
    "phone_number_quality_update",
    "phone_number_name_update",
    "business_capability_update",
];

/// The update in a callback's change. None if the field has none, or `value` is no object.
pub(super) fn business_update(waba_id: &str, field: &str, value: &Value) -> Option<BusinessUpdate> {
    value.as_object()?;
    let update = BusinessUpdate {
        waba_id: waba_id.to_owned(),
        numbers: AffectedNumbers::All,
        facts: NumberFacts::default(),
        account_event: None,
        reason: None,
    };
    let limit = |name: &str| value.get(name).and_then(messaging_limit);
    let daily_limit = || limit("max_daily_conversations_per_business");
    Some(match field {
        "account_update" => BusinessUpdate {
            numbers: by_digits(value, "phone_number").unwrap_or(AffectedNumbers::All),
            account_event: word(value, "event"),
            reason: restriction(value),
            ..update
        },
        "account_alerts" => BusinessUpdate {
            numbers: alerted(value),
            account_event: word(value, "alert_type"),
            reason: text(value, "alert_description"),
            ..update
        },
        "phone_number_quality_update" => BusinessUpdate {
            numbers: by_digits(value, "display_phone_number")?,
            facts: NumberFacts {
                throughput: word(value, "event")
                    .filter(|event| event == "throughput_upgrade")
                    .map(|_| "high".to_owned()),
                messaging_limit: limit("current_limit").or_else(daily_limit),
                ..NumberFacts::default()
            },
            ..update
        },
        "phone_number_name_update" => BusinessUpdate {
            numbers: by_digits(value, "display_phone_number")?,
            facts: name_decision(value),
            reason: text(value, "rejection_reason").filter(|reason| reason != "NONE"),
            ..update
        },
        "business_capability_update" => BusinessUpdate {
            facts: NumberFacts {
                messaging_limit: daily_limit(),
                ..NumberFacts::default()
            },
            ..update
        },
        _ => return None,
    })
}

/// Without NUL and other control characters, which PostgreSQL cannot store or which do not belong in a line.
fn text(value: &Value, field: &str) -> Option<String> {
    let text = value.get(field)?.as_str()?;
    let text: String = text
        .chars()
        .filter(|char| !char.is_control())
        .take(TEXT_CHARS)
        .collect();
    Some(text).filter(|text| !text.is_empty())
}

fn word(value: &Value, field: &str) -> Option<String> {
    text(value, field).map(|word| word.to_lowercase())
}

fn digits_of(number: &str) -> String {
    number.chars().filter(char::is_ascii_digit).collect()
}

fn by_digits(value: &Value, field: &str) -> Option<AffectedNumbers> {
    let digits = match value.get(field)? {
        Value::String(number) => digits_of(number),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    (!digits.is_empty()).then_some(AffectedNumbers::WithDigits(digits))
}

fn alerted(value: &Value) -> AffectedNumbers {
    let is_number = word(value, "entity_type").is_some_and(|kind| kind.starts_with("phone_number"));
    match text(value, "entity_id").filter(|_| is_number) {
        Some(id) => AffectedNumbers::WithId(id),
        None => AffectedNumbers::All,
    }
}

/// The first restriction or violation of an account update.
fn restriction(value: &Value) -> Option<String> {
    let restrictions = value.get("restriction_info");
    let restriction = restrictions.and_then(|info| text(info.get(0).unwrap_or(info), "restriction_type"));
    restriction.or_else(|| text(value.get("violation_info")?, "violation_type"))
}

fn name_decision(value: &Value) -> NumberFacts {
    let decision = word(value, "decision");
    let is_approved = decision.as_deref() == Some("approved");
    NumberFacts {
        verified_name: text(value, "requested_verified_name").filter(|_| is_approved),
        name_status: decision,
        ..NumberFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(field: &str, value: &Value) -> BusinessUpdate {
        business_update("1022", field, value).unwrap()
    }

    #[test]
    fn every_field_is_read() {
        let update = read(
            "account_update",
            &json!({ "event": "ACCOUNT_RESTRICTION",
            "restriction_info": [{ "restriction_type": "RESTRICTED_BIZ_INITIATED_MESSAGING" }] }),
        );
        assert_eq!(
            (
                update.account_event.as_deref(),
                update.reason.as_deref(),
                &update.numbers
            ),
            (
                Some("account_restriction"),
                Some("RESTRICTED_BIZ_INITIATED_MESSAGING"),
                &AffectedNumbers::All
            )
        );
        let alert = read(
            "account_alerts",
            &json!({ "entity_type": "PHONE_NUMBER", "entity_id": "1065", "alert_type": "T", "alert_description": "d" }),
        );
        assert_eq!(alert.numbers, AffectedNumbers::WithId("1065".into()));
        let quality = read(
            "phone_number_quality_update",
            &json!({ "display_phone_number": "1 631-555-5555", "event": "THROUGHPUT_UPGRADE",
                     "current_limit": "TIER_10K" }),
        );
        assert_eq!(quality.numbers, AffectedNumbers::WithDigits("16315555555".into()));
        assert_eq!(
            (quality.facts.throughput.as_deref(), quality.facts.messaging_limit),
            (Some("high"), Some(10_000))
        );
        let name = |decision: &str| {
            let value = json!({ "display_phone_number": "1", "decision": decision,
                                "requested_verified_name": "Nova", "rejection_reason": "NONE" });
            read("phone_number_name_update", &value)
        };
        assert_eq!(name("APPROVED").facts.verified_name.as_deref(), Some("Nova"));
        let rejected = name("REJECTED");
        assert_eq!(
            (
                rejected.facts.verified_name,
                rejected.facts.name_status.as_deref(),
                rejected.reason
            ),
            (None, Some("rejected"), None)
        );
        for limit in [json!(2000), json!("TIER_2K")] {
            let value = json!({ "max_daily_conversations_per_business": limit });
            assert_eq!(
                read("business_capability_update", &value).facts.messaging_limit,
                Some(2000)
            );
        }
        assert_eq!(business_update("1022", "account_update", &json!("x")), None);
        assert_eq!(business_update("1022", "flows", &json!({})), None);
    }
}
