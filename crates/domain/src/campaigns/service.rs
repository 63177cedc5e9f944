//! The use cases that read, create, update, delete and cancel campaigns.

use std::sync::Arc;

use serde_json::json;
use time::{Duration, OffsetDateTime};

use super::events::cancelled_event;
use super::run::cancel_notification;
use super::{
    Campaign, CampaignError, CampaignInput, CampaignQuery, CampaignStats, CampaignStatus, CampaignStore, Command,
    Preview, Reach, RunRetryStore, RunStartStore, SendsPage, preview,
};
use crate::costs::CampaignCost;
use crate::shared::{AuditAction, CampaignId, Clock, Event, FieldErrors, Ids, Page, PageQuery, Tenant, text};

/// The limits of the name and of the audience's sources.
const NAME_CHARS: usize = 200;
const RFM_SEGMENTS: usize = 20;
const RFM_SEGMENT_CHARS: usize = 50;
const TAG_IDS: usize = 100;

/// The number of messages in a preview.
const PREVIEW_MESSAGES: i64 = 3;

/// The lease of a run. It must be longer than a batch takes to leave plus the timeout of its last call. Otherwise
/// another worker takes over a healthy run.
pub(super) const RUN_LEASE: Duration = Duration::seconds(30);

/// The use cases of campaigns.
pub struct Campaigns {
    pub(super) store: Arc<dyn CampaignStore>,
    pub(super) starts: Arc<dyn RunStartStore>,
    pub(super) retries: Arc<dyn RunRetryStore>,
    pub(super) clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl Campaigns {
    pub fn new(
        store: Arc<dyn CampaignStore>,
        starts: Arc<dyn RunStartStore>,
        retries: Arc<dyn RunRetryStore>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            store,
            starts,
            retries,
            clock,
            ids,
        }
    }

    pub async fn list(&self, tenant: &Tenant, query: &CampaignQuery) -> Result<Page<Campaign>, CampaignError> {
        Ok(self.store.list(tenant.account_id, query).await?)
    }

    pub async fn get(&self, tenant: &Tenant, id: CampaignId) -> Result<Campaign, CampaignError> {
        self.store
            .find(tenant.account_id, id)
            .await?
            .ok_or(CampaignError::NotFound)
    }

    /// The recipients of a run now, the messages of the first recipients, and every failed precondition.
    pub async fn preview(&self, tenant: &Tenant, id: CampaignId) -> Result<Preview, CampaignError> {
        let preview_facts = self
            .store
            .preview_facts(tenant.account_id, id, PREVIEW_MESSAGES)
            .await?;
        Ok(preview(preview_facts.ok_or(CampaignError::NotFound)?))
    }

    /// Creates a draft.
    pub async fn create(&self, tenant: &Tenant, input: CampaignInput) -> Result<Campaign, CampaignError> {
        let named = CampaignInput {
            name: Some(input.name.unwrap_or_default()),
            ..input
        };
        let mut campaign = merge(self.new_draft(tenant), named)?;
        campaign.cost = CampaignCost::of(campaign.budget.as_ref().map(|budget| budget.currency.as_str()), &[]);
        self.check_references(&campaign).await?;
        let audit = Event::Audit(tenant.audit(AuditAction::Create, "campaign", campaign.id));
        self.store.insert(&campaign, &[audit]).await?;
        Ok(campaign)
    }

    /// Changes the given fields of a draft or scheduled campaign.
    pub async fn update(
        &self,
        tenant: &Tenant,
        id: CampaignId,
        input: CampaignInput,
    ) -> Result<Campaign, CampaignError> {
        // Report invalid input first, whether or not the campaign exists and whatever its status.
        let draft = merge(self.new_draft(tenant), input.clone())?;
        self.check_references(&draft).await?;
        let changed = self.apply_command(tenant, id, input.command(), async |stored, status| {
            input.check_budget_currency(&stored)?;
            let changed = edited(&stored, status, input.clone(), self.clock.now())?;
            if status == CampaignStatus::Sending {
                self.check_remaining_rates(&changed).await?;
            }
            Ok((self.store.update(&changed, &stored, &[]).await?, changed))
        });
        Ok(self.with_current_cost(changed.await?).await)
    }

    /// Soft-deletes a campaign that is not sending.
    pub async fn delete(&self, tenant: &Tenant, id: CampaignId) -> Result<(), CampaignError> {
        self.apply_command(tenant, id, Command::Delete, async |stored, status| {
            let audit = Event::Audit(tenant.audit(AuditAction::Delete, "campaign", id));
            let expected = stored.status;
            let deleted = Campaign {
                status,
                updated_at: self.clock.now(),
                ..stored
            };
            Ok((self.store.delete(&deleted, expected, &[audit]).await?, ()))
        })
        .await
    }

