//! Why a direct message is refused when it is made, or fails when it should leave.

use schemars::JsonSchema;
use serde_json::{Value, json};
use thiserror::Error;

/// The error of a message that could not be tried in time.
pub const EXPIRED: &str = "the message expired before it could be sent";

/// The error of a message whose contact was deleted before it left.
pub const CONTACT_DELETED: &str = "the contact was deleted";

/// The error of a message whose number was removed.
pub const NUMBER_REMOVED: &str = "the WhatsApp number is not connected any more";

/// Why a message may not be sent.
#[derive(Clone, Debug, PartialEq, Eq, Error, JsonSchema)]
pub enum Refusal {
    #[error("The WhatsApp number is not verified; read its checks, correct what they name, and verify it again")]
    NumberUnverified,
    #[error("The template is not approved; submit it and wait for the approval, or use another one")]
    TemplateNotApproved,
    #[error("This server cannot send the template: {}", reasons.join(", "))]
    TemplateNotSendable { reasons: Vec<String> },
    #[error("These values are missing: {}; give each one", placeholders.join(", "))]
    EmptyPlaceholders { placeholders: Vec<String> },
    #[error("The contact has opted out")]
    OptedOut,
    #[error(
        "The contact has neither a phone number nor a user id that this WhatsApp number may use, or the template needs a \
         phone number"
    )]
    NoAddress,
    #[error("The contact has not written within 24 hours before the message would leave: only a template can be sent")]
    OutsideWindow,
    #[error("The account has no active plan; subscribe to a plan")]
    PlanInactive,
    #[error("All {limit} messages of the month are used")]
    MonthLimit { limit: i64 },
}

impl Refusal {
    /// The published word of `details.reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NumberUnverified => "number_unverified",
            Self::TemplateNotApproved => "template_not_approved",
            Self::TemplateNotSendable { .. } => "template_not_sendable",
            Self::EmptyPlaceholders { .. } => "placeholder_empty",
            Self::OptedOut => "opted_out",
            Self::NoAddress => "no_address",
            Self::OutsideWindow => "outside_window",
            Self::PlanInactive => "plan_inactive",
            Self::MonthLimit { .. } => "month_limit",
        }
    }

    /// `details` of the error response.
    pub fn details(&self) -> Value {
        let reason = self.reason();
        match self {
            Self::TemplateNotSendable { reasons } => json!({ "reason": reason, "reasons": reasons }),
            Self::EmptyPlaceholders { placeholders } => json!({ "reason": reason, "placeholders": placeholders }),
            Self::NumberUnverified
            | Self::TemplateNotApproved
            | Self::OptedOut
            | Self::NoAddress
            | Self::OutsideWindow
            | Self::PlanInactive
            | Self::MonthLimit { .. } => json!({ "reason": reason }),
        }
    }
}
