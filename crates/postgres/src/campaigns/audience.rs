//! The audience of a run: a start freezes it into one pending send per contact, a preview only reads it. Also finds the
//! placeholders that would stay empty for a recipient.

use std::collections::BTreeSet;

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Jsonb, Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{Audience, Field, QueuedRun, Recipient, RecipientsBy, RequiredPlaceholder, Unreachable};
use recado_domain::costs::{COUNTRY_PREFIX, CostFacts};
use recado_domain::shared::{AccountId, CampaignId, StoreError};
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use super::rows::RunRow;
use super::selection::{Selection, user_id};
use crate::costs::{CountryRow, country_recipients, has_card};
use crate::errors::{DbResult, corrupt};
use crate::sql::{FENCE, NumberRow, TextRow, sql};

/// The white space and control characters that the domain's `single_spaced` trims. `btrim` must trim the same set. NUL
/// is missing, because a text in PostgreSQL never contains it.
const TRIMMED_CHARACTERS: &str = "\u{1}\u{2}\u{3}\u{4}\u{5}\u{6}\u{7}\u{8}\t\n\u{b}\u{c}\r\u{e}\u{f}\u{10}\u{11}\u{12}\u{13}\u{14}\u{15}\
                      \u{16}\u{17}\u{18}\u{19}\u{1a}\u{1b}\u{1c}\u{1d}\u{1e}\u{1f} \u{7f}\u{80}\u{81}\u{82}\u{83}\u{84}\u{85}\
                      \u{86}\u{87}\u{88}\u{89}\u{8a}\u{8b}\u{8c}\u{8d}\u{8e}\u{8f}\u{90}\u{91}\u{92}\u{93}\u{94}\u{95}\u{96}\
                      \u{97}\u{98}\u{99}\u{9a}\u{9b}\u{9c}\u{9d}\u{9e}\u{9f}\u{a0}\u{1680}\u{2000}\u{2001}\u{2002}\u{2003}\u{2004}\u{2005}\u{2006}\
                      \u{2007}\u{2008}\u{2009}\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}";

/// Recipients whose send rows the freeze inserts itself, while the start waits. Most audiences are not larger.
const MAX_IMMEDIATE_SENDS: i32 = 5000;

/// Contacts in one recipient batch. Recipients beyond `MAX_IMMEDIATE_SENDS` are stored in such batches.
const RECIPIENT_BATCH_SIZE: i32 = 2000;

/// Freezes the audience at `frozen_at`, a whole millisecond, and returns its size. The first `MAX_IMMEDIATE_SENDS` recipients get send rows at once, the
/// others are stored in recipient batches that [`materialize_sends`] turns into send rows later. A batch costs a
/// hundredth of its send rows, so the first message of a large campaign does not wait for the last row.
pub(super) async fn freeze(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
    selection: &Selection<'_>,
    frozen_at: OffsetDateTime,
) -> DbResult<i64> {
    let text = format!(include_str!("freeze.sql"), audience_clause = selection.clause(6),);
    let query = sql(text)
        .bind(account)
        .bind(campaign)
        .bind(MAX_IMMEDIATE_SENDS)
        .bind(RECIPIENT_BATCH_SIZE)
        .bind(frozen_at);
    selection.begin_statement(conn).await?;
    let recipients: NumberRow = selection.bind(query).get_result(&mut *conn).await?;
    selection.end_statement(conn).await?;
    Ok(recipients.n)
}

/// Deletes a campaign's first recipient batch and inserts its send rows. Returns false if no batch is left. The row
/// lock waits for another worker that materializes the same batch. Send ids are derived from the freeze, campaign and
/// contact.
pub(super) async fn materialize_sends(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
) -> DbResult<bool> {
    let inserted = sql("WITH batch AS (
           DELETE FROM campaign_recipient_batches WHERE account_id = $1 AND campaign_id = $2
             AND batch_no = (SELECT batch_no FROM campaign_recipient_batches WHERE account_id = $1 AND campaign_id = $2
               ORDER BY batch_no LIMIT 1 FOR UPDATE)
           RETURNING contact_ids, created_at)
         INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id, created_at)
         SELECT $1, send_id(p.created_at, $2, c.id), $2, c.id, p.created_at
         FROM batch p CROSS JOIN unnest(p.contact_ids) WITH ORDINALITY AS c (id, position) ORDER BY c.position")
    .bind(account)
    .bind(campaign)
    .execute(conn)
    .await?;
    Ok(inserted > 0)
}

