//! Ports of WhatsApp: the stores of numbers and of uploaded files.

use async_trait::async_trait;
use time::Duration;
use uuid::Uuid;

use super::StoredProfile;
use crate::messaging::ProfileKey;
use crate::shared::{AccountId, CursorPage, CursorQuery, Event, ProfileId, RowOutcome, StoreError, UpdateOutcome};

/// Connected numbers. Every method MUST see only the rows of the given account.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ProfileStore: Send + Sync {
    /// Newest first, by id. The cursor is the last item's id.
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<StoredProfile>, StoreError>;

    async fn find(&self, account: AccountId, id: ProfileId) -> Result<Option<StoredProfile>, StoreError>;

    /// The account's default number: of the verified numbers the one that was connected first, or without any verified
    /// number the first of all.
    async fn default_profile(&self, account: AccountId) -> Result<Option<StoredProfile>, StoreError>;

    /// Inserts the number, and an entry in the directory by which callbacks find the account, together with the
    /// events. `Duplicate { field: "phone_number_id" }` if the account already has that number.
    async fn insert(&self, account: AccountId, profile: &StoredProfile, events: &[Event]) -> Result<(), StoreError>;

    /// Replaces every field if the stored version equals the version of `profile`, and adds new ids to the directory,
    /// together with the events. The verification and the number's values are replaced only if the credentials version
    /// of `profile` is greater than the stored one; a check with the earlier credentials then records nothing. Fails
    /// like `insert`.
    async fn update(
        &self,
        account: AccountId,
        profile: &StoredProfile,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError>;

    /// Deletes a profile and appends the events. Appends none if the profile does not exist. The directory entry stays;
    /// readers skip it.
    async fn delete(&self, account: AccountId, id: ProfileId, events: &[Event]) -> Result<RowOutcome, StoreError>;
}

/// WhatsApp's media ids of the files that were uploaded for a number.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait FileIdStore: Send + Sync {
    /// The stored id of the file with a path, or none if it does not exist or has expired.
    async fn find(&self, account: AccountId, phone_number_id: &str, path: &str) -> Result<Option<String>, StoreError>;

    /// Stores an id for `ttl`, and replaces an older one.
    async fn store(
        &self,
        account: AccountId,
        phone_number_id: &str,
        path: &str,
        id: &str,
        ttl: Duration,
    ) -> Result<(), StoreError>;
}

/// The phone numbers of people whom a number reaches by user id.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait KnownPhones: Send + Sync {
    /// The phone number of the contact whom the number addresses by this user id, if it is known by now.
    async fn phone_of(&self, number: ProfileKey, user_id: &str) -> Result<Option<String>, StoreError>;

    /// Notes that a message whose address was a user id is sent to a phone number. `message` is the id that WhatsApp
    /// gets with it. Changes nothing if no stored message has it, as for a test send.
    async fn note_sent_to_phone(&self, account: AccountId, message: Uuid) -> Result<(), StoreError>;
}
