//! The page of a campaign's sends, also of an archived campaign.

use recado_domain::campaigns::{CampaignSend, SendsPage};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{Page, PageQuery, timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use time::OffsetDateTime;

/// A page of sends. For an archived campaign it is empty.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CampaignSendsPage")]
pub(super) struct SendsPageResponse<S> {
    #[serde(flatten)]
    page: Page<S>,
    /// The archive that has the campaign's sends. Only for an archived campaign.
    #[serde(skip_serializing_if = "Option::is_none")]
    archived: Option<ArchivedResponse>,
}

/// When and how many sends were archived.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ArchivedSends")]
struct ArchivedResponse {
    /// When the campaign was archived.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    at: OffsetDateTime,
    /// The number of sends in the archive.
    #[schemars(example = 1840)]
    sends: i64,
}

impl<S: From<CampaignSend>> SendsPageResponse<S> {
    pub(super) fn of(page: SendsPage) -> Self {
        match page {
            SendsPage::Stored(page) => Self {
                page: page.map(S::from),
                archived: None,
            },
            SendsPage::Archived { at, sends } => Self {
                page: Page::new(PageQuery::new(None, None, 1, 1), vec![], 0),
                archived: Some(ArchivedResponse { at, sends }),
            },
        }
    }
}
