//! Writes the result of a template synchronization. Templates are passed as JSON whose fields have the names of the
//! columns.

use diesel::pg::Pg;
use diesel::prelude::QueryableByName;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, Event, StoreError, timestamp};
use recado_domain::templates::{
    SyncReport, SyncedTemplate, Template, changed_notification, has_other_category, status_changed_event,
};
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use super::campaigns::pause_template;
use super::rows::Content;
use crate::errors::{DbResult, parse_enum};
use crate::outbox;
use crate::schema::message_templates;
use crate::sql::{key_rows, sql};

/// Templates per statement.
const BATCH_SIZE: usize = 500;

pub(super) async fn write(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    templates: &[SyncedTemplate],
) -> DbResult<SyncReport> {
    let mut report = SyncReport::default();
    for batch in templates.chunks(BATCH_SIZE) {
        let (mut new, mut changed) = (Vec::new(), Vec::new());
        for template in batch {
            match template {
                SyncedTemplate::New(template) => new.push(template),
                SyncedTemplate::Changed { template, .. } => changed.push(template),
            }
        }
        report.created += insert(conn, account, &new).await?;
        let before = update(conn, account, &changed).await?;
        report.updated += before.len();
        outbox::append(conn, account, &events(&changed, &before)?).await?;
    }
    // Pause runs last: a concurrent start finds the changed template and is refused, or it committed before and its run
    // is paused here.
    for template in templates {
        if let SyncedTemplate::Changed {
            template,
            pause_reason: Some(reason),
            ..
        } = template
        {
            pause_template(conn, account, template.id, reason).await?;
        }
    }
    Ok(report)
}

#[derive(Serialize)]
struct SyncedRow<'a> {
    id: Uuid,
    #[serde(flatten)]
    content: Content<'a>,
    #[serde(with = "timestamp")]
    created_at: OffsetDateTime,
}

fn rows(templates: &[&Template]) -> Value {
    let rows = templates.iter().map(|&template| SyncedRow {
        id: template.id.0,
        content: template.into(),
        created_at: template.created_at,
    });
    rows.map(|row| json!(row)).collect()
}

async fn insert(conn: &mut AsyncPgConnection, account: AccountId, templates: &[&Template]) -> DbResult<usize> {
    if templates.is_empty() {
        return Ok(0);
    }
    let written = sql(
        "INSERT INTO message_templates (account_id, id, name, category, language, template_type, parameter_format, header_type,
           header_text, header_media_url, body_text, footer_text, buttons, variables, carousel_cards, profile_id,
           meta_template_id, meta_status, rejection_reason, quality_score, unsupported, correct_category,
           limited_time_offer, message_send_ttl_seconds, created_at, updated_at)
         SELECT $1, id, name, category, language, template_type, parameter_format, header_type,
           header_text, header_media_url, body_text, footer_text, buttons, variables, carousel_cards, profile_id,
           meta_template_id, meta_status, rejection_reason, quality_score, unsupported, correct_category,
           limited_time_offer, message_send_ttl_seconds, created_at, updated_at
         FROM jsonb_populate_recordset(NULL::message_templates, $2)
         ON CONFLICT (account_id, name, language) WHERE deleted_at IS NULL DO NOTHING",
    )
    .bind(account)
    .bind(rows(templates))
    .execute(conn)
    .await?;
    Ok(written)
}

/// An updated template with its previous category and status.
#[derive(QueryableByName)]
#[diesel(table_name = message_templates, check_for_backend(Pg))]
struct PreviousRow {
    id: Uuid,
    category: String,
    meta_status: String,
}

/// The webhook events of the updated templates, and the notifications about another category.
fn events(changed: &[&Template], before: &[PreviousRow]) -> Result<Vec<Event>, StoreError> {
    let mut changes = Vec::with_capacity(before.len());
    for row in before {
        if let Some(template) = changed.iter().find(|template| template.id.0 == row.id) {
            changes.push((parse_enum(&row.meta_status)?, parse_enum(&row.category)?, *template));
        }
    }
    let notifications = changes
        .iter()
        .filter(|(_, category, template)| has_other_category(*category, template))
        .map(|(_, category, template)| changed_notification(*category, template));
    let mut events: Vec<Event> = notifications.collect();
    events.push(status_changed_event(changes));
    Ok(events)
}

/// Writes only what WhatsApp decides, and the content. The version guards the columns that members edit.
async fn update(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    templates: &[&Template],
) -> DbResult<Vec<PreviousRow>> {
    if templates.is_empty() {
        return Ok(vec![]);
    }
    let ids: Vec<Uuid> = templates.iter().map(|template| template.id.0).collect();
    let versions: Vec<i64> = templates.iter().map(|template| template.version).collect();
    let written: Vec<PreviousRow> = sql(format!(
        include_str!("update_synced.sql"),
        seen = key_rows("$3, $4", "id, version"),
    ))
    .bind(account)
    .bind(rows(templates))
    .bind(ids)
    .bind(versions)
    .load(conn)
    .await?;
    Ok(written)
}
