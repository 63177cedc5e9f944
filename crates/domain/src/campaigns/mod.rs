//! Campaigns: one template, sent once to each person of an audience, and what became of every message.
//!
//! A campaign is written as a `draft`, may wait as `scheduled`, is `sending` while its run goes on, and ends as `sent`
//! (simulated), `completed`, `partial` or `cancelled`: [`transition`] is the whole machine. A **run** freezes the
//! audience into one send a contact, reserves the month's quota, and then, batch by batch, claims sends, marks them
//! started, calls the platform and records what came of it ([`Dispatcher`]). A send moves forward only:
//! [`SendStatus::advance`]. Whatever crashes, nobody is written to twice: a send that was started and never recorded is
//! *unknown*, settled by the platform's own news or by time, never sent again.
//!
//! Owns campaigns, sends and runs. Does not own templates, contacts, or the platform's wire form.

mod audience;
mod dispatch;
mod model;
mod outcome;
mod ports;
mod run;
mod send;
mod service;
mod status;
mod variables;

pub use audience::{Audience, AudienceFilters, SegmentConfig};
pub use dispatch::{Dispatcher, RunEnd};
pub use model::*;
pub use outcome::{SendOutcome, SendResult, settle};
pub use ports::*;
pub use run::{Pace, RunFacts, RunMaterial, RunStart, StartOutcome, Trigger, finish, prepare};
pub use send::{CampaignSend, Counted, Recipient, SendContact, SendCounts, SendStatus};
pub use service::Campaigns;
pub use status::{CampaignStatus, Command, Refusal, transition};
pub use variables::{Blank, Field, Variables};
