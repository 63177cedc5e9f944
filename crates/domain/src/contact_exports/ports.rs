//! Ports of the exports of contacts.

use async_trait::async_trait;
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::ContactExport;
use crate::media::MessageFilePath;
use crate::retention::StoredArchive;
use crate::shared::{AccountId, CampaignId, ContactId, Event, ExportId, RowOutcome, StoreError, string_enum};

string_enum! {
    /// The parts of an export, in the order in which the file has them.
    ExportPart {
        Contact = "contact",
        Identity = "identity",
        Tag = "tag",
        Segment = "segment",
        RfmScore = "rfm_score",
        Conversation = "conversation",
        Message = "message",
        MessageFile = "message_file",
        DirectMessage = "direct_message",
        CampaignSend = "campaign_send",
        Order = "order",
        Cart = "cart",
        MetricEvent = "metric_event",
        /// One row with the totals of all metrics. They outlive the events.
        MetricTotals = "metric_totals",
        Link = "link",
    }
}

/// The last row of a page, by time and id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportedRow {
    pub at: OffsetDateTime,
    pub id: Uuid,
}

/// Rows of a part, with the position of the last one. No rows: the part has no more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExportPage {
    pub rows: Vec<Value>,
    pub last: Option<ExportedRow>,
}

/// The receipts of an account.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ContactExportStore: Send + Sync {
    /// Stores a receipt with its events, and makes it due. `Missing`: the account has no such contact, deleted or
    /// not, or it is erased.
    async fn insert(
        &self,
        account: AccountId,
        export: &ContactExport,
        events: &[Event],
    ) -> Result<RowOutcome, StoreError>;

    /// A receipt that has not expired.
    async fn find(&self, account: AccountId, id: ExportId) -> Result<Option<ContactExport>, StoreError>;

    /// The file of an export that has not expired. None also while it is written.
    async fn file(
        &self,
        account: AccountId,
        id: ExportId,
    ) -> Result<Option<(MessageFilePath, StoredArchive)>, StoreError>;
}

/// An export that a worker has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportClaim {
    pub account_id: AccountId,
    pub id: ExportId,
    /// The contact, and all that are the same person.
    pub contacts: Vec<ContactId>,
    /// The key of the file, and the fencing token.
    pub key: Uuid,
    /// The keys of attempts that did not end.
    pub abandoned: Vec<Uuid>,
}

/// The verified archive of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedArchive {
    pub campaign_id: CampaignId,
    pub campaign_name: String,
    pub path: MessageFilePath,
    /// The size of the compressed file.
    pub size: u64,
}

/// The exports of all accounts, for their worker. The database's clock decides when a lease expires.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ContactExportQueue: Send + Sync {
    /// Claims the export that has been due longest.
    async fn claim(&self, key: Uuid, lease: Duration) -> Result<Option<ExportClaim>, StoreError>;

    /// Extends the lease. Returns false if the claim is not current any more.
    async fn renew(&self, claim: &ExportClaim, lease: Duration) -> Result<bool, StoreError>;

    /// The rows of a part of one contact after a position, by time and id. Sends of archived campaigns are not among them.
    async fn page(
        &self,
        claim: &ExportClaim,
        contact: ContactId,
        part: ExportPart,
        after: Option<ExportedRow>,
        limit: i64,
    ) -> Result<ExportPage, StoreError>;

    /// At most `limit` archives that may have sends to the contacts, after a campaign, in order of the campaigns. It MUST be
    /// called after the sends were read: a send that left meanwhile is in an archive.
    async fn archives(
        &self,
        claim: &ExportClaim,
        after: CampaignId,
        limit: i64,
    ) -> Result<Vec<ExportedArchive>, StoreError>;

    /// Records the written file. Returns false if the claim is not current any more.
    async fn complete(&self, claim: &ExportClaim, file: StoredArchive) -> Result<bool, StoreError>;

    /// The keys of the files of at most `limit` expired exports.
    async fn expired(&self, limit: i64) -> Result<Vec<(AccountId, ExportId, Vec<Uuid>)>, StoreError>;

    /// Deletes an expired export whose files were deleted.
    async fn delete(&self, account: AccountId, id: ExportId) -> Result<(), StoreError>;
}
