//! The life of a campaign: which command leads where. Total and pure; the golden table in the tests shows all of it.

use serde::Serialize;
use serde_json::{Value, json};
use thiserror::Error;

use super::LeftOut;
use crate::shared::string_enum;

string_enum! {
    /// Where a campaign is in its life.
    CampaignStatus {
        /// Being written.
        Draft = "draft",
        /// Waiting for its time.
        Scheduled = "scheduled",
        /// Its run goes on, or waits for somebody.
        Sending = "sending",
        /// Stopped by somebody, for good.
        Cancelled = "cancelled",
        /// Ended: the platform accepted every send.
        Completed = "completed",
        /// Ended: the platform accepted some.
        Partial = "partial",
        /// Ended: simulated, no platform was called.
        Sent = "sent",
    }
}

/// What can be asked of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Change its content.
    Edit,
    /// Let it start by itself at its time.
    Schedule,
    /// Take that back.
    Unschedule,
    /// Begin its run (`send` and `execute` alike).
    Start,
    /// Freeze the audience of a run that was announced.
    Prepare,
    /// Give up a queued start whose preconditions do not hold.
    Abort,
    /// Let its run wait, or go on again.
    PauseOrResume,
    /// End its run: with this result.
    Finish(RunResult),
    /// Try its failed sends again.
    Retry,
    /// Try its failed sends again at a time, or give that up.
    ScheduleRetry,
    /// Stop it for good.
    Cancel,
    /// Remove it.
    Delete,
}

impl Command {
    /// Every command, for tables and tests.
    pub const ALL: [Self; 14] = [
        Self::Edit,
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
            Self::Edit => "changed",
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
    /// No platform was called.
    Simulated,
    /// The platform accepted every send.
    AllAccepted,
    /// It did not.
    SomeFailed,
}

/// Why the state of things does not allow a command. The text is for the caller.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize)]
pub enum Refusal {
    /// The campaign's status does not allow it.
    #[error("a campaign in status {status} cannot be {verb}", verb = .command.verb())]
    Status {
        /// The status it is in.
        status: CampaignStatus,
        /// What was asked.
        #[serde(skip)]
        command: Command,
    },
    /// It has no template, or the template is gone.
    #[error("the campaign has no template")]
    NoTemplate,
    /// The platform has not approved the template.
    #[error("the template is not approved")]
    TemplateNotApproved,
    /// The template has components that Recado cannot send.
    #[error(
        "the template cannot be sent: {}; choose another template, or change it and submit it again",
        .reasons.join(", ")
    )]
    TemplateNotSendable {
        /// Which, in the words of the template's `reasons`.
        reasons: Vec<String>,
    },
    /// The segment that it goes to was deleted.
    #[error("the segment \"{segment}\" of the campaign was deleted; choose another audience")]
    SegmentDeleted {
        /// What it was called.
        segment: String,
    },
    /// Nobody would receive it.
    #[error("no contact was found for the campaign")]
    NoRecipients,
    #[error("the placeholder {{{{{placeholder}}}}} is empty for at least one contact; give it a fallback")]
    EmptyPlaceholder {
        /// Its number.
        placeholder: String,
    },
    /// The number that the run started with was disconnected.
    #[error("the WhatsApp number is not connected any more")]
    NumberNotConnected,
    /// The account's plan is not active.
    #[error("the account has no active plan")]
    NoActivePlan,
    /// The month's messages would not suffice.
    #[error("the run needs {wanted} messages, and {left} of this month's {limit} are left")]
    QuotaExceeded {
        /// The plan's messages a month.
        limit: i64,
        /// How many are left.
        left: i64,
        /// How many the run needs.
        wanted: i64,
    },
    /// The month has no message left, not even for a test.
    #[error("this month's {limit} messages are used up")]
    MonthUsedUp {
        /// The plan's messages a month.
        limit: i64,
    },
    /// Whoever has the phone of a test does not want to be written to.
    #[error("the contact with this phone has opted out")]
    OptedOut,
    #[error("no failed send can be retried")]
    NothingToRetry {
        /// The failed sends, by why they are left out.
        left_out: Vec<LeftOut>,
    },
    /// Other requests changed the campaign during every attempt.
    #[error("another request is changing the campaign; try again")]
    Contended,
    /// The scheduled time is missing or past.
    #[error("the scheduled time must be in the future")]
    NotInFuture,
}

impl Refusal {
    /// The published word for it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Status { .. } => "status",
            Self::NoTemplate => "no_template",
            Self::TemplateNotApproved => "template_not_approved",
            Self::TemplateNotSendable { .. } => "template_not_sendable",
            Self::SegmentDeleted { .. } => "segment_deleted",
            Self::NoRecipients => "no_recipients",
            Self::EmptyPlaceholder { .. } => "empty_placeholder",
            Self::NumberNotConnected => "number_not_connected",
            Self::NoActivePlan => "no_active_plan",
            Self::QuotaExceeded { .. } => "quota_exceeded",
            Self::MonthUsedUp { .. } => "month_used_up",
            Self::OptedOut => "opted_out",
            Self::NothingToRetry { .. } => "nothing_to_retry",
            Self::Contended => "contended",
            Self::NotInFuture => "not_in_future",
        }
    }

    /// What a program needs to know of it beside its text: the word, and what goes with that.
    pub fn details(&self) -> Value {
        let mut details = json!({ "reason": self.reason() });
        let data = match self {
            Self::TemplateNotSendable { reasons } => Some(("reasons", json!(reasons))),
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

/// Where a command leads from a status. A deleted campaign keeps the status it had.
pub fn transition(status: CampaignStatus, command: Command) -> Result<CampaignStatus, Refusal> {
    use CampaignStatus::{Cancelled, Completed, Draft, Partial, Scheduled, Sending, Sent};
    let refused = Err(Refusal::Status { status, command });
    match (command, status) {
        (Command::Edit, Draft | Scheduled) => Ok(status),
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

    /// The published table, drawn from the machine. A change of the machine has to show in this file's diff.
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
            (Refusal::Status { status, command }, "status"),
            (Refusal::NoTemplate, "no_template"),
            (Refusal::TemplateNotApproved, "template_not_approved"),
            (Refusal::SegmentDeleted { segment: "VIP".into() }, "segment_deleted"),
            (Refusal::NoRecipients, "no_recipients"),
            (
                Refusal::EmptyPlaceholder {
                    placeholder: "2".into(),
                },
                "empty_placeholder",
            ),
            (Refusal::NumberNotConnected, "number_not_connected"),
            (Refusal::NoActivePlan, "no_active_plan"),
            (Refusal::QuotaExceeded { limit, left, wanted }, "quota_exceeded"),
            (Refusal::MonthUsedUp { limit }, "month_used_up"),
            (Refusal::OptedOut, "opted_out"),
            (Refusal::NothingToRetry { left_out: vec![] }, "nothing_to_retry"),
            (Refusal::Contended, "contended"),
            (Refusal::NotInFuture, "not_in_future"),
        ] {
            assert_eq!(refusal.reason(), reason);
        }
    }

    #[test]
    fn refusal_message_names_status_and_command() {
        let refusal = transition(CampaignStatus::Sent, Command::Cancel).unwrap_err();
        assert_eq!(refusal.to_string(), "a campaign in status sent cannot be cancelled");
        let empty = Refusal::EmptyPlaceholder {
            placeholder: "2".into(),
        };
        assert!(empty.to_string().contains("{{2}}"));
    }
}