/// Finds one campaign with recipient batches, across all accounts.
pub(super) async fn run_with_recipient_batches(conn: &mut AsyncPgConnection) -> DbResult<Option<QueuedRun>> {
    let row: Option<RunRow> = sql("SELECT account_id, campaign_id FROM campaign_recipient_batches
         ORDER BY account_id, campaign_id LIMIT 1")
    .get_result(conn)
    .await
    .optional()?;
    Ok(row.map(QueuedRun::from))
}

/// Returns the first `limit` recipients that a freeze would select, in the order of their ids.
pub(super) async fn first_recipients(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    selection: &Selection<'_>,
    limit: i64,
) -> DbResult<Vec<RecipientRow>> {
    let text = format!(
        "SELECT c.id, c.name, c.phone, NULL AS user_id, c.email, c.attributes, false AS opted_out {}
         ORDER BY c.id LIMIT $2",
        selection.clause(3)
    );
    let query = selection.bind(sql(text).bind(account).bind(limit));
    selection.begin_statement(conn).await?;
    let rows = query.load(&mut *conn).await?;
    selection.end_statement(conn).await?;
    Ok(rows)
}

/// Returns the name of the audience's segment if that segment was deleted.
pub(super) async fn deleted_segment(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    audience: &Audience,
) -> DbResult<Option<String>> {
    let Some(segment) = audience.segment_id else {
        return Ok(None);
    };
    let deleted: Option<TextRow> =
        sql("SELECT name AS text FROM segments WHERE account_id = $1 AND id = $2 AND deleted_at IS NOT NULL")
            .bind(account)
            .bind(segment)
            .get_result(conn)
            .await
            .optional()?;
    Ok(deleted.map(|row| row.text))
}

/// Returns the required placeholders that stay empty for at least one recipient, in their order. Without required
/// placeholders it reads no contact. A start calls this after its freeze and selects the contacts again, instead of
/// reading the frozen sends: a second scan costs a tenth of one look-up per contact.
pub(super) async fn empty_placeholders(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    selection: &Selection<'_>,
    required_placeholders: &[RequiredPlaceholder],
) -> DbResult<Vec<String>> {
    if required_placeholders.is_empty() {
        return Ok(vec![]);
    }
    let counts = count(conn, account, selection, required_placeholders).await?;
    Ok(counts.empty_placeholders)
}

/// The recipients by country, and the rates there at a time. Without a rate card and a budget it reads no contact.
pub(super) async fn cost_facts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    selection: &Selection<'_>,
    has_budget: bool,
    at: OffsetDateTime,
) -> DbResult<CostFacts> {
    let has_card = has_card(conn).await?;
    if !has_card && !has_budget {
        return Ok(CostFacts::default());
    }
    let text = format!(
        "SELECT left(c.phone, {COUNTRY_PREFIX}) AS prefix,
           CASE WHEN c.phone IS NULL THEN left({user_id}, 3) END AS user_country, count(*) AS recipients,
           count(*) FILTER (WHERE c.id IN (SELECT v.contact_id FROM conversations v
             WHERE v.account_id = $1 AND v.last_inbound_at > now() - interval '24 hours')) AS in_window
         {audience_clause} GROUP BY 1, 2",
        user_id = user_id(2),
        audience_clause = selection.clause(2),
    );
    let rows: Vec<CountryRow> = selection.bind(sql(text).bind(account)).load(&mut *conn).await?;
    country_recipients(conn, rows, has_card, at).await
}

/// How an audience is reached, and what its messages lack.
#[derive(Default)]
pub(super) struct AudienceCounts {
    pub(super) recipients_by: RecipientsBy,
    pub(super) unreachable: Unreachable,
    /// The required placeholders that stay empty for at least one recipient, in their order.
    pub(super) empty_placeholders: Vec<String>,
}

#[derive(QueryableByName)]
struct ReachedRow {
    #[diesel(sql_type = Text)]
    reached: String,
    #[diesel(sql_type = BigInt)]
    contacts: i64,
    /// The positions of the placeholders.
    #[diesel(sql_type = Array<BigInt>)]
    empty: Vec<i64>,
}

