//! The preview of a run, read in one read-only transaction.

use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use recado_domain::campaigns::{
    Command, PreviewFacts, PreviewRecipient, RetryReport, RetryRequest, required_placeholders, transition,
};
use recado_domain::messaging::ErrorCodes;
use recado_domain::shared::{AccountId, CampaignId};

use super::selection::{Addressing, Selection};
use super::{audience, facts, retries, usage};
use crate::errors::DbResult;

/// One snapshot for all statements of the transaction, and no writes.
const READ_ONLY_SNAPSHOT: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY";

/// Reads the facts of a preview, with the first `first` recipients. MUST be the first statement of a transaction. The
/// number of statements is constant.
pub(super) async fn preview_facts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
    first: i64,
    codes: &ErrorCodes,
) -> DbResult<Option<PreviewFacts>> {
    conn.batch_execute(READ_ONLY_SNAPSHOT).await?;
    let Some(facts) = facts::facts(conn, account, id).await? else {
        return Ok(None);
    };
    let audience = facts.campaign.audience();
    let category = facts.template.as_ref().map(|template| template.category);
    let addressing = Addressing::of(conn, &facts.campaign, category, facts.profile_id).await?;
    let selection = Selection::of(conn, &facts.campaign, &audience, addressing).await?;
    let mut first_recipients = Vec::new();
    for row in audience::first_recipients(conn, account, &selection, first).await? {
        first_recipients.push(PreviewRecipient {
            id: row.id.into(),
            recipient: row.try_into()?,
        });
    }
    let month = usage::this_month(conn).await?;
    let retry = match transition(facts.campaign.status, Command::Retry) {
        Ok(_) => retries::forecast(conn, account, id, None, &RetryRequest::default(), codes).await?,
        Err(_) => RetryReport::default(),
    };
    let has_budget = facts.campaign.budget.is_some();
    let costs = audience::cost_facts(conn, account, &selection, has_budget, facts.now).await?;
    let counts = audience::count(conn, account, &selection, &required_placeholders(&facts)).await?;
    Ok(Some(PreviewFacts {
        recipients_by: counts.recipients_by,
        unreachable: counts.unreachable,
        first: first_recipients,
        deleted_segment: audience::deleted_segment(conn, account, &audience).await?,
        empty: counts.empty_placeholders,
        used: usage::used(conn, account, month).await?,
        retry,
        costs,
        facts,
    }))
}
