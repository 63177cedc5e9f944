//! Ports of verification: the calls to WhatsApp, the stored verifications, and the held inbound messages.

use async_trait::async_trait;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use time::{Duration, OffsetDateTime};

use super::{NumberFacts, VerificationRecord, VerificationState};
use crate::messaging::{ErrorClass, ProfileKey, WhatsappCredentials};
use crate::shared::{AccountId, Event, ProfileId, Sealed, StoreError, UpdateOutcome, redacted_debug, string_enum};

/// Why WhatsApp's answer to a check is not the expected one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GraphError {
    /// A time-out, a lost connection, HTTP 429 or 5xx, or an answer that is not of the contract (also a 404 without an
    /// error object).
    #[error("WhatsApp could not be asked: {0}")]
    Unavailable(String),
    /// An error object of WhatsApp. `message` MUST NOT contain the token.
    #[error("WhatsApp refused (code {code}): {message}")]
    Refused {
        code: i64,
        class: ErrorClass,
        message: String,
    },
    /// The server has no URL of WhatsApp.
    #[error("WhatsApp is not configured")]
    NotConfigured,
}

/// The answer to `GET /{phone_number_id}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadNumber {
    pub id: String,
    /// Words in lower case, `max_messages_per_second` set (`NumberFacts::with_max_rate`).
    pub facts: NumberFacts,
}

/// A page of `GET /{waba_id}/phone_numbers`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumberPage {
    pub ids: Vec<String>,
    /// The cursor of the next page. None on the last page.
    pub next: Option<String>,
}

string_enum! {
    /// Whether WhatsApp lets an entity send.
    CanSend {
        Available = "available",
        Limited = "limited",
        Blocked = "blocked",
        Unknown = "unknown",
    }
}

/// An error of an entity of a number's health.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthError {
    /// WhatsApp's error code.
    pub code: Option<i64>,
    /// WhatsApp's description.
    pub description: Option<String>,
    /// WhatsApp's proposal.
    pub solution: Option<String>,
}

/// An entity on which sending from a number depends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthEntity {
    /// `phone_number`, `waba`, `business` or `app`.
    #[serde(rename = "type")]
    pub kind: String,
    /// WhatsApp's id of the entity.
    pub id: Option<String>,
    /// Whether it may send.
    pub can_send: CanSend,
    /// Why it is blocked.
    pub errors: Vec<HealthError>,
    /// Why it is limited.
    pub info: Vec<String>,
}

/// WhatsApp's answer about a number's health. Bounded: the gateway reads at most 20 entities, 20 errors and texts
/// each, and 300 characters a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    pub can_send: CanSend,
    pub entities: Vec<HealthEntity>,
}

impl HealthReport {
    /// The id of the business portfolio.
    pub fn portfolio_id(&self) -> Option<&str> {
        let business = self.entities.iter().find(|entity| entity.kind == "business")?;
        business.id.as_deref()
    }
}

/// The calls to WhatsApp that verify a number. Every call has a timeout and a bounded response, and is not retried.
/// Errors with HTTP 429 or 5xx are `Unavailable`, whatever their code.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait VerificationGateway: Send + Sync {
    /// `GET /{phone_number_id}`. After code 100 it asks again for the fields that every version has, because a field
    /// that a version lacks fails the whole call.
    async fn number(&self, credentials: &WhatsappCredentials) -> Result<ReadNumber, GraphError>;

    /// A page of at most 100 numbers of the business account. `after` is `next` of the previous page.
    async fn business_numbers<'a>(
        &self,
        credentials: &WhatsappCredentials,
        after: Option<&'a str>,
    ) -> Result<NumberPage, GraphError>;

    /// Subscribes the token's app to the business account's callbacks. Repeating it is harmless. An answer without
    /// `success: true` is `Unavailable`.
    async fn subscribe(&self, credentials: &WhatsappCredentials) -> Result<(), GraphError>;

    /// Registers the number. MUST be called once for each PIN that a person entered: repeated tries lock the number.
    async fn register(&self, credentials: &WhatsappCredentials, pin: &SecretString) -> Result<(), GraphError>;

    /// Asks for the number's health.
    async fn health(&self, credentials: &WhatsappCredentials) -> Result<HealthReport, GraphError>;
}

/// A profile that has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberHolder {
    pub account_id: AccountId,
    pub profile_id: ProfileId,
    pub state: VerificationState,
}

/// A changed verification.
#[derive(Clone, Debug, PartialEq)]
pub struct VerificationUpdate {
    /// The versions of the profile on which the decision was made.
    pub credentials_version: i64,
    pub verification_version: i64,
    pub record: VerificationRecord,
    /// What is known of the number now.
    pub number: NumberFacts,
}

