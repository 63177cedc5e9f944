//! Campaigns: one template, sent once to each person of an audience, and what became of every message.
//!
//! **A campaign** names a template that the platform has approved, the sources of an [`Audience`] (nothing named means
//! all contacts), and for each placeholder what stands in it ([`Variables`]). It is written as a `draft`, may wait as
//! `scheduled`, is `sending` while its run goes on, and ends as `completed` (every send was accepted), `partial` (not
//! every one), `sent` (simulated: the account has no number, so no platform was called) or `cancelled`. Content can be
//! changed in `draft` and `scheduled` alone. [`transition`] is the whole machine; `status.golden` beside it shows every
//! command in every status.
//!
//! **A run** is begun by [`Campaigns::start`], once [`prepare`] found nothing against it: it freezes the audience into
//! one send a contact, freezes what they say ([`RunContent`]) and reserves the month's quota for all of them, or does not
//! happen at all. `send` and a schedule
//! only announce it ([`Campaigns::enqueue_start`]): the campaign is sending at once, and the worker that takes it up
//! does the same, or makes it a draft again and says why. It waits in a queue
//! where any server can pick it up; one *worker* at a time holds it, by a *lease* that it has to renew. The worker's
//! [`Dispatcher`] claims some sends, marks them started, calls the platform, records what came of it, and so on until
//! none is left; [`finish`] then concludes. A run *pauses* (still `sending`, with `paused_at`) when something concerns
//! all its sends, such as a dead token, until somebody sees to it. A cancel stops it at once: nothing more leaves, and
//! what did not leave stays pending.
//!
//! **A send** moves forward only, whoever brings the news and in whatever order: [`SendStatus::advance`]. The
//! platform's answers come in five classes ([`SendOutcome`]) with one consequence each ([`settle`]). Whatever crashes,
//! nobody is written to twice: a send that was started and never recorded is *unknown*, settled by the platform's own
//! news or failed by time, never sent again by its run.
//!
//! **A retry** ([`Campaigns::retry_failed`]) tries failed sends of an ended run again, now or at a time. By its error code
//! a failure may be tried again at once, later or never ([`Failure::class`]); what is left out is reported with its reason.
//!
//! **A preview** ([`preview`]) says who a run would go to, what the first of them would read, and everything that speaks
//! against it; it changes nothing. **A test** ([`TestSends`]) is one message of the campaign to one phone, outside its
//! statistics; it costs one of the month's messages and is called a test send in the code.
//!
//! Owns campaigns, sends and runs. Does not own templates, contacts, plans, or the platform's wire form.

mod audience;
mod content;
mod concurrent_commands;
mod dispatch;
#[cfg(test)]
mod dispatch_tests;
mod events;
mod failure;
mod finish;
mod in_flight;
mod model;
mod outcome;
mod ports;
mod postponement;
mod preconditions;
mod preview;
mod pricing;
mod refusals;
mod retry;
mod run;
mod run_context;
mod send;
mod send_rate;
mod service;
mod start;
mod status;
mod test_send;
#[cfg(test)]
mod test_send_tests;
mod variables;

pub use audience::{Audience, SegmentConfig};
pub use content::RunContent;
pub use dispatch::{Dispatcher, RunEnd, Worker};
pub use events::{MessageStatusEvent, started_event};
pub use failure::{Failure, FailureClass, LeftOut, LeftOutReason, NO_CODE, RETRY_RULES, RetryReport, RetryRule};
pub use finish::finish;
pub use model::*;
pub use outcome::{RunBlock, SendOutcome, SendResult, to_result};
pub use ports::*;
pub use preconditions::{failed_preconditions, may_be_sent, required_placeholders};
pub use preview::{Preview, PreviewContact, PreviewFacts, PreviewMessage, PreviewRecipient, PreviewRefusal, preview};
pub use pricing::{Pricing, PricingSource, StatusPricing};
pub use retry::{DueRetry, RetriedCampaign, RetryRequest, RetrySchedule};
pub use run::{
    EnqueueStart, QueuedStart, ResumeFacts, RetryOutcome, RunFacts, RunInputs, RunQuota, RunRetry, RunStart,
    StartOutcome, Trigger, pause_notification, prepare, prepare_retry,
};
pub use send::{CampaignSend, CounterChange, NEVER_CONFIRMED, Recipient, SendContact, SendCounts, SendStatus};
pub use send_rate::{Burst, LOWEST_RATE, PAIR_INTERVAL, RATE_HALVING_INTERVAL, RATE_RECOVERY, SendRate, ThrottledRate};
pub use service::Campaigns;
pub use status::{CampaignStatus, Command, Refusal, transition};
pub use test_send::{TestSendContact, TestSendError, TestSendFacts, TestSendReport, TestSends};
pub use variables::{Field, RequiredPlaceholder, Variables};

pub use crate::segments::AudienceFilters;
