//! Campaigns, as stored and published.

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use super::{Audience, CampaignStatus, Refusal, SegmentConfig, Variables};
use crate::shared::schema::Timestamp;
use crate::shared::string_enum;
use crate::shared::{
    AccountId, CampaignId, Conflict, FieldErrors, FolderId, PageQuery, SegmentId, StoreError, TemplateId, UserId,
    timestamp,
};

/// A campaign: one template message to many contacts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Campaign {
    /// The campaign's id.
    pub id: CampaignId,
    /// The account that it belongs to.
    pub account_id: AccountId,
    /// Its name: 1 to 200 characters, without HTML tags and control characters.
    #[schemars(example = &"Volta às aulas")]
    pub name: String,
    /// The template whose message is sent; null while none is chosen.
    pub template_id: Option<TemplateId>,
    /// The segment whose contacts it goes to; null for none.
    pub segment_id: Option<SegmentId>,
    /// Tags whose bearers it goes to, and filters that narrow every source; null for none.
    pub segment_config: Option<SegmentConfig>,
    /// The RFM segments whose contacts it goes to, by their published names; empty for none.
    #[schemars(example = ["champions"])]
    pub rfm_segments: Vec<String>,
    /// When it is to start by itself, once it is scheduled; null for no time.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub scheduled_at: Option<OffsetDateTime>,
    /// Who scheduled it last: its start is theirs. Told by the audit log alone.
    #[serde(skip)]
    pub scheduled_by: Option<Scheduler>,
    /// What stands in the template's placeholders for each contact; null for the defaults.
    pub variables: Option<Variables>,
    /// The folder that it lies in; null for none.
    pub folder_id: Option<FolderId>,
    /// Where the campaign is in its life.
    pub status: CampaignStatus,
    /// How many contacts its run goes to; 0 before the run.
    #[schemars(example = 1840)]
    pub total_recipients: i64,
    /// Whether its run called nobody, because no WhatsApp number was connected.
    pub simulated: bool,
    /// When its run began; null before.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub executed_at: Option<OffsetDateTime>,
    /// When its run ended; null before.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub completed_at: Option<OffsetDateTime>,
    /// Since when its run is paused, while the status stays `sending`; null when it is not paused.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub paused_at: Option<OffsetDateTime>,
    /// Why its run is paused; null when it is not.
    #[schemars(example = &super::start::PAUSED_BY_HAND)]
    pub pause_reason: Option<String>,
    /// When its failed sends are to be tried again; null when no retry is scheduled.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub retry_scheduled_at: Option<OffsetDateTime>,
    /// The user who created it; null when that user is gone.
    pub created_by: Option<UserId>,
    /// When it was created.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
    /// When it was last changed.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub updated_at: OffsetDateTime,
    /// Raised by every change; internal.
    #[serde(skip)]
    pub version: i64,
}

/// Whoever let a campaign start by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduler {
    /// The person.
    pub user_id: UserId,
    /// Where they are a platform administrator who did it in support mode: their e-mail address.
    pub support_admin: Option<String>,
}

impl Campaign {
    /// Who it goes to.
    pub fn audience(&self) -> Audience {
        let config = self.segment_config.clone().unwrap_or_default();
        Audience {
            segment_id: self.segment_id,
            tag_ids: config.tag_ids.unwrap_or_default(),
            rfm_segments: self.rfm_segments.clone(),
            filters: config.filters.unwrap_or_default(),
        }
    }
}

/// What a caller wrote, unchecked but for types. Absent fields are kept on update; an inner none clears.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CampaignInput {
    pub name: Option<String>,
    pub template_id: Option<Option<TemplateId>>,
    pub segment_id: Option<Option<SegmentId>>,
    pub segment_config: Option<Option<SegmentConfig>>,
    pub rfm_segments: Option<Option<Vec<String>>>,
    pub scheduled_at: Option<Option<OffsetDateTime>>,
    pub variables: Option<Option<Variables>>,
    pub folder_id: Option<Option<FolderId>>,
}

string_enum! {
    /// What a list of campaigns is ordered by.
    CampaignSort {
        /// When it was made.
        CreatedAt = "created_at",
        /// When it last changed.
        UpdatedAt = "updated_at",
        /// Its name.
        Name = "name",
        /// When it is to start.
        ScheduledAt = "scheduled_at",
        /// Its status, by the alphabet.
        Status = "status",
    }
}

/// Asks for one page of campaigns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CampaignQuery {
    /// Which page.
    pub page: PageQuery,
    /// Ordered by this (nothing last), then by id.
    pub sort: CampaignSort,
    /// Largest first.
    pub descending: bool,
    /// In this folder.
    pub folder_id: Option<FolderId>,
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunReport {
    /// How many contacts it went to.
    #[schemars(example = 1840)]
    pub total: i64,
    /// How many messages WhatsApp accepted, whatever became of them since.
    #[schemars(example = 1832)]
    pub sent: i64,
    /// How many it did not accept; messages whose fate is not known yet are among them. Of a run that waits or was
    /// cancelled: how many it refused.
    #[schemars(example = 8)]
    pub failed: i64,
    /// Whether nobody was called, because no WhatsApp number is connected.
    pub simulated: bool,
    /// The status that the campaign ended in; `sending` when its run was paused.
    pub status: CampaignStatus,
    /// True when the run was paused; absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// Why a campaign operation did not happen.
#[derive(Debug, Error)]
pub enum CampaignError {
    /// No such campaign in the account.
    #[error("not found")]
    NotFound,
    /// The input is wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The campaign, or what it needs, is not in a state for it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The server is shutting down; another one goes on with the run.
    #[error("the server is shutting down")]
    Interrupted,
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

/// Published as a refusal of its own.
impl From<Conflict> for CampaignError {
    fn from(_: Conflict) -> Self {
        Refusal::Contended.into()
    }
}

impl From<StoreError> for CampaignError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
