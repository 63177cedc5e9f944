//! The use cases of contacts and tags.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::change::validate_draft;
use super::limits::merge_rule;
use super::{
    Contact, ContactChange, ContactDetails, ContactError, ContactInput, ContactQuery, ContactStore, Import,
    ImportFormat, Tag, TagStore, UpsertOutcome, upsert,
};
use crate::shared::{
    AccountId, Clock, ContactId, CursorPage, CursorQuery, FieldErrors, Ids, TagId, Tenant, retry_on_conflict, text,
};

const TAG_NAME_CHARS: usize = 100;
const COLOR_CHARS: usize = 32;

pub struct Contacts {
    store: Arc<dyn ContactStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl Contacts {
    pub fn new(store: Arc<dyn ContactStore>, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Self {
        Self { store, clock, ids }
    }

    /// Lists the account's contacts, newest first.
    pub async fn list(&self, tenant: &Tenant, query: &ContactQuery) -> Result<CursorPage<Contact>, ContactError> {
        Ok(self.store.list(tenant.account_id, query).await?)
    }

    pub async fn get(&self, tenant: &Tenant, id: ContactId) -> Result<Contact, ContactError> {
        self.store
            .find(tenant.account_id, id)
            .await?
            .ok_or(ContactError::NotFound)
    }

    /// Finds a contact with the fields that lists omit.
    pub async fn details(&self, tenant: &Tenant, id: ContactId) -> Result<ContactDetails, ContactError> {
        let found = self.store.details(tenant.account_id, id).await?;
        found.ok_or(ContactError::NotFound)
    }

    pub async fn create(&self, tenant: &Tenant, input: ContactInput) -> Result<Contact, ContactError> {
        let tags = input.tag_ids.clone().unwrap_or_default();
        let draft = validate_draft(input)?;
        let id = self.ids.next().into();
        Ok(self
            .store
            .insert(tenant.account_id, id, &draft, &tags, self.clock.now())
            .await?)
    }

    /// Changes the given fields of a contact. Concurrent changes of other fields are preserved.
    pub async fn update(
        &self,
        tenant: &Tenant,
        id: ContactId,
        input: ContactInput,
    ) -> Result<ContactDetails, ContactError> {
        // Invalid input takes precedence over `NotFound`.
        let change = ContactChange::from_input(input)?;
        retry_on_conflict(async || {
            let mut version = None;
            if change.changes_address() {
                let stored = self.get(tenant, id).await?;
                change.check_address(&stored)?;
                version = Some(stored.version);
            }
            let (account, now) = (tenant.account_id, self.clock.now());
            let written = self.store.update(account, id, version, &change, now).await?;
            written.or_missing(ContactError::NotFound)
        })
        .await
    }

    /// Replaces a contact's tags.
    pub async fn set_tags(&self, tenant: &Tenant, id: ContactId, tags: Vec<TagId>) -> Result<Contact, ContactError> {
        let input = ContactInput {
            tag_ids: Some(tags),
            ..ContactInput::default()
        };
        Ok(self.update(tenant, id, input).await?.contact)
    }

    pub async fn delete(&self, tenant: &Tenant, id: ContactId) -> Result<(), ContactError> {
        self.store
            .delete(tenant.account_id, id, self.clock.now())
            .await?
            .or_missing(ContactError::NotFound)
    }

    /// Upserts a contact that another system reports, identified by its phone number or user id. Returns true if it is
    /// new.
    pub async fn upsert(&self, account: AccountId, fields: &Map<String, Value>) -> Result<bool, ContactError> {
        let contact = upsert::parse(fields)?;
        let id = self.ids.next().into();
        let now = self.clock.now();
        match self.store.upsert_one(account, id, &contact, now).await? {
            UpsertOutcome::Created => Ok(true),
            UpsertOutcome::Updated => Ok(false),
            UpsertOutcome::AttributesExceeded => Err(FieldErrors::one("attributes", merge_rule()).into()),
        }
    }

    /// Starts the import of a file.
    pub fn import(&self, tenant: &Tenant, format: ImportFormat) -> Import {
        Import::new(self.store.clone(), self.clock.clone(), self.ids.clone(), tenant, format)
    }
}

pub struct Tags {
    store: Arc<dyn TagStore>,
    ids: Arc<dyn Ids>,
}

impl Tags {
    pub fn new(store: Arc<dyn TagStore>, ids: Arc<dyn Ids>) -> Self {
        Self { store, ids }
    }

    /// Lists the account's tags, newest first.
    pub async fn list(&self, tenant: &Tenant, query: &CursorQuery) -> Result<CursorPage<Tag>, ContactError> {
        Ok(self.store.list(tenant.account_id, query).await?)
    }

    pub async fn create(&self, tenant: &Tenant, name: &str, color: Option<String>) -> Result<Tag, ContactError> {
        let name = text::sanitize(name);
        let mut errors = FieldErrors::default();
        if name.is_empty() || name.chars().count() > TAG_NAME_CHARS {
            errors.add("name", "must have 1 to 100 characters");
        }
        if color.as_ref().is_some_and(|color| color.chars().count() > COLOR_CHARS) {
            errors.add("color", "must have at most 32 characters");
        }
        errors.into_result()?;
        let tag = Tag {
            id: self.ids.next().into(),
            name,
            color,
        };
        self.store.insert(tenant.account_id, &tag).await?;
        Ok(tag)
    }

    /// Deletes a tag and removes it from every contact.
    pub async fn delete(&self, tenant: &Tenant, id: TagId) -> Result<(), ContactError> {
        self.store
            .delete(tenant.account_id, id)
            .await?
            .or_missing(ContactError::NotFound)
    }
}

#[cfg(test)]
mod tests;
