//! The run content of campaigns, frozen when the run starts: one row per campaign, written once.

use diesel::OptionalExtension;
use diesel::prelude::{ExpressionMethods, QueryDsl};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{Campaign, CampaignStatus, RunContent, may_be_sent};
use recado_domain::shared::{AccountId, CampaignId};
use recado_domain::templates::Template;
use serde_json::Value;

use crate::errors::{DbResult, corrupt, failed};
use crate::schema::campaign_run_contents;
use crate::templates;

/// A campaign and its template.
pub(super) struct Contents {
    pub(super) campaign: Campaign,
    pub(super) template: Option<Template>,
    /// Whether both are as they were when the run started.
    pub(super) frozen: bool,
}

async fn find(conn: &mut AsyncPgConnection, campaign: &Campaign) -> DbResult<Option<RunContent>> {
    // Nothing is frozen before the start.
    if campaign.executed_at.is_none() {
        return Ok(None);
    }
    let content: Option<Value> = campaign_run_contents::table
        .find((campaign.account_id.0, campaign.id.0))
        .select(campaign_run_contents::content)
        .get_result(conn)
        .await
        .optional()?;
    Ok(content.map(serde_json::from_value).transpose().map_err(corrupt)?)
}

/// Freezes the content of a run, unless it is already frozen.
pub(super) async fn freeze(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
    content: &RunContent,
) -> DbResult<()> {
    let insert = diesel::insert_into(campaign_run_contents::table).values((
        campaign_run_contents::account_id.eq(account.0),
        campaign_run_contents::campaign_id.eq(id.0),
        campaign_run_contents::content.eq(serde_json::to_value(content).map_err(failed)?),
        campaign_run_contents::body_text.eq(&content.template.body_text),
    ));
    let key = (campaign_run_contents::account_id, campaign_run_contents::campaign_id);
    insert.on_conflict(key).do_nothing().execute(conn).await?;
    Ok(())
}

/// Returns the campaign and its template as they were when the run started, or as they are now if none has started. A
/// deleted template is used only for a run that has started.
pub(super) async fn read(conn: &mut AsyncPgConnection, campaign: Campaign) -> DbResult<Contents> {
    let content = find(conn, &campaign).await?;
    let template = match campaign.template_id {
        Some(id) => templates::find(conn, campaign.account_id, id, content.is_some()).await?,
        None => None,
    };
    Ok(match (content, template) {
        (Some(content), Some(template)) => {
            let (campaign, template) = content.restore(campaign, template);
            Contents {
                campaign,
                template: Some(template),
                frozen: true,
            }
        }
        (_, template) => Contents {
            campaign,
            template,
            frozen: false,
        },
    })
}

/// [`read`] for the worker of a run. A run that an older version started without frozen content gets the
/// current campaign and template, even a deleted one, and freezes them.
pub(super) async fn read_or_freeze(conn: &mut AsyncPgConnection, campaign: Campaign) -> DbResult<(Campaign, Template)> {
    let (account, id) = (campaign.account_id, campaign.id);
    let contents = read(conn, campaign).await?;
    if let (true, Some(template)) = (contents.frozen, contents.template) {
        return Ok((contents.campaign, template));
    }
    let campaign = contents.campaign;
    let template = match campaign.template_id {
        Some(template) => templates::find(conn, account, template, true).await?,
        None => None,
    };
    let template = template.ok_or_else(|| corrupt(format!("the run of {id} has no template")))?;
    if campaign.status == CampaignStatus::Sending && campaign.executed_at.is_some() {
        freeze(conn, account, id, &RunContent::of(&campaign, &template)).await?;
    }
    Ok((campaign, template))
}

/// Locks the template and returns whether a retry may send the run's content again. Freezes the content of a run that
/// an older version started without frozen content.
pub(super) async fn freeze_for_retry(conn: &mut AsyncPgConnection, campaign: &Campaign) -> DbResult<bool> {
    let frozen = find(conn, campaign).await?.is_some();
    let template = match campaign.template_id {
        Some(id) => templates::find_locked(conn, campaign.account_id, id, frozen).await?,
        None => None,
    };
    let Some(template) = template.filter(|template| may_be_sent(template, frozen)) else {
        return Ok(false);
    };
    if !frozen {
        freeze(
            conn,
            campaign.account_id,
            campaign.id,
            &RunContent::of(campaign, &template),
        )
        .await?;
    }
    Ok(true)
}
