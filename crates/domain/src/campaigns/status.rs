//! The state machine of a campaign: commands, statuses and refusals. Total and pure; `status.golden` shows every
//! transition.

use serde::Serialize;
use serde_json::{Value, json};
use thiserror::Error;

use super::LeftOut;
use crate::shared::string_enum;
use crate::templates::OFFER_ENDED;

string_enum! {
    /// The status of a campaign.
    CampaignStatus {
        /// The campaign is being prepared.
        Draft = "draft",
        /// The campaign waits for its scheduled time.
        Scheduled = "scheduled",
        /// The run is in progress or paused.
        Sending = "sending",
        /// A user stopped the campaign permanently.
        Cancelled = "cancelled",
        /// The run ended: WhatsApp accepted every send.
        Completed = "completed",
        /// The run ended: WhatsApp did not accept every send.
        Partial = "partial",
        /// The run ended and was simulated: WhatsApp was not called.
        Sent = "sent",
    }
}

/// A command on a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Changes the content.
    Edit,
    /// Changes the budget alone.
    SetBudget,
    Schedule,
    Unschedule,
    /// Starts the run, by `send`, `execute` or a schedule.
    Start,
    /// Freezes the audience of a queued start.
    Prepare,
    /// Returns a queued start to draft, because a precondition fails.
    Abort,
    PauseOrResume,
    /// Ends the run with this result.
    Finish(RunResult),
    /// Retries failed sends now.
    Retry,
    /// Schedules a retry of failed sends, or cancels a scheduled one.
    ScheduleRetry,
    Cancel,
    Delete,
}

impl Command {
    pub const ALL: [Self; 15] = [
        Self::Edit,
        Self::SetBudget,
        Self::Schedule,
        Self::Unschedule,
        Self::Start,
        Self::Prepare,
        Self::Abort,
        Self::PauseOrResume,
        Self::Finish(RunResult::Simulated),
        Self::Finish(RunResult::AllAccepted),
        Self::Finish(RunResult::SomeFailed),
        Self::Retry,
        Self::ScheduleRetry,
        Self::Cancel,
        Self::Delete,
    ];

    fn verb(self) -> &'static str {
        match self {
            Self::Edit | Self::SetBudget => "changed",
            Self::Schedule => "scheduled",
            Self::Unschedule => "unscheduled",
            Self::Start => "sent",
            Self::Prepare => "prepared",
            Self::Abort => "returned to draft",
            Self::PauseOrResume => "paused or resumed",
            Self::Finish(_) => "finished",
            Self::Retry | Self::ScheduleRetry => "retried",
            Self::Cancel => "cancelled",
            Self::Delete => "deleted",
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunResult {
    /// WhatsApp was not called.
    Simulated,
    AllAccepted,
    /// WhatsApp is not known to have accepted every send.
    SomeFailed,
}

/// Why the current state does not allow a command. The message is published.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize)]
pub enum CampaignRefusal {
    #[error("a campaign in status {status} cannot be {verb}", verb = .command.verb())]
    Status {
        status: CampaignStatus,
        #[serde(skip)]
        command: Command,
    },
    /// The campaign names no template, or the template was deleted.
    #[error("the campaign has no template")]
    NoTemplate,
    #[error("the template is not approved")]
    TemplateNotApproved,
    /// The template has components that Recado cannot send.
    #[error(
        "the template cannot be sent: {}; choose another template, or change it and submit it again",
        .reasons.join(", ")
    )]
    TemplateNotSendable {
        /// The values of the template's published `reasons`.
        reasons: Vec<String>,
    },
    /// The segment of the audience was deleted.
    #[error("the segment \"{segment}\" of the campaign was deleted; choose another audience")]
    SegmentDeleted {
        /// The segment's name.
        segment: String,
    },
    #[error("no contact was found for the campaign")]
    NoRecipients,
    #[error("the placeholder {{{{{placeholder}}}}} is empty for at least one contact; give it a fallback")]
    EmptyPlaceholder {
        /// The number or name of the placeholder.
        placeholder: String,
    },
    /// The template needs a value beside its placeholders.
    #[error("the template needs {field}, which the campaign does not have")]
    MissingValue {
        /// The campaign's field.
        field: &'static str,
    },
    /// The offer of a test send is over, or almost.
    #[error("{OFFER_ENDED}")]
    OfferEnded,
    /// The number of the run was disconnected.
    #[error("the WhatsApp number is not connected any more")]
    NumberNotConnected,
    /// WhatsApp has not confirmed the sending number.
    #[error("the WhatsApp number is not verified; read its checks, correct what they name, and verify it again")]
    NumberUnverified,
    #[error("the account has no active plan")]
    NoActivePlan,
    #[error("the run needs {wanted} messages, and {left} of this month's {limit} are left")]
    QuotaExceeded {
        /// The plan's messages per month.
        limit: i64,
        left: i64,
        /// The messages that the run needs.
        wanted: i64,
    },
    /// The budget is below what the run has spent and reserved.
    #[error("the campaign has spent and reserved {committed} {currency}, which is more than its budget")]
    Budget { committed: String, currency: String },
    /// Recipients whose messages have no rate in the currency of the budget.
    #[error("no rate in the currency of the budget is known for the markets {}", .markets.join(", "))]
    NoRate { markets: Vec<String> },
    /// The month has no message left for a test send.
    #[error("this month's {limit} messages are used up")]
    MonthUsedUp {
        /// The plan's messages per month.
        limit: i64,
    },
    /// The recipient of a test send has opted out.
    #[error("the contact with this phone has opted out")]
    OptedOut,
    /// The recipient of a test send has no address that the number can write to.
    #[error("the contact has no phone number, and no WhatsApp user id that the message can be sent to")]
    NoAddress,
    /// The sends of the campaign are in its archive, or on their way into it.
    #[error("the sends of the campaign are archived")]
    Archived,
    #[error("no failed send can be retried")]
    NothingToRetry {
        /// The failed sends, by the reason why they are left out.
        left_out: Vec<LeftOut>,
    },
    /// Other requests changed the campaign during every attempt.
    #[error("another request is changing the campaign; try again")]
    Contended,
    /// The scheduled time is missing or past.
    #[error("the scheduled time must be in the future")]
    NotInFuture,
}

