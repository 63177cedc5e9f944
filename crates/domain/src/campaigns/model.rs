//! The campaign, its input, queries, report and errors.

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use super::{Audience, Budget, CampaignRefusal, CampaignStatus, Command, Reach, SegmentConfig, Variables};
use crate::costs::CampaignCost;
use crate::messaging::HeaderLocation;
use crate::settings::LatePolicy;
use crate::shared::schema::Timestamp;
use crate::shared::{
    AccountId, Amount, CampaignId, Conflict, FieldErrors, FolderId, PageQuery, SegmentId, StoreError, TemplateId,
    UserId, string_enum, timestamp,
};

/// A campaign: one template message to many contacts.
#[derive(Clone, Debug, PartialEq)]
pub struct Campaign {
    pub id: CampaignId,
    pub account_id: AccountId,
    pub name: String,
    pub template_id: Option<TemplateId>,
    /// The segment whose contacts receive the campaign; null for no segment.
    pub segment_id: Option<SegmentId>,
    /// Tags whose contacts receive the campaign, and filters that narrow the whole audience; null for neither.
    pub segment_config: Option<SegmentConfig>,
    /// The RFM segments whose contacts receive the campaign, by their published names; empty for none.
    pub rfm_segments: Vec<String>,
    /// When a scheduled campaign starts automatically.
    pub scheduled_at: Option<OffsetDateTime>,
    /// The user who scheduled it last. The audit log attributes the start to this user.
    pub scheduled_by: Option<Scheduler>,
    /// The mapping of the template's placeholders to values; null for the default values.
    pub variables: Option<Variables>,
    /// The location of the header; null for none.
    pub header_location: Option<HeaderLocation>,
    /// When the template's limited-time offer ends; null for no end.
    pub offer_expires_at: Option<OffsetDateTime>,
    /// By which addresses the campaign reaches people.
    pub reach: Reach,
    /// The most that the messages of the campaign may cost.
    pub budget: Option<Budget>,
    /// What the messages of the campaign cost so far. Only reads of the campaign fill it.
    pub cost: CampaignCost,
    /// Whether contacts for which a campaign was started before are left out.
    pub newcomers_only: bool,
    pub folder_id: Option<FolderId>,
    pub status: CampaignStatus,
    /// The number of contacts in the campaign's run; 0 before the run.
    pub total_recipients: i64,
    /// Whether the run was simulated: no WhatsApp number was connected, so no message was sent.
    pub simulated: bool,
    pub executed_at: Option<OffsetDateTime>,
    pub completed_at: Option<OffsetDateTime>,
    /// When the run was paused, while the status stays `sending`; null when it is not paused.
    pub paused_at: Option<OffsetDateTime>,
    pub pause_reason: Option<String>,
    /// What happens if the scheduled start is late. None: the account's policy.
    pub late_policy: Option<LatePolicy>,
    /// When the scheduled start was skipped, because it was too late; none after the next schedule or start.
    pub skipped_at: Option<OffsetDateTime>,
    /// When the campaign's failed sends will be retried; null when no retry is scheduled.
    pub retry_scheduled_at: Option<OffsetDateTime>,
    /// When the first held send of a waiting run is looked at again. Only reads of the campaign fill it and `held`.
    pub waiting_until: Option<OffsetDateTime>,
    /// The number of held sends of a waiting run.
    pub held: i64,
    /// From when on no send of the campaign changes, because its archive is being written; null before.
    pub archiving_at: Option<OffsetDateTime>,
    /// From when on the campaign's sends are in its archive; null before.
    pub archived_at: Option<OffsetDateTime>,
    /// The user who created the campaign; null when that user no longer exists.
    pub created_by: Option<UserId>,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
    /// Row version for optimistic locking; every change increments it.
    pub version: i64,
}

/// The user who scheduled a start or a retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduler {
    pub user_id: UserId,
    /// The e-mail address of a platform administrator who scheduled it in support mode.
    pub support_admin: Option<String>,
}

impl Campaign {
    /// Refuses a retry of sends that are archived, or will be: they do not change any more.
    pub(super) fn check_not_archived(&self) -> Result<(), CampaignRefusal> {
        match self.archiving_at.or(self.archived_at) {
            None => Ok(()),
            Some(_) => Err(CampaignRefusal::Archived),
        }
    }

    pub fn audience(&self) -> Audience {
        let config = self.segment_config.clone().unwrap_or_default();
        Audience {
            segment_id: self.segment_id,
            tag_ids: config.tag_ids.unwrap_or_default(),
            rfm_segments: self.rfm_segments.clone(),
            filters: config.filters.unwrap_or_default(),
            newcomers_only: self.newcomers_only,
        }
    }
}