/// Reads the audience once, whatever the number of placeholders.
pub(super) async fn count(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    selection: &Selection<'_>,
    required_placeholders: &[RequiredPlaceholder],
) -> DbResult<AudienceCounts> {
    let (reached, audience_clause) = (selection.reached(4), selection.clause_of_all(4));
    // Most recipients have the same empty placeholders, so there are few groups.
    let text = if required_placeholders.is_empty() {
        format!(
            "SELECT r.reached, count(*) AS contacts, '{{}}'::bigint[] AS empty
             FROM (SELECT {reached} AS reached {audience_clause}) r WHERE r.reached IS NOT NULL GROUP BY r.reached"
        )
    } else {
        format!(
            include_str!("count_audience.sql"),
            reached = reached,
            audience_clause = audience_clause,
            fence = FENCE,
        )
    };
    let query = sql(text)
        .bind(account)
        .bind(placeholder_conditions(required_placeholders))
        .bind(TRIMMED_CHARACTERS);
    selection.begin_statement(conn).await?;
    let rows: Vec<ReachedRow> = selection.bind(query).load(&mut *conn).await?;
    selection.end_statement(conn).await?;
    Ok(audience_counts(rows, required_placeholders))
}

fn audience_counts(rows: Vec<ReachedRow>, required_placeholders: &[RequiredPlaceholder]) -> AudienceCounts {
    let mut counts = AudienceCounts::default();
    let mut empty = BTreeSet::new();
    for row in rows {
        let count = match row.reached.as_str() {
            "phone" => &mut counts.recipients_by.phone,
            "user_id" => &mut counts.recipients_by.user_id,
            "opted_out" => &mut counts.unreachable.opted_out,
            "authentication_needs_phone" => &mut counts.unreachable.authentication_needs_phone,
            _ => &mut counts.unreachable.no_address,
        };
        *count += row.contacts;
        if matches!(row.reached.as_str(), "phone" | "user_id") {
            empty.extend(row.empty);
        }
    }
    let placeholder = |position: i64| required_placeholders.get(usize::try_from(position).ok()?);
    let empty = empty.into_iter().filter_map(placeholder);
    counts.empty_placeholders = empty.map(|required| required.placeholder.clone()).collect();
    counts
}

fn placeholder_conditions(required_placeholders: &[RequiredPlaceholder]) -> Value {
    let conditions = required_placeholders.iter().enumerate().map(|(position, required)| {
        let uses_any = |fields: &[Field]| required.fields.iter().any(|field| fields.contains(field));
        let keys: Vec<&str> = required
            .fields
            .iter()
            .filter_map(|field| match field {
                Field::Attribute(key) => Some(key.as_str()),
                Field::Name | Field::FirstName | Field::Phone | Field::Email => None,
            })
            .collect();
        json!({
            "position": position,
            "name": uses_any(&[Field::Name, Field::FirstName]),
            "phone": uses_any(&[Field::Phone]),
            "email": uses_any(&[Field::Email]),
            "keys": keys,
        })
    });
    conditions.collect()
}

/// The data of a contact that fills a message's placeholders.
#[derive(QueryableByName)]
pub(super) struct RecipientRow {
    #[diesel(sql_type = SqlUuid)]
    pub(super) id: Uuid,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    user_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    email: Option<String>,
    #[diesel(sql_type = Jsonb)]
    attributes: Value,
    #[diesel(sql_type = Bool)]
    pub(super) opted_out: bool,
}

impl TryFrom<RecipientRow> for Recipient {
    type Error = StoreError;

    fn try_from(row: RecipientRow) -> Result<Self, StoreError> {
        Ok(Self {
            name: row.name,
            phone: row.phone.unwrap_or_default(),
            user_id: row.user_id,
            email: row.email,
            attributes: serde_json::from_value(row.attributes).map_err(corrupt)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use recado_domain::shared::text::is_blank;

    use super::TRIMMED_CHARACTERS;

    #[test]
    fn trimmed_characters_match_the_domain() {
        let trimmed_by_domain: String = (1..=u32::from(char::MAX))
            .filter_map(char::from_u32)
            .filter(|c| is_blank(&c.to_string()))
            .collect();
        assert_eq!(TRIMMED_CHARACTERS, trimmed_by_domain);
    }
}
