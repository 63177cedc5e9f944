//! The recipients to whom a run still has to start messages, and their rates: whether a budget can pay for them.

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::campaigns::{Campaign, CampaignRefusal, QueuedRun, RemainingCosts};
use recado_domain::costs::COUNTRY_PREFIX;
use time::OffsetDateTime;

use super::claims::WHOLE_RUN_TIMEOUT;
use super::send_ids::id_of_campaign;
use crate::costs::{CountryRow, country_recipients, has_card};
use crate::errors::{DbResult, parse_enum};
use crate::filters::HAS_OPTED_OUT;
use crate::sql::{FENCE, Sql, sql};
use crate::whatsapp::USER_ID_SCOPE;

#[derive(QueryableByName)]
struct TemplateRow {
    #[diesel(sql_type = Text)]
    category: String,
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

/// Reads every send of the campaign, and the contacts of those that are left.
fn remaining_recipients<'a>(run: QueuedRun) -> Sql<'a> {
    sql(format!(
        include_str!("remaining_recipients.sql"),
        ids = id_of_campaign!("campaign_sends.id"),
        prefix = COUNTRY_PREFIX,
        has_opted_out = HAS_OPTED_OUT,
        scope = USER_ID_SCOPE,
        fence = FENCE,
    ))
    .bind(run.account_id)
    .bind(run.campaign_id)
}

/// None: the campaign does not exist, or has no template.
pub(super) async fn remaining_costs(conn: &mut AsyncPgConnection, run: QueuedRun) -> DbResult<Option<RemainingCosts>> {
    let template: Option<TemplateRow> = sql("SELECT t.category, now() AS now FROM campaigns c
         JOIN message_templates t ON t.account_id = c.account_id AND t.id = c.template_id
         WHERE c.account_id = $1 AND c.id = $2 AND c.deleted_at IS NULL")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .get_result(&mut *conn)
    .await
    .optional()?;
    let Some(TemplateRow { category, now }) = template else {
        return Ok(None);
    };
    conn.batch_execute(WHOLE_RUN_TIMEOUT).await?;
    let rows: Vec<CountryRow> = remaining_recipients(run).load(&mut *conn).await?;
    let has_card = has_card(conn).await?;
    Ok(Some(RemainingCosts {
        category: parse_enum(&category)?,
        costs: country_recipients(conn, rows, has_card, now).await?,
        now,
    }))
}

/// Refuses the retry of a campaign with a budget if a recipient has no rate in its currency. A simulated run costs
/// nothing.
pub(super) async fn check_rates(
    conn: &mut AsyncPgConnection,
    campaign: &Campaign,
) -> DbResult<Option<CampaignRefusal>> {
    let Some(budget) = campaign.payable_budget() else {
        return Ok(None);
    };
    let run = QueuedRun {
        account_id: campaign.account_id,
        campaign_id: campaign.id,
    };
    let remaining = remaining_costs(conn, run).await?;
    Ok(remaining.and_then(|remaining| remaining.check(budget).err()))
}
