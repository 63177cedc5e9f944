//! Campaigns, as stored and published.

use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use super::{Audience, CampaignStatus, Refusal, SegmentConfig, Variables};
use crate::shared::words;
use crate::shared::{
    AccountId, CampaignId, FieldErrors, FolderId, PageQuery, SegmentId, StoreError, TemplateId, UserId, timestamp,
};

/// A campaign, as published.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Campaign {
    /// Its id.
    pub id: CampaignId,
    /// Whose it is.
    pub account_id: AccountId,
    /// 1 to 200 characters, sanitized.
    pub name: String,
    /// What is sent.
    pub template_id: Option<TemplateId>,
    /// To the members of this segment.
    pub segment_id: Option<SegmentId>,
    /// To the bearers of these tags; and what narrows every source.
    pub segment_config: Option<SegmentConfig>,
    /// To the contacts in these RFM segments.
    pub rfm_segments: Vec<String>,
    /// When it is to start by itself.
    #[serde(with = "timestamp::option")]
    pub scheduled_at: Option<OffsetDateTime>,
    /// Who scheduled it last: its start is theirs. Told by the audit log alone.
    #[serde(skip)]
    pub scheduled_by: Option<Scheduler>,
    /// What stands in the placeholders for each contact.
    pub variables: Option<Variables>,
    /// The folder it lies in.
    pub folder_id: Option<FolderId>,
    /// Where it is in its life.
    pub status: CampaignStatus,
    /// How many sends its run has; 0 before.
    pub total_recipients: i64,
    /// Whether its run called no platform, because no number was connected.
    pub simulated: bool,
    /// When its run began.
    #[serde(with = "timestamp::option")]
    pub executed_at: Option<OffsetDateTime>,
    /// When its run ended.
    #[serde(with = "timestamp::option")]
    pub completed_at: Option<OffsetDateTime>,
    /// Since when its run waits for somebody; the status stays `sending`.
    #[serde(with = "timestamp::option")]
    pub paused_at: Option<OffsetDateTime>,
    /// What it waits for.
    pub pause_reason: Option<String>,
    /// Who made it.
    pub created_by: Option<UserId>,
    /// When it was made.
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
    /// When it last changed.
    #[serde(with = "timestamp")]
    pub updated_at: OffsetDateTime,
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
            tag_ids: config.tag_ids,
            rfm_segments: self.rfm_segments.clone(),
            filters: config.filters,
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

words! {
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

/// How a run went, as published by `execute`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunReport {
    /// How many sends it has.
    pub total: i64,
    /// How many the platform accepted, whatever became of them since.
    pub sent: i64,
    /// How many it did not, the unknown ones among them.
    pub failed: i64,
    /// Whether no platform was called.
    pub simulated: bool,
    /// Where the campaign ended.
    pub status: CampaignStatus,
    /// There and true when the run waits for somebody.
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

impl From<StoreError> for CampaignError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
