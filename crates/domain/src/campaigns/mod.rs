//! Campaigns: one template message, sent once to each contact of an audience, and the status of every message.
//!
//! **A campaign** names an approved template, the sources of an [`Audience`] (no source means all contacts), and a
//! mapping of placeholders ([`Variables`]). It begins as a `draft`, may wait as `scheduled`, and is `sending` during
//! its run. It ends as `completed` (WhatsApp accepted every send), `partial` (WhatsApp did not accept every send),
//! `sent` (simulated: the account has no number, so WhatsApp was not called) or `cancelled`. Content can change only
//! in `draft` and `scheduled`. [`transition`] is the complete state machine; `status.golden` shows every command in
//! every status.
//!
//! **A run** starts by [`Campaigns::start`], if [`prepare`] finds no failed precondition. One transaction freezes the
//! audience (one send per contact), freezes the content ([`RunContent`]) and reserves the month's quota, or nothing
//! changes. `send` and a schedule only enqueue the start ([`Campaigns::enqueue_start`]): the campaign is `sending` at
//! once, and a worker checks the preconditions later. If one fails, the campaign becomes a draft again and a
//! notification gives the reason.
//!
//! Runs wait in a queue that all servers share. One *worker* at a time holds a run by a *lease*, which it renews. Its
//! [`Dispatcher`] claims sends, marks them as started, calls WhatsApp and records the results until none is left;
//! [`finish`] then ends the run. A run *pauses* (still `sending`, with `paused_at`) when a problem concerns all its
//! sends, such as an expired token, until a member resumes it. A cancel stops the run at once: no further message
//! leaves, and unsent messages stay pending.
//!
//! **A send** only moves forward, whatever the source and order of its status updates: [`SendStatus::advance`](crate::messaging::SendStatus::advance). Each
//! class of outcome ([`SendOutcome`](crate::messaging::SendOutcome)) has one result ([`to_result`]). No contact gets a message twice, even after a
//! crash. The outcome of a send that was started and never recorded is *unknown*: a status update or a timeout
//! resolves it, and its run never repeats it.
//!
//! **A held send** waits because of the account's settings ([`holds`](crate::holds)). It is checked when it is claimed, and
//! again in the transaction that starts it. A run whose remaining sends are all held *waits*: no worker holds it, and it
//! goes on at `waiting_until`, or when the settings change.
//!
//! **A retry** ([`Campaigns::retry_failed`]) sends the failed messages of an ended run again, now or at a later time.
//! The error code decides whether a failure can be retried at once, later or never ([`Failure::class`]). A report
//! lists the sends that are left out, with reasons.
//!
//! **A preview** ([`preview`]) shows the recipients of a run, its first messages and every failed precondition. It
//! changes nothing. **A test send** ([`TestSends`]) is one message of the campaign to one phone number. It uses one
//! message of the month's quota and does not count in the statistics.
//!
//! Owns campaigns, sends and runs. Does not own templates, contacts, plans, or WhatsApp's wire format.

mod audience;
mod batch_progress;
mod budget;
mod budget_checks;
mod concurrent_commands;
mod content;
mod dispatch;
mod events;
mod failure;
mod finish;
mod in_flight;
#[cfg(any(test, feature = "mocks"))]
pub mod in_memory;
mod model;
mod number_state;
mod outcome;
mod ports;
mod postponement;
mod preconditions;
mod prepare;
mod preview;
mod refusals;
mod retry;
mod retry_request;
mod run;
mod run_context;
mod scheduled_start;
mod send;
mod send_rate;
mod service;
mod start;
mod status;
#[cfg(test)]
mod stored_transitions;
mod template_review;
mod test_send;
mod variables;

pub use audience::{Audience, Reach, SegmentConfig};
pub use budget::{BUDGET_REACHED, Budget, RemainingCosts, admitted};
pub use content::RunContent;
pub use dispatch::{Dispatcher, RunEnd, Worker};
pub use events::{MessageStatusEvent, started_event};
pub use failure::{Failure, FailureClass, LeftOut, LeftOutReason, NO_CODE, RetryReport, RetryRule, retry_rules};
pub use finish::finish;
pub(crate) use in_flight::{CompletedCall, InFlightSends};
pub use model::*;
pub use outcome::{RunBlock, SendResult, to_result};
pub use ports::*;
pub use preconditions::{failed_preconditions, required_placeholders};
pub use prepare::{prepare, prepare_retry};
pub use preview::{
    Preview, PreviewContact, PreviewFacts, PreviewMessage, PreviewRecipient, PreviewRefusal, RecipientsBy, Unreachable,
    preview,
};
pub use retry::RetriedCampaign;
pub use retry_request::{DueRetry, RetryRequest, RetrySchedule};
pub use run::{
    EnqueueStart, QueuedStart, ResumeFacts, RetryOutcome, RunFacts, RunInputs, RunQuota, RunRetry, RunStart,
    StartOutcome, TestRecipient, TestSendContact, TestSendFacts, Trigger, may_be_sent, pause_notification,
};
pub use send::{
    CampaignSend, CampaignStats, CounterChange, NEVER_CONFIRMED, Recipient, SendContact, SendCounts, SendsPage,
};
pub use send_rate::{Burst, LOWEST_RATE, PAIR_INTERVAL, RATE_HALVING_INTERVAL, RATE_RECOVERY, SendRate, ThrottledRate};
pub use service::Campaigns;
pub use status::{CampaignRefusal, CampaignStatus, Command, transition};
pub use template_review::ReviewingGateway;
pub use test_send::{TestSendError, TestSendInput, TestSendReport, TestSends};
pub use variables::{Field, RequiredPlaceholder, Variables};

pub use crate::segments::AudienceFilters;
