//! Writes the result of a template synchronization. A template is passed as its published JSON plus `unsupported`: the
//! fields have the names of the columns.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, Event, StoreError};
use recado_domain::templates::{
    Category, SyncReport, SyncedTemplate, Template, changed_notification, has_other_category,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::campaigns;
use crate::errors::{DbResult, parse_enum};
use crate::outbox;
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
        outbox::append(conn, account, &notifications(&changed, &before)?).await?;
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
            campaigns::pause_template(conn, account, template.id, reason).await?;
        }
    }
    Ok(report)
}

fn rows<'a>(templates: impl Iterator<Item = &'a Template>) -> Value {
    let rows = templates.map(|template| {
        let mut row = json!(template);
        if let Some(fields) = row.as_object_mut() {
            fields.insert("unsupported".to_owned(), json!(template.unsupported));
        }
        row
    });
    rows.collect()
}

async fn insert(conn: &mut AsyncPgConnection, account: AccountId, templates: &[&Template]) -> DbResult<usize> {
    if templates.is_empty() {
        return Ok(0);
    }
    let written = sql(
        "INSERT INTO message_templates (account_id, id, name, category, language, template_type, parameter_format, header_type,
           header_text, header_media_url, body_text, footer_text, buttons, variables, carousel_cards, profile_id,
           meta_template_id, meta_status, rejection_reason, quality_score, unsupported, created_at, updated_at)
         SELECT $1, id, name, category, language, template_type, parameter_format, header_type,
           header_text, header_media_url, body_text, footer_text, buttons, variables, carousel_cards, profile_id,
           meta_template_id, meta_status, rejection_reason, quality_score, unsupported, created_at, updated_at
         FROM jsonb_populate_recordset(NULL::message_templates, $2)
         ON CONFLICT (account_id, name, language) WHERE deleted_at IS NULL DO NOTHING",
    )
    .bind(account)
    .bind(rows(templates.iter().copied()))
    .execute(conn)
    .await?;
    Ok(written)
}

/// An updated template and its previous category.
#[derive(QueryableByName)]
struct CategoryRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    category: String,
}

/// Notifies members about templates whose category changed.
fn notifications(changed: &[&Template], before: &[CategoryRow]) -> Result<Vec<Event>, StoreError> {
    let mut events = Vec::new();
    for row in before {
        let category: Category = parse_enum(&row.category)?;
        let template = changed.iter().find(|template| template.id.0 == row.id);
        if let Some(template) = template.filter(|template| has_other_category(category, template)) {
            events.push(changed_notification(category, template));
        }
    }
    Ok(events)
}

/// Writes only what WhatsApp decides, and the placeholders as they were parsed from WhatsApp's texts. The version
/// guards the columns that members edit.
async fn update(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    templates: &[&Template],
) -> DbResult<Vec<CategoryRow>> {
    if templates.is_empty() {
        return Ok(vec![]);
    }
    let ids: Vec<Uuid> = templates.iter().map(|template| template.id.0).collect();
    let versions: Vec<i64> = templates.iter().map(|template| template.version).collect();
    let written: Vec<CategoryRow> = sql(format!(
        "WITH known AS MATERIALIZED (
           SELECT t.id, t.meta_status, t.category, s.version
           FROM {seen} s JOIN message_templates t ON t.account_id = $1 AND t.id = s.id
           WHERE t.deleted_at IS NULL ORDER BY t.id FOR NO KEY UPDATE OF t),
         written AS (
         UPDATE message_templates t SET category = w.category,
           category_change = w.category_change, profile_id = w.profile_id,
           meta_template_id = w.meta_template_id, meta_status = w.meta_status, rejection_reason = w.rejection_reason,
           quality_score = w.quality_score, unsupported = w.unsupported, parameter_format = w.parameter_format,
           header_text = w.header_text, body_text = w.body_text, variables = w.variables, updated_at = w.updated_at,
           version = t.version + 1
         FROM known k JOIN jsonb_populate_recordset(NULL::message_templates, $2) w ON w.id = k.id
         WHERE t.account_id = $1 AND t.id = k.id AND t.deleted_at IS NULL AND t.version = k.version
         RETURNING t.id, t.name, t.language, t.category, t.meta_status, t.rejection_reason,
           k.category AS previous_category, k.meta_status AS previous_status),
         emitted AS (
           INSERT INTO outbox_events (account_id, payload)
           SELECT $1, jsonb_build_object('kind', 'webhook', 'type', 'template.status_changed', 'items', jsonb_agg(
             jsonb_build_object('id', n.id, 'name', n.name, 'language', n.language, 'status', n.meta_status,
               'previous_status', n.previous_status, 'category', n.category, 'previous_category', n.previous_category,
               'rejection_reason', n.rejection_reason)))
           FROM written n
           WHERE (n.previous_status <> n.meta_status OR n.previous_category <> n.category AND n.meta_status <> 'draft')
             AND (SELECT has_subscribers($1, 'template.status_changed'))
           HAVING count(*) > 0)
         SELECT id, previous_category AS category FROM written",
        seen = key_rows("$3, $4", "id, version"),
    ))
    .bind(account)
    .bind(rows(templates.iter().copied()))
    .bind(ids)
    .bind(versions)
    .load(conn)
    .await?;
    Ok(written)
}
