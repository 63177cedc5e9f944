//! Updates of business accounts and their numbers: the callbacks that are neither messages nor templates.

use std::time::Instant;

use serde::Deserialize;
use serde_json::{Value, json};

use super::core::Core;
use super::job::Job;

/// A callback about a business account or one of its numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BusinessUpdateCallback {
    /// None: the business account of the options.
    pub waba_id: Option<String>,
    /// For example `account_update`.
    pub field: String,
    /// The value, sent as it is.
    pub value: Value,
}

impl BusinessUpdateCallback {
    pub fn new(field: &str, value: Value) -> Self {
        Self {
            waba_id: None,
            field: field.to_owned(),
            value,
        }
    }

    /// Sets the business account.
    #[must_use]
    pub fn of_account(self, waba_id: &str) -> Self {
        let waba_id = Some(waba_id.to_owned());
        Self { waba_id, ..self }
    }

    /// An event of the account, for example `ACCOUNT_RESTRICTION`.
    pub fn account_update(event: &str) -> Self {
        Self::new("account_update", json!({ "event": event }))
    }

    /// A warning about the account or one of its numbers.
    pub fn account_alert(alert_type: &str, description: &str) -> Self {
        let value = json!({
            "entity_type": "WABA",
            "alert_severity": "WARNING",
            "alert_status": "ACTIVE",
            "alert_type": alert_type,
            "alert_description": description,
        });
        Self::new("account_alerts", value)
    }

    /// The throughput or the limit of a number changed. WhatsApp names the number by its digits alone.
    pub fn number_quality(display_phone_number: &str, event: &str, current_limit: &str) -> Self {
        let value = json!({
            "display_phone_number": display_phone_number,
            "event": event,
            "current_limit": current_limit,
        });
        Self::new("phone_number_quality_update", value)
    }

    /// The decision on the display name of a number, `APPROVED` or `REJECTED`.
    pub fn number_name(display_phone_number: &str, decision: &str, name: &str) -> Self {
        let reason = if decision == "REJECTED" {
            json!("NAME_NOT_ACCEPTABLE")
        } else {
            Value::Null
        };
        let value = json!({
            "display_phone_number": display_phone_number,
            "decision": decision,
            "requested_verified_name": name,
            "rejection_reason": reason,
        });
        Self::new("phone_number_name_update", value)
    }

    /// The messaging limit of the business: a number such as 2000, or a word such as `TIER_2K`.
    pub fn business_capability(limit: &Value) -> Self {
        let value = json!({
            "max_daily_conversations_per_business": limit,
            "max_phone_numbers_per_business": 20,
        });
        Self::new("business_capability_update", value)
    }
}

impl Core {
    pub(super) fn business_update(&self, update: &BusinessUpdateCallback) {
        let waba = update.waba_id.clone().unwrap_or_else(|| self.options().waba_id);
        let change = json!({ "field": update.field, "value": update.value });
        self.queue.push(Instant::now(), Job::Change { waba, change });
    }
}