    /// Stops a scheduled or sending campaign permanently. Unsent messages stay pending.
    pub async fn cancel(&self, tenant: &Tenant, id: CampaignId) -> Result<CampaignStatus, CampaignError> {
        self.apply_command(tenant, id, Command::Cancel, async |stored, status| {
            let previous = json!({ "previousStatus": stored.status });
            let audit = tenant.audit(AuditAction::Update, "campaign", id).with_changes(previous);
            let events = [
                Event::Audit(audit),
                Event::Notification(cancel_notification(&stored)),
                cancelled_event(&stored, stored.status),
            ];
            let cancelled = Campaign {
                status,
                paused_at: None,
                pause_reason: None,
                updated_at: self.clock.now(),
                ..stored.clone()
            };
            Ok((self.store.update(&cancelled, &stored, &events).await?, status))
        })
        .await
    }

    pub async fn stats(&self, tenant: &Tenant, id: CampaignId) -> Result<CampaignStats, CampaignError> {
        self.store
            .stats(tenant.account_id, id)
            .await?
            .ok_or(CampaignError::NotFound)
    }

    pub async fn sends(&self, tenant: &Tenant, id: CampaignId, page: PageQuery) -> Result<SendsPage, CampaignError> {
        self.store
            .sends(tenant.account_id, id, page)
            .await?
            .ok_or(CampaignError::NotFound)
    }

    /// A row of another account is reported as a row that does not exist.
    async fn check_references(&self, campaign: &Campaign) -> Result<(), CampaignError> {
        let mut errors = FieldErrors::default();
        for field in self.store.unknown_references(campaign.account_id, campaign).await? {
            errors.add(field, "does not exist");
        }
        Ok(errors.into_result()?)
    }

    fn new_draft(&self, tenant: &Tenant) -> Campaign {
        new_draft(self.ids.next().into(), tenant, self.clock.now())
    }
}

fn new_draft(id: CampaignId, tenant: &Tenant, now: OffsetDateTime) -> Campaign {
    Campaign {
        id,
        account_id: tenant.account_id,
        name: String::new(),
        template_id: None,
        segment_id: None,
        segment_config: None,
        rfm_segments: vec![],
        scheduled_at: None,
        scheduled_by: None,
        variables: None,
        header_location: None,
        offer_expires_at: None,
        reach: Reach::Phone,
        budget: None,
        cost: CampaignCost::default(),
        newcomers_only: false,
        folder_id: None,
        status: CampaignStatus::Draft,
        total_recipients: 0,
        simulated: false,
        executed_at: None,
        completed_at: None,
        paused_at: None,
        pause_reason: None,
        late_policy: None,
        skipped_at: None,
        retry_scheduled_at: None,
        waiting_until: None,
        held: 0,
        archiving_at: None,
        archived_at: None,
        created_by: Some(tenant.actor.user_id),
        created_at: now,
        updated_at: now,
        version: 1,
    }
}

/// The stored campaign with the fields of the input, for an update.
fn edited(
    stored: &Campaign,
    status: CampaignStatus,
    input: CampaignInput,
    now: OffsetDateTime,
) -> Result<Campaign, CampaignError> {
    let changed = Campaign {
        status,
        updated_at: now,
        ..merge(stored.clone(), input)?
    };
    let is_in_future = changed.scheduled_at.is_some_and(|at| at > now);
    if status == CampaignStatus::Scheduled && changed.scheduled_at != stored.scheduled_at && !is_in_future {
        return Err(FieldErrors::one("scheduled_at", "must be in the future while the campaign is scheduled").into());
    }
    Ok(changed)
}