/// Unchecked input of a create or an update. On update, absent fields do not change and an inner `None` clears the field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CampaignInput {
    pub name: Option<String>,
    pub template_id: Option<Option<TemplateId>>,
    pub segment_id: Option<Option<SegmentId>>,
    pub segment_config: Option<Option<SegmentConfig>>,
    pub rfm_segments: Option<Option<Vec<String>>>,
    pub scheduled_at: Option<Option<OffsetDateTime>>,
    pub variables: Option<Option<Variables>>,
    pub header_location: Option<Option<HeaderLocation>>,
    pub offer_expires_at: Option<Option<OffsetDateTime>>,
    /// The word of a [`Reach`].
    pub reach: Option<String>,
    pub budget: Option<Option<Budget>>,
    pub newcomers_only: Option<bool>,
    pub folder_id: Option<Option<FolderId>>,
}

impl CampaignInput {
    /// Refuses another currency of the budget of a run: it has reserved amounts in the stored one.
    pub(super) fn check_budget_currency(&self, stored: &Campaign) -> Result<(), FieldErrors> {
        let Some(Some(after)) = &self.budget else { return Ok(()) };
        let before = stored
            .budget
            .as_ref()
            .filter(|_| stored.status == CampaignStatus::Sending);
        // The budget may have been removed, and its reservations not returned yet.
        let has_reserved = stored.cost.reserved.is_some_and(|reserved| reserved > Amount::ZERO);
        let reserved_currency = stored.cost.currency.as_ref().filter(|_| has_reserved);
        let bound = before.map(|budget| &budget.currency).or(reserved_currency);
        match bound.is_some_and(|currency| *currency != after.currency) {
            false => Ok(()),
            true => Err(FieldErrors::one(
                "budget.currency",
                "cannot change while the campaign is sending or messages have a reservation in another currency",
            )),
        }
    }

    /// The command of an update. The budget alone can be changed also while the campaign runs.
    pub(super) fn command(&self) -> Command {
        let rest = Self {
            budget: None,
            ..self.clone()
        };
        match self.budget.is_some() && rest == Self::default() {
            true => Command::SetBudget,
            false => Command::Edit,
        }
    }
}

/// Unchecked input of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduleInput {
    /// None: the time that the campaign already has.
    pub scheduled_at: Option<OffsetDateTime>,
    /// None: the policy that the campaign already has. `Some(None)`: the account's.
    pub late_policy: Option<Option<LatePolicy>>,
}

impl ScheduleInput {
    /// A schedule with the policy that the campaign has.
    pub fn at(scheduled_at: Option<OffsetDateTime>) -> Self {
        Self {
            scheduled_at,
            late_policy: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        if let Some(Some(policy)) = self.late_policy {
            policy.check("late_policy", &mut errors);
        }
        errors.into_result()
    }
}

string_enum! {
    /// The field by which a list of campaigns is ordered.
    CampaignSort {
        /// The time of creation.
        CreatedAt = "created_at",
        /// The time of the last change.
        UpdatedAt = "updated_at",
        /// The name.
        Name = "name",
        /// The time of the scheduled start.
        ScheduledAt = "scheduled_at",
        /// The status, in alphabetical order.
        Status = "status",
    }
}

/// The page, order and folder of a campaign list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CampaignQuery {
    pub page: PageQuery,
    /// The first sort key, nulls last. The id is the second.
    pub sort: CampaignSort,
    pub descending: bool,
    pub folder_id: Option<FolderId>,
}

/// The key of a run in the run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedRun {
    pub account_id: AccountId,
    pub campaign_id: CampaignId,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunReport {
    /// The number of contacts in the run.
    #[schemars(example = 1840)]
    pub total: i64,
    /// The number of messages that WhatsApp accepted, whatever their later status.
    #[schemars(example = 1832)]
    pub sent: i64,
    /// The number of messages that WhatsApp did not accept, including those whose outcome is still unknown. For a
    /// paused or cancelled run: the number of messages that failed.
    #[schemars(example = 8)]
    pub failed: i64,
    /// Whether the run was simulated: no WhatsApp number is connected, so no message was sent.
    pub simulated: bool,
    /// The campaign's status at the end of the run; `sending` when the run was paused, or waits.
    pub status: CampaignStatus,
    /// The number of held messages of a run that waits for them; absent otherwise. The run goes on by itself.
    #[schemars(example = 3)]
    #[serde(skip_serializing_if = "super::send::is_zero")]
    pub waiting: i64,
    /// When the first held message of a waiting run is looked at again; absent otherwise.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option", skip_serializing_if = "Option::is_none")]
    pub waiting_until: Option<OffsetDateTime>,
    /// True when the run was paused; absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

impl RunReport {
    /// Whether the run waits for held messages.
    pub fn is_waiting(&self) -> bool {
        self.waiting_until.is_some()
    }
}

/// Why a campaign operation failed.
#[derive(Debug, Error)]
pub enum CampaignError {
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The state of the campaign, its template or its plan does not allow the operation.
    #[error(transparent)]
    Refused(#[from] CampaignRefusal),
    /// The server is shutting down; another one continues the run.
    #[error("the server is shutting down")]
    Interrupted,
    #[error(transparent)]
    Store(StoreError),
}

impl From<Conflict> for CampaignError {
    fn from(_: Conflict) -> Self {
        CampaignRefusal::Contended.into()
    }
}

impl From<StoreError> for CampaignError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