impl CampaignRefusal {
    /// The published value of `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Status { .. } => "status",
            Self::NoTemplate => "no_template",
            Self::TemplateNotApproved => "template_not_approved",
            Self::TemplateNotSendable { .. } => "template_not_sendable",
            Self::SegmentDeleted { .. } => "segment_deleted",
            Self::NoRecipients => "no_recipients",
            Self::EmptyPlaceholder { .. } | Self::MissingValue { .. } => "placeholder_empty",
            Self::OfferEnded => "offer_ended",
            Self::NumberNotConnected => "number_not_connected",
            Self::NumberUnverified => "number_unverified",
            Self::NoActivePlan => "no_active_plan",
            Self::QuotaExceeded { .. } => "quota_exceeded",
            Self::Budget { .. } => "budget",
            Self::NoRate { .. } => "no_rate",
            Self::MonthUsedUp { .. } => "month_used_up",
            Self::OptedOut => "opted_out",
            Self::NoAddress => "no_address",
            Self::Archived => "archived",
            Self::NothingToRetry { .. } => "nothing_to_retry",
            Self::Contended => "contended",
            Self::NotInFuture => "not_in_future",
        }
    }

    /// The machine-readable details: `reason` and its data.
    pub fn details(&self) -> Value {
        let mut details = json!({ "reason": self.reason() });
        let data = match self {
            Self::TemplateNotSendable { reasons } => Some(("reasons", json!(reasons))),
            Self::EmptyPlaceholder { placeholder } => Some(("placeholders", json!([placeholder]))),
            Self::MissingValue { field } => Some(("placeholders", json!([field]))),
            Self::NoRate { markets } => Some(("markets", json!(markets))),
            Self::NothingToRetry { left_out } => Some(("left_out", json!(left_out))),
            _ => None,
        };
        if let (Some((name, value)), Some(fields)) = (data, details.as_object_mut()) {
            fields.insert(name.to_owned(), value);
        }
        details
    }
}

impl Serialize for Command {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.verb())
    }
}