/// Validates the fields of the input and merges them into the campaign. Stored fields are not validated again.
fn merge(campaign: Campaign, input: CampaignInput) -> Result<Campaign, FieldErrors> {
    let name = input.name.map(|name| text::sanitize(&name));
    let mut errors = FieldErrors::default();
    if name
        .as_ref()
        .is_some_and(|name| name.is_empty() || name.chars().count() > NAME_CHARS)
    {
        errors.add("name", "must have 1 to 200 characters");
    }
    if let Some(Some(segments)) = &input.rfm_segments {
        let fits = |segment: &String| !segment.is_empty() && segment.chars().count() <= RFM_SEGMENT_CHARS;
        if segments.len() > RFM_SEGMENTS || !segments.iter().all(fits) {
            errors.add("rfm_segments", "must have at most 20 items of 1 to 50 characters each");
        }
    }
    if let Some(Some(config)) = &input.segment_config {
        if config.tag_ids.as_ref().is_some_and(|tags| tags.len() > TAG_IDS) {
            errors.add("segment_config.tag_ids", "must have at most 100 items");
        }
        if let Some(filters) = &config.filters {
            filters.check("segment_config.filters", &mut errors);
        }
    }
    if let Some(Some(Err(FieldErrors(mapping_errors)))) = input
        .variables
        .as_ref()
        .map(|variables| variables.as_ref().map(super::Variables::validate))
    {
        errors.0.extend(mapping_errors);
    }
    if let Some(Some(location)) = &input.header_location {
        location.check("header_location", &mut errors);
    }
    if let Some(Some(budget)) = &input.budget {
        budget.check("budget", &mut errors);
    }
    let reach = input.reach.and_then(|word| {
        let parsed: Result<Reach, String> = word.parse();
        parsed.map_err(|message| errors.add("reach", message)).ok()
    });
    errors.into_result()?;
    Ok(Campaign {
        name: name.unwrap_or(campaign.name),
        template_id: input.template_id.unwrap_or(campaign.template_id),
        segment_id: input.segment_id.unwrap_or(campaign.segment_id),
        segment_config: input.segment_config.unwrap_or(campaign.segment_config),
        rfm_segments: input
            .rfm_segments
            .map_or(campaign.rfm_segments, Option::unwrap_or_default),
        scheduled_at: input.scheduled_at.unwrap_or(campaign.scheduled_at),
        variables: input.variables.unwrap_or(campaign.variables),
        header_location: input.header_location.unwrap_or(campaign.header_location),
        offer_expires_at: input.offer_expires_at.unwrap_or(campaign.offer_expires_at),
        reach: reach.unwrap_or(campaign.reach),
        budget: input.budget.unwrap_or(campaign.budget),
        newcomers_only: input.newcomers_only.unwrap_or(campaign.newcomers_only),
        folder_id: input.folder_id.unwrap_or(campaign.folder_id),
        ..campaign
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use time::macros::datetime;

    use uuid::Uuid;

    use super::super::{
        CampaignRefusal, MockCampaignStore, MockRunRetryStore, MockRunStartStore, SegmentConfig, Variables,
    };
    use super::*;
    use crate::shared::{
        AccountId, MockClock, MockIds, NotificationKind, Role, StoreError, TagId, UserId, WebhookKind, WriteOutcome,
    };

    pub(crate) const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    pub(crate) fn tenant() -> Tenant {
        Tenant::for_tests(AccountId(Uuid::from_u128(9)), UserId(Uuid::from_u128(8)), Role::Member)
    }

    pub(crate) fn campaign(status: CampaignStatus) -> Campaign {
        Campaign {
            name: "Natal".into(),
            status,
            ..new_draft(CampaignId(Uuid::from_u128(1)), &tenant(), NOW)
        }
    }

    /// The use cases over these stores, at `NOW`.
    pub(crate) fn campaigns_over(
        store: MockCampaignStore,
        starts: MockRunStartStore,
        retries: MockRunRetryStore,
    ) -> Campaigns {
        let mut clock = MockClock::new();
        clock.expect_now().return_const(NOW);
        let mut ids = MockIds::new();
        ids.expect_next().returning(|| Uuid::from_u128(1));
        let (store, starts, retries) = (Arc::new(store), Arc::new(starts), Arc::new(retries));
        Campaigns::new(store, starts, retries, Arc::new(clock), Arc::new(ids))
    }

    pub(crate) fn campaigns(store: MockCampaignStore) -> Campaigns {
        campaigns_over(store, MockRunStartStore::new(), MockRunRetryStore::new())
    }

    fn stored(status: CampaignStatus) -> MockCampaignStore {
        let mut store = MockCampaignStore::new();
        store.expect_find().returning(move |_, _| Ok(Some(campaign(status))));
        store.expect_unknown_references().returning(|_, _| Ok(vec![]));
        store
    }

    fn named(name: &str) -> CampaignInput {
        CampaignInput {
            name: Some(name.into()),
            ..CampaignInput::default()
        }
    }

    #[tokio::test]
    async fn create_makes_an_audited_draft_even_with_a_time() {
        let mut store = stored(CampaignStatus::Draft);
        store
            .expect_insert()
            .withf(|_, events| matches!(events, [Event::Audit(a)] if a.entity_type == "campaign"))
            .returning(|_, _| Ok(()));
        let input = CampaignInput {
            scheduled_at: Some(Some(NOW)),
            ..named(" <i>Natal</i>\n2026 ")
        };
        let created = campaigns(store).create(&tenant(), input).await.unwrap();
        assert_eq!(
            (created.name.as_str(), created.status),
            ("Natal 2026", CampaignStatus::Draft)
        );
        assert_eq!(
            (created.scheduled_at, created.created_by),
            (Some(NOW), Some(tenant().actor.user_id))
        );
    }

    #[tokio::test]
    async fn create_names_invalid_fields_and_missing_references() {
        let wrong = CampaignInput {
            rfm_segments: Some(Some(vec![String::new()])),
            segment_config: Some(Some(SegmentConfig {
                tag_ids: Some(vec![TagId(Uuid::nil()); 101]),
                ..SegmentConfig::default()
            })),
            variables: Some(Some(Variables([("1".to_owned(), "{age}".to_owned())].into()))),
            ..named(&"x".repeat(201))
        };
        let refused = campaigns(MockCampaignStore::new()).create(&tenant(), wrong).await;
        let Err(CampaignError::Invalid(errors)) = refused else {
            panic!()
        };
        let fields: Vec<&str> = errors.0.keys().map(String::as_str).collect();
        assert_eq!(
            fields,
            ["name", "rfm_segments", "segment_config.tag_ids", "variables.1"]
        );
        let mut store = MockCampaignStore::new();
        store
            .expect_unknown_references()
            .returning(|_, _| Ok(vec!["segment_config.tag_ids[1]".into()]));
        let refused = campaigns(store).create(&tenant(), named("x")).await;
        let dangling = |e: &FieldErrors| e.0.contains_key("segment_config.tag_ids[1]");
        assert!(matches!(refused, Err(CampaignError::Invalid(errors)) if dangling(&errors)));
    }

    #[tokio::test]
    async fn update_of_a_sending_campaign_is_refused() {
        let sending = campaigns(stored(CampaignStatus::Sending));
        let refused = sending.update(&tenant(), CampaignId(Uuid::nil()), named("x")).await;
        assert!(matches!(
            refused,
            Err(CampaignError::Refused(CampaignRefusal::Status { .. }))
        ));
        let mut store = stored(CampaignStatus::Draft);
        store
            .expect_update()
            .returning(|_, _, _| Ok(WriteOutcome::Stale(CampaignStatus::Sending)));
        let raced = campaigns(store)
            .update(&tenant(), CampaignId(Uuid::nil()), named("x"))
            .await;
        let status = CampaignStatus::Sending;
        assert!(matches!(raced, Err(CampaignError::Refused(CampaignRefusal::Status { status: s, .. })) if s == status));
    }

    #[tokio::test]
    async fn cancel_audits_the_status_before() {
        let mut store = stored(CampaignStatus::Sending);
        store
            .expect_update()
            .withf(|campaign, expected, events| {
                let Some(Event::Audit(audit)) = events.first() else {
                    return false;
                };
                campaign.status == CampaignStatus::Cancelled
                    && expected.status == CampaignStatus::Sending
                    && audit.changes == Some(json!({ "previousStatus": "sending" }))
                    && matches!(events, [_, Event::Notification(notification), Event::Webhook(webhook)]
                        if notification.kind == NotificationKind::Info
                            && webhook.kind == WebhookKind::CampaignCancelled)
            })
            .returning(|_, _, _| Ok(WriteOutcome::Done));
        let status = campaigns(store)
            .cancel(&tenant(), CampaignId(Uuid::nil()))
            .await
            .unwrap();
        assert_eq!(status, CampaignStatus::Cancelled);
        let refused = campaigns(stored(CampaignStatus::Sent))
            .cancel(&tenant(), CampaignId(Uuid::nil()))
            .await;
        assert!(matches!(refused, Err(CampaignError::Refused(_))));
    }

    #[tokio::test]
    async fn update_of_a_scheduled_campaign_requires_a_future_time() {
        let later = NOW + Duration::hours(1);
        let update = async |scheduled_at| {
            let mut store = MockCampaignStore::new();
            store.expect_unknown_references().returning(|_, _| Ok(vec![]));
            store.expect_find().returning(move |_, _| {
                Ok(Some(Campaign {
                    scheduled_at: Some(later),
                    ..campaign(CampaignStatus::Scheduled)
                }))
            });
            store.expect_update().returning(|_, _, _| Ok(WriteOutcome::Done));
            let input = CampaignInput {
                scheduled_at,
                ..CampaignInput::default()
            };
            campaigns(store).update(&tenant(), CampaignId(Uuid::nil()), input).await
        };
        for good in [None, Some(Some(later)), Some(Some(later + Duration::DAY))] {
            update(good).await.unwrap();
        }
        for bad in [Some(None), Some(Some(NOW))] {
            assert!(matches!(update(bad).await, Err(CampaignError::Invalid(_))));
        }
    }

    #[tokio::test]
    async fn missing_campaign_differs_from_a_failing_store() {
        let mut store = MockCampaignStore::new();
        store.expect_find().returning(|_, _| Ok(None));
        let missing = campaigns(store).get(&tenant(), CampaignId(Uuid::nil())).await;
        assert!(matches!(missing, Err(CampaignError::NotFound)));
        let mut store = MockCampaignStore::new();
        store
            .expect_stats()
            .returning(|_, _| Err(StoreError::Corrupt("x".into())));
        let failed = campaigns(store).stats(&tenant(), CampaignId(Uuid::nil())).await;
        assert!(matches!(failed, Err(CampaignError::Store(_))));
    }
}