/// What a profile did last, and WhatsApp's last answer about its health.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberActivity {
    pub health: Option<(HealthReport, OffsetDateTime)>,
    /// When the profile last received a message.
    pub last_inbound_at: Option<OffsetDateTime>,
    /// When WhatsApp last called back about the number.
    pub last_callback_at: Option<OffsetDateTime>,
    /// When WhatsApp last accepted a message of the profile.
    pub last_accepted_at: Option<OffsetDateTime>,
    /// The service messages of the current month (UTC).
    pub service_messages: i64,
    /// The database's time.
    pub now: OffsetDateTime,
}

/// The verifications of profiles.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait VerificationStore: Send + Sync {
    /// Claims at most `limit` profiles of active accounts whose check is due, most overdue first, for `lease`. A check
    /// that is never recorded is due again when the lease has expired.
    async fn claim_due(&self, limit: i64, lease: Duration) -> Result<Vec<ProfileKey>, StoreError>;

    /// Makes the profile's check due now, unless it was checked within the last ten seconds or is being checked.
    async fn request_check(&self, account: AccountId, id: ProfileId) -> Result<(), StoreError>;

    /// Replaces verification and number if both versions are still those of the update, and ends the claim, together
    /// with the events. `Stale`: another check, an update of the number or a change of the credentials came first.
    /// Increments `verification_version`.
    async fn record(
        &self,
        account: AccountId,
        id: ProfileId,
        update: &VerificationUpdate,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError>;

    /// Stores WhatsApp's answer about the profile's health, if the credentials are still the ones it was asked with.
    async fn record_health(
        &self,
        account: AccountId,
        id: ProfileId,
        credentials_version: i64,
        report: &HealthReport,
    ) -> Result<(), StoreError>;

    /// None if the profile does not exist.
    async fn activity(&self, account: AccountId, id: ProfileId) -> Result<Option<NumberActivity>, StoreError>;

    /// Notes a message that WhatsApp accepted from the profile. `service_messages`: how many of them were service
    /// messages. Without any it is written at most every ten seconds.
    async fn note_accepted(&self, account: AccountId, id: ProfileId, service_messages: i64) -> Result<(), StoreError>;
}

/// The profiles of all accounts, by their number.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait NumberHolderStore: Send + Sync {
    /// The profiles of all accounts that have the number, in the order of their accounts: few, usually one.
    async fn holders_of_number(&self, phone_number_id: &str) -> Result<Vec<NumberHolder>, StoreError>;

    /// The verified profiles of all accounts with a number of this business account, in the order of their accounts.
    async fn verified_of_business(&self, waba_id: &str) -> Result<Vec<NumberHolder>, StoreError>;

    /// At most `limit` verified profiles to which held messages must still be given.
    async fn waiting_for_held(&self, limit: i64) -> Result<Vec<ProfileKey>, StoreError>;

    /// Ends the wait for held messages of a verified profile, if it still waits since `held_since`.
    async fn end_hold(&self, account: AccountId, id: ProfileId, held_since: OffsetDateTime) -> Result<(), StoreError>;

    /// Notes a callback about the number, for the verified profiles that have it. Written at most every ten seconds.
    async fn note_callback(&self, phone_number_id: &str) -> Result<(), StoreError>;
}

/// An inbound event to hold.
#[derive(Clone, PartialEq, Eq)]
pub struct HeldMessage {
    /// A hash of the number and of WhatsApp's message id, or of the event if it has none. Each key is held once.
    pub key: Vec<u8>,
    /// The event, encrypted.
    pub event: Sealed,
}

redacted_debug!(HeldMessage {});

/// A held inbound event.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredHeldMessage {
    /// The order of arrival.
    pub seq: i64,
    /// The key under which it is held.
    pub key: Vec<u8>,
    pub event: Sealed,
}

redacted_debug!(StoredHeldMessage { seq });

/// What a purge removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgedHeld {
    pub removed: u64,
    /// How many of them were given to no account.
    pub unclaimed: u64,
}

/// Inbound events of numbers that some profile has without being verified. They belong to no account until a verified
/// profile takes them.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait HeldMessageStore: Send + Sync {
    /// Holds the events of a number, each key once. `given`: a verified profile received them too.
    async fn hold(&self, phone_number_id: &str, messages: &[HeldMessage], given: bool) -> Result<(), StoreError>;

    /// At most `limit` events of the number that arrived at or after `since`, in the order of their arrival, after the
    /// position `after`.
    async fn held_since(
        &self,
        phone_number_id: &str,
        since: OffsetDateTime,
        after: i64,
        limit: i64,
    ) -> Result<Vec<StoredHeldMessage>, StoreError>;

    /// Marks events of the number as given to a verified profile.
    async fn mark_given(&self, phone_number_id: &str, seqs: &[i64]) -> Result<(), StoreError>;

    /// Removes at most `limit` events that are older than `ttl`.
    async fn purge(&self, ttl: Duration, limit: i64) -> Result<PurgedHeld, StoreError>;
}