/// The status after a command. A deleted campaign keeps its status.
pub fn transition(status: CampaignStatus, command: Command) -> Result<CampaignStatus, CampaignRefusal> {
    use CampaignStatus::{Cancelled, Completed, Draft, Partial, Scheduled, Sending, Sent};
    let refused = Err(CampaignRefusal::Status { status, command });
    match (command, status) {
        (Command::Edit, Draft | Scheduled) | (Command::SetBudget, Draft | Scheduled | Sending) => Ok(status),
        (Command::Schedule, Draft | Scheduled) => Ok(Scheduled),
        (Command::Unschedule, Scheduled) => Ok(Draft),
        (Command::Start, Draft | Scheduled) => Ok(Sending),
        (Command::Abort, Sending) => Ok(Draft),
        (Command::Prepare | Command::PauseOrResume, Sending) => Ok(Sending),
        (Command::Finish(RunResult::Simulated), Sending) => Ok(Sent),
        (Command::Finish(RunResult::AllAccepted), Sending) => Ok(Completed),
        (Command::Finish(RunResult::SomeFailed), Sending) => Ok(Partial),
        (Command::Retry, Completed | Partial) => Ok(Sending),
        (Command::ScheduleRetry, Completed | Partial) => Ok(status),
        (Command::Cancel, Sending | Scheduled) => Ok(Cancelled),
        (Command::Delete, Draft | Scheduled | Cancelled | Completed | Partial | Sent) => Ok(status),
        (Command::Edit, Sending | Cancelled | Completed | Partial | Sent)
        | (Command::SetBudget, Cancelled | Completed | Partial | Sent)
        | (Command::Schedule, Sending | Cancelled | Completed | Partial | Sent)
        | (Command::Unschedule, Draft | Sending | Cancelled | Completed | Partial | Sent)
        | (Command::Start, Sending | Cancelled | Completed | Partial | Sent)
        | (
            Command::Prepare | Command::Abort | Command::PauseOrResume | Command::Finish(_),
            Draft | Scheduled | Cancelled | Completed | Partial | Sent,
        )
        | (Command::Retry | Command::ScheduleRetry, Draft | Scheduled | Sending | Cancelled | Sent)
        | (Command::Cancel, Draft | Cancelled | Completed | Partial | Sent)
        | (Command::Delete, Sending) => refused,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    /// A change of the state machine must show in the diff of `status.golden`.
    #[test]
    fn campaign_status_machine_matches_status_golden() {
        let mut table = String::new();
        for command in Command::ALL {
            write!(table, "{:24}", format!("{command:?}")).unwrap();
            for &status in CampaignStatus::ALL {
                let cell = transition(status, command).map_or("-", CampaignStatus::as_str);
                write!(table, " {status}>{cell}").unwrap();
            }
            table.push('\n');
        }
        let golden = include_str!("status.golden");
        assert_eq!(
            table, golden,
            "the state machine and status.golden differ; expected content of status.golden:\n{table}"
        );
    }

    #[test]
    fn refusal_reasons_are_the_published_values() {
        let (status, command) = (CampaignStatus::Sent, Command::Cancel);
        let (limit, left, wanted) = (10, 1, 2);
        for (refusal, reason) in [
            (CampaignRefusal::Status { status, command }, "status"),
            (CampaignRefusal::NoTemplate, "no_template"),
            (CampaignRefusal::TemplateNotApproved, "template_not_approved"),
            (
                CampaignRefusal::SegmentDeleted { segment: "VIP".into() },
                "segment_deleted",
            ),
            (CampaignRefusal::NoRecipients, "no_recipients"),
            (CampaignRefusal::NoRate { markets: vec![] }, "no_rate"),
            (
                CampaignRefusal::EmptyPlaceholder {
                    placeholder: "2".into(),
                },
                "placeholder_empty",
            ),
            (
                CampaignRefusal::MissingValue {
                    field: "header_location",
                },
                "placeholder_empty",
            ),
            (CampaignRefusal::OfferEnded, "offer_ended"),
            (CampaignRefusal::NumberNotConnected, "number_not_connected"),
            (CampaignRefusal::NoActivePlan, "no_active_plan"),
            (CampaignRefusal::QuotaExceeded { limit, left, wanted }, "quota_exceeded"),
            (CampaignRefusal::MonthUsedUp { limit }, "month_used_up"),
            (CampaignRefusal::OptedOut, "opted_out"),
            (CampaignRefusal::NoAddress, "no_address"),
            (CampaignRefusal::Archived, "archived"),
            (CampaignRefusal::NothingToRetry { left_out: vec![] }, "nothing_to_retry"),
            (CampaignRefusal::Contended, "contended"),
            (CampaignRefusal::NotInFuture, "not_in_future"),
        ] {
            assert_eq!(refusal.reason(), reason);
        }
    }

    #[test]
    fn refusal_message_names_status_and_command() {
        let refusal = transition(CampaignStatus::Sent, Command::Cancel).unwrap_err();
        assert_eq!(refusal.to_string(), "a campaign in status sent cannot be cancelled");
        let empty = CampaignRefusal::EmptyPlaceholder {
            placeholder: "2".into(),
        };
        assert!(empty.to_string().contains("{{2}}"));
    }
}
