//! Who a run goes to, frozen into one pending send a contact; and whether a placeholder stays empty for one of them.

use diesel::OptionalExtension;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{Audience, Blank, Field};
use recado_domain::shared::{AccountId, CampaignId};

use crate::errors::Attempt;
use crate::segments::{BoundFilters, belongs, conditions, own};
use crate::sql::{Answer, Word, bare, sql};

/// What the domain's `trim` removes, and what the database therefore has to count as nothing too.
const SPACES: &str = "\t\n\u{b}\u{c}\r \u{85}\u{a0}\u{1680}\u{2000}\u{2001}\u{2002}\u{2003}\u{2004}\u{2005}\u{2006}\
                      \u{2007}\u{2008}\u{2009}\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}";

/// Makes the sends and returns how many. Their ids follow from campaign and contact: freezing twice makes the same.
pub(super) async fn freeze(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
    audience: &Audience,
) -> Attempt<i64> {
    let text = format!(
        "INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id)
         SELECT c.account_id, md5($2::text || c.id::text)::uuid, $2, c.id
         FROM contacts c {own}
         WHERE c.account_id = $1 AND c.deleted_at IS NULL AND c.phone IS NOT NULL AND c.opted_out_at IS NULL
           AND {narrowed}
           AND ($3
             OR EXISTS (SELECT 1 FROM contact_tags l
               WHERE l.account_id = $1 AND l.contact_id = c.id AND l.tag_id = ANY ($5))
             OR EXISTS (SELECT 1 FROM contact_rfm r
               WHERE r.account_id = $1 AND r.contact_id = c.id AND r.segment = ANY ($6))
             OR {belongs})
         ON CONFLICT DO NOTHING",
        own = own("$4"),
        belongs = belongs(),
        narrowed = conditions(7),
    );
    let filters = BoundFilters::from(&audience.filters);
    let query = sql(text)
        .bind(account)
        .bind(campaign)
        .bind(audience.is_everybody())
        .bind(audience.segment_id)
        .bind(bare(&audience.tag_ids))
        .bind(audience.rfm_segments.clone())
        .bind(filters.created_after)
        .bind(filters.created_before)
        .bind(filters.has_email)
        .bind(filters.attributes);
    let frozen = query.execute(conn).await?;
    Ok(i64::try_from(frozen).unwrap_or(i64::MAX))
}

/// What the audience's segment was called, if it was deleted.
pub(super) async fn deleted_segment(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    audience: &Audience,
) -> Attempt<Option<String>> {
    let Some(segment) = audience.segment_id else {
        return Ok(None);
    };
    let deleted: Option<Word> =
        sql("SELECT name AS word FROM segments WHERE account_id = $1 AND id = $2 AND deleted_at IS NOT NULL")
            .bind(account)
            .bind(segment)
            .get_result(conn)
            .await
            .optional()?;
    Ok(deleted.map(|row| row.word))
}

/// Whether the placeholder stays empty for one of the campaign's recipients.
pub(super) async fn leaves_empty(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
    blank: &Blank,
) -> Attempt<bool> {
    let has = |wanted: &[Field]| blank.fields.iter().any(|field| wanted.contains(field));
    let attributes = blank.fields.iter().filter_map(|field| match field {
        Field::Attribute(key) => Some(key.clone()),
        Field::Name | Field::FirstName | Field::Phone | Field::Email => None,
    });
    let empty: Answer = sql("SELECT EXISTS (SELECT 1 FROM campaign_sends s
           JOIN contacts c ON c.account_id = s.account_id AND c.id = s.contact_id
           WHERE s.account_id = $1 AND s.campaign_id = $2
             AND (NOT $4 OR btrim(c.name, $3) = '')
             AND (NOT $5 OR btrim(coalesce(c.phone, ''), $3) = '')
             AND (NOT $6 OR btrim(coalesce(c.email, ''), $3) = '')
             AND NOT EXISTS (SELECT 1 FROM unnest($7) AS k WHERE btrim(coalesce(c.attributes ->> k, ''), $3) <> ''))
           AS yes")
    .bind(account)
    .bind(campaign)
    .bind(SPACES)
    .bind(has(&[Field::Name, Field::FirstName]))
    .bind(has(&[Field::Phone]))
    .bind(has(&[Field::Email]))
    .bind(attributes.collect::<Vec<_>>())
    .get_result(conn)
    .await?;
    Ok(empty.yes)
}

#[cfg(test)]
mod tests {
    use super::SPACES;

    #[test]
    fn the_database_trims_what_the_domain_trims() {
        let mut every: String = (0..=u32::from(char::MAX))
            .filter_map(char::from_u32)
            .filter(|c| c.is_whitespace())
            .collect();
        every.retain(|c| !SPACES.contains(c));
        assert_eq!(every, "");
        assert_eq!(SPACES.trim(), "");
    }
}
