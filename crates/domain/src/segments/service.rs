//! The use cases of segments.

use std::sync::Arc;

use super::{
    AudienceFilters, MembersAdded, PreviewOutcome, Segment, SegmentChange, SegmentDraft, SegmentError, SegmentInput,
    SegmentPreview, SegmentStore,
};
use crate::shared::{AccountId, Clock, ContactId, CursorPage, CursorQuery, FieldErrors, Ids, SegmentId, Tenant, text};

const NAME_CHARS: usize = 100;
const DESCRIPTION_CHARS: usize = 1000;

/// The most contacts that one request may add or remove.
const CONTACT_IDS: usize = 1000;

/// The contacts that a preview shows.
const PREVIEW_CONTACTS: i64 = 10;

/// Manages segments and their members.
pub struct Segments {
    store: Arc<dyn SegmentStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl Segments {
    pub fn new(store: Arc<dyn SegmentStore>, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Self {
        Self { store, clock, ids }
    }

    /// The account's segments, newest first.
    pub async fn list(&self, tenant: &Tenant, query: &CursorQuery) -> Result<CursorPage<Segment>, SegmentError> {
        Ok(self.store.list(tenant.account_id, query).await?)
    }

    pub async fn get(&self, tenant: &Tenant, id: SegmentId) -> Result<Segment, SegmentError> {
        self.store
            .find(tenant.account_id, id)
            .await?
            .ok_or(SegmentError::NotFound)
    }

    pub async fn create(&self, tenant: &Tenant, input: SegmentInput) -> Result<Segment, SegmentError> {
        let input = SegmentInput {
            name: Some(input.name.unwrap_or_default()),
            ..input
        };
        let change = check(input)?;
        self.check_references(tenant.account_id, change.filters.as_ref())
            .await?;
        let draft = SegmentDraft {
            name: change.name.unwrap_or_default(),
            description: change.description.flatten(),
            filters: change.filters.unwrap_or_default(),
        };
        let id = self.ids.next().into();
        Ok(self
            .store
            .insert(tenant.account_id, id, &draft, self.clock.now())
            .await?)
    }

    /// Changes the given fields of a segment.
    pub async fn update(&self, tenant: &Tenant, id: SegmentId, input: SegmentInput) -> Result<Segment, SegmentError> {
        let change = check(input)?;
        self.check_references(tenant.account_id, change.filters.as_ref())
            .await?;
        self.store
            .update(tenant.account_id, id, &change, self.clock.now())
            .await?
            .ok_or(SegmentError::NotFound)
    }

    /// Counts the contacts of a segment with these filters and members, without storing it.
    pub async fn preview(
        &self,
        tenant: &Tenant,
        filters: AudienceFilters,
        members: &[ContactId],
    ) -> Result<SegmentPreview, SegmentError> {
        let filters = without_empty_attributes(filters);
        let mut errors = check_ids(members).err().unwrap_or_default();
        filters.check("filters", &mut errors);
        errors.into_result()?;
        self.check_references(tenant.account_id, Some(&filters)).await?;
        let store = &self.store;
        match store
            .preview(tenant.account_id, &filters, members, PREVIEW_CONTACTS)
            .await?
        {
            PreviewOutcome::Done(preview) => Ok(preview),
            PreviewOutcome::Unknown(positions) => Err(unknown_contacts(positions).into()),
        }
    }

    /// A row of another account is reported as a row that does not exist.
    async fn check_references(
        &self,
        account: AccountId,
        filters: Option<&AudienceFilters>,
    ) -> Result<(), SegmentError> {
        let references = filters.map(|filters| filters.references("filters")).unwrap_or_default();
        if references.is_empty() {
            return Ok(());
        }
        let mut errors = FieldErrors::default();
        for field in self.store.unknown_references(account, &references).await? {
            errors.add(field, "does not exist");
        }
        Ok(errors.into_result()?)
    }

    /// Deletes a segment. Campaigns that use it can no longer run.
    pub async fn delete(&self, tenant: &Tenant, id: SegmentId) -> Result<(), SegmentError> {
        self.store
            .delete(tenant.account_id, id, self.clock.now())
            .await?
            .or_missing(SegmentError::NotFound)
    }

    /// Makes contacts members. Existing members stay members.
    pub async fn add_members(
        &self,
        tenant: &Tenant,
        id: SegmentId,
        contacts: &[ContactId],
    ) -> Result<Segment, SegmentError> {
        check_ids(contacts)?;
        match self.store.add_members(tenant.account_id, id, contacts).await? {
            MembersAdded::Done(segment) => Ok(*segment),
            MembersAdded::Missing => Err(SegmentError::NotFound),
            MembersAdded::Unknown(positions) => Err(unknown_contacts(positions).into()),
        }
    }

    /// Removes contacts from the members. Contacts that are not members, or that match the filters, are not affected.
    pub async fn remove_members(
        &self,
        tenant: &Tenant,
        id: SegmentId,
        contacts: &[ContactId],
    ) -> Result<(), SegmentError> {
        check_ids(contacts)?;
        self.store
            .remove_members(tenant.account_id, id, contacts)
            .await?
            .or_missing(SegmentError::NotFound)
    }
}

fn check_ids(contacts: &[ContactId]) -> Result<(), FieldErrors> {
    if contacts.len() > CONTACT_IDS {
        return Err(FieldErrors::one(
            "contact_ids",
            format!("must have at most {CONTACT_IDS} items"),
        ));
    }
    Ok(())
}

fn unknown_contacts(positions: Vec<usize>) -> FieldErrors {
    let mut errors = FieldErrors::default();
    for position in positions {
        errors.add(format!("contact_ids[{position}]"), "does not exist");
    }
    errors
}

fn check(input: SegmentInput) -> Result<SegmentChange, FieldErrors> {
    let mut errors = FieldErrors::default();
    let name = input.name.map(|name| text::sanitize(&name));
    if name
        .as_ref()
        .is_some_and(|name| name.is_empty() || name.chars().count() > NAME_CHARS)
    {
        errors.add("name", format!("must have 1 to {NAME_CHARS} characters"));
    }
    let description = input.description.map(|description| {
        let text = description.unwrap_or_default();
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    });
    if let Some(Some(text)) = &description
        && text.chars().count() > DESCRIPTION_CHARS
    {
        errors.add(
            "description",
            format!("must have at most {DESCRIPTION_CHARS} characters"),
        );
    }
    let filters = input
        .filters
        .map(Option::unwrap_or_default)
        .map(without_empty_attributes);
    if let Some(filters) = &filters {
        filters.check("filters", &mut errors);
    }
    errors.into_result()?;
    Ok(SegmentChange {
        name,
        description,
        filters,
    })
}

/// An empty set of attributes means no condition. As a condition, it would match every contact.
fn without_empty_attributes(filters: AudienceFilters) -> AudienceFilters {
    AudienceFilters {
        attributes: filters.attributes.filter(|attributes| !attributes.is_empty()),
        ..filters
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::MockSegmentStore;
    use super::*;
    use crate::shared::{AccountId, MockClock, MockIds, Role, UserId};

    fn segments(store: MockSegmentStore) -> Segments {
        let mut clock = MockClock::new();
        clock.expect_now().return_const(datetime!(2026-03-01 12:00 UTC));
        let mut ids = MockIds::new();
        ids.expect_next().returning(|| Uuid::from_u128(1));
        Segments::new(Arc::new(store), Arc::new(clock), Arc::new(ids))
    }

    fn tenant() -> Tenant {
        Tenant::for_tests(AccountId(Uuid::from_u128(9)), UserId(Uuid::nil()), Role::Member)
    }

    fn made(id: SegmentId, draft: &SegmentDraft) -> Segment {
        Segment {
            id,
            name: draft.name.clone(),
            description: draft.description.clone(),
            filters: draft.filters.clone(),
            members: 0,
            members_as_of: datetime!(2026-03-01 12:00 UTC),
            created_at: datetime!(2026-03-01 12:00 UTC),
            updated_at: datetime!(2026-03-01 12:00 UTC),
        }
    }

    fn fields<T: std::fmt::Debug>(refused: Result<T, SegmentError>) -> Vec<String> {
        let Err(SegmentError::Invalid(errors)) = refused else {
            panic!("{refused:?}")
        };
        errors.0.into_keys().collect()
    }

    #[tokio::test]
    async fn new_segment_is_sanitized_without_empty_attributes() {
        let mut store = MockSegmentStore::new();
        store.expect_insert().returning(|_, id, draft, _| Ok(made(id, draft)));
        let filters = serde_json::from_value(json!({ "attributes": {} })).unwrap();
        let input = SegmentInput {
            name: Some(" <b>VIP</b>\n2026 ".into()),
            description: Some(Some("  ".into())),
            filters: Some(Some(filters)),
        };
        let made = segments(store).create(&tenant(), input).await.unwrap();
        assert_eq!((made.name.as_str(), made.description), ("VIP 2026", None));
        assert_eq!(made.filters, AudienceFilters::default());
    }

    #[tokio::test]
    async fn segment_create_reports_every_invalid_field() {
        let wrong = SegmentInput {
            name: None,
            description: Some(Some("x".repeat(1001))),
            filters: Some(Some(
                serde_json::from_value(json!({ "attributes": { "a": [] } })).unwrap(),
            )),
        };
        let refused = segments(MockSegmentStore::new()).create(&tenant(), wrong).await;
        assert_eq!(fields(refused), ["description", "filters.attributes.a", "name"]);
        let many = vec![ContactId(Uuid::nil()); 1001];
        let id = SegmentId(Uuid::nil());
        let segments = segments(MockSegmentStore::new());
        assert_eq!(
            fields(segments.add_members(&tenant(), id, &many).await),
            ["contact_ids"]
        );
        assert_eq!(
            fields(segments.remove_members(&tenant(), id, &many).await),
            ["contact_ids"]
        );
    }

    #[tokio::test]
    async fn segment_update_sends_only_given_fields() {
        let mut store = MockSegmentStore::new();
        store
            .expect_update()
            .withf(|_, _, change, _| {
                let cleared = SegmentChange {
                    description: Some(None),
                    filters: Some(AudienceFilters::default()),
                    ..SegmentChange::default()
                };
                *change == cleared
            })
            .returning(|_, _, _, _| Ok(None));
        let input = SegmentInput {
            description: Some(None),
            filters: Some(None),
            ..SegmentInput::default()
        };
        let missing = segments(store).update(&tenant(), SegmentId(Uuid::nil()), input).await;
        assert!(matches!(missing, Err(SegmentError::NotFound)));
    }

    #[tokio::test]
    async fn unknown_references_are_reported_by_path() {
        let mut store = MockSegmentStore::new();
        store
            .expect_unknown_references()
            .times(3)
            .withf(|_, references| references.len() == 1)
            .returning(|_, references| Ok(vec![references[0].0.clone()]));
        let segments = segments(store);
        let filters: AudienceFilters =
            serde_json::from_value(json!({ "all": [{ "not": { "tag": { "id": Uuid::nil() } } }] })).unwrap();
        let input = || SegmentInput {
            name: Some("VIP".into()),
            filters: Some(Some(filters.clone())),
            ..SegmentInput::default()
        };
        let id = SegmentId(Uuid::nil());
        let path = ["filters.all[0].not.tag.id"];
        assert_eq!(fields(segments.create(&tenant(), input()).await), path);
        assert_eq!(fields(segments.update(&tenant(), id, input()).await), path);
        assert_eq!(fields(segments.preview(&tenant(), filters, &[]).await), path);
    }

    #[tokio::test]
    async fn preview_checks_filters_and_members() {
        let mut store = MockSegmentStore::new();
        store
            .expect_preview()
            .returning(|_, _, _, _| Ok(PreviewOutcome::Unknown(vec![1])));
        let segments = segments(store);
        let wrong: AudienceFilters = serde_json::from_value(json!({ "all": [{ "age": 1 }] })).unwrap();
        let many = vec![ContactId(Uuid::nil()); 1001];
        let refused = segments.preview(&tenant(), wrong, &many).await;
        assert_eq!(fields(refused), ["contact_ids", "filters.all[0].age"]);
        let unknown = segments
            .preview(&tenant(), AudienceFilters::default(), &many[..2])
            .await;
        assert_eq!(fields(unknown), ["contact_ids[1]"]);
    }

    #[tokio::test]
    async fn unknown_contacts_are_reported_by_position() {
        let mut store = MockSegmentStore::new();
        store
            .expect_add_members()
            .returning(|_, _, _| Ok(MembersAdded::Unknown(vec![0, 2])));
        let ids = [ContactId(Uuid::nil()); 3];
        let refused = segments(store)
            .add_members(&tenant(), SegmentId(Uuid::nil()), &ids)
            .await;
        assert_eq!(fields(refused), ["contact_ids[0]", "contact_ids[2]"]);
    }
}
