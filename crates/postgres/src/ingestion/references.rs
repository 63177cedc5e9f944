//! Looks up the rows that a batch references, in one statement. Deleted contacts and campaigns do not exist for it.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Nullable, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::contacts::Phone;
use recado_domain::ingestion::{ATTRIBUTION_WINDOW, EventDraft, OrderDraft, UnknownReference, Who};
use recado_domain::shared::{AccountId, CampaignId, ContactId, LinkId};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::errors::DbResult;
use crate::sql::{collect_column, key_rows, sql};

/// The rows that an order references.
#[derive(QueryableByName)]
pub(super) struct OrderReferences {
    #[diesel(sql_type = Nullable<SqlUuid>)]
    contact_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    link_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    link_campaign_id: Option<Uuid>,
    #[diesel(sql_type = Bool)]
    unknown_campaign: bool,
    #[diesel(sql_type = Bool)]
    unknown_automation: bool,
    #[diesel(sql_type = Bool)]
    unknown_link: bool,
}

impl OrderReferences {
    pub(super) fn contact(&self) -> Option<ContactId> {
        self.contact_id.map(Into::into)
    }

    pub(super) fn link(&self) -> Option<(LinkId, Option<CampaignId>)> {
        Some((self.link_id?.into(), self.link_campaign_id.map(Into::into)))
    }

    fn unknown_references(&self, index: usize) -> impl Iterator<Item = UnknownReference> {
        let fields = [
            (self.unknown_campaign, "campaign_id"),
            (self.unknown_automation, "automation_id"),
            (self.unknown_link, "link_code"),
        ];
        let unknown_references = fields.into_iter().filter(|(is_unknown, _)| *is_unknown);
        unknown_references.map(move |(_, field)| UnknownReference { index, field })
    }
}

fn phone_text(phone: Option<&Phone>) -> Option<String> {
    phone.map(|phone| phone.as_str().to_owned())
}

/// Returns the references of each order, in the order of the drafts.
pub(super) async fn order_references(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    drafts: &[OrderDraft],
) -> DbResult<Result<Vec<OrderReferences>, Vec<UnknownReference>>> {
    let references: Vec<OrderReferences> = sql(format!(
        "SELECT c.id AS contact_id, l.id AS link_id, l.campaign_id AS link_campaign_id,
           d.campaign_id IS NOT NULL AND k.id IS NULL AS unknown_campaign,
           d.automation_id IS NOT NULL AND a.id IS NULL AS unknown_automation,
           d.link_code IS NOT NULL AND l.id IS NULL AS unknown_link
         FROM {keys} d
         LEFT JOIN contacts c ON c.account_id = $1 AND c.phone = d.phone AND c.deleted_at IS NULL
         LEFT JOIN campaigns k ON k.account_id = $1 AND k.id = d.campaign_id AND k.deleted_at IS NULL
         LEFT JOIN automations a ON a.account_id = $1 AND a.id = d.automation_id
         LEFT JOIN links l ON l.account_id = $1 AND l.short_code = d.link_code
         ORDER BY d.position",
        keys = key_rows("$2, $3, $4, $5", "phone, campaign_id, automation_id, link_code"),
    ))
    .bind(account)
    .bind(collect_column(drafts, |draft| phone_text(draft.phone.as_ref())))
    .bind(collect_column(drafts, |draft| draft.campaign_id.map(Uuid::from)))
    .bind(collect_column(drafts, |draft| draft.automation_id.map(Uuid::from)))
    .bind(collect_column(drafts, |draft| draft.link_code.clone()))
    .load(conn)
    .await?;
    let unknown_references = references.iter().enumerate();
    let unknown_references: Vec<UnknownReference> = unknown_references
        .flat_map(|(index, row)| row.unknown_references(index))
        .collect();
    Ok(if unknown_references.is_empty() {
        Ok(references)
    } else {
        Err(unknown_references)
    })
}

#[derive(QueryableByName)]
struct ContactIdRow {
    #[diesel(sql_type = Nullable<SqlUuid>)]
    contact_id: Option<Uuid>,
}

/// Looks up contacts by phone number, in the order of `phones`.
pub(super) async fn contacts_by_phone(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    phones: Vec<Option<String>>,
) -> DbResult<Vec<Option<ContactId>>> {
    let rows: Vec<ContactIdRow> = sql(format!(
        "SELECT c.id AS contact_id FROM {keys} d
         LEFT JOIN contacts c ON c.account_id = $1 AND c.phone = d.phone AND c.deleted_at IS NULL
         ORDER BY d.position",
        keys = key_rows("$2", "phone"),
    ))
    .bind(account)
    .bind(phones)
    .load(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.contact_id.map(Into::into)).collect())
}

/// Looks up the contacts of metric events, in the order of the drafts.
pub(super) async fn event_contacts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    drafts: &[EventDraft],
) -> DbResult<Result<Vec<Option<ContactId>>, Vec<UnknownReference>>> {
    let id = |draft: &EventDraft| match &draft.who {
        Who::Contact(id) => Some(Uuid::from(*id)),
        Who::Phone(_) => None,
    };
    let phone = |draft: &EventDraft| match &draft.who {
        Who::Contact(_) => None,
        Who::Phone(phone) => phone_text(Some(phone)),
    };
    let rows: Vec<ContactIdRow> = sql(format!(
        "SELECT coalesce(c.id, p.id) AS contact_id FROM {keys} d
         LEFT JOIN contacts c ON c.account_id = $1 AND c.id = d.id AND c.deleted_at IS NULL
         LEFT JOIN contacts p ON p.account_id = $1 AND p.phone = d.phone AND p.deleted_at IS NULL
         ORDER BY d.position",
        keys = key_rows("$2, $3", "id, phone"),
    ))
    .bind(account)
    .bind(collect_column(drafts, id))
    .bind(collect_column(drafts, phone))
    .load(conn)
    .await?;
    let contacts: Vec<Option<ContactId>> = rows.into_iter().map(|row| row.contact_id.map(Into::into)).collect();
    let named = drafts.iter().zip(&contacts).enumerate();
    let unknown_references: Vec<UnknownReference> = named
        .filter(|(_, (draft, contact))| matches!(draft.who, Who::Contact(_)) && contact.is_none())
        .map(|(index, _)| UnknownReference {
            index,
            field: "contact_id",
        })
        .collect();
    Ok(if unknown_references.is_empty() {
        Ok(contacts)
    } else {
        Err(unknown_references)
    })
}

#[derive(QueryableByName)]
struct LastMessage {
    #[diesel(sql_type = BigInt)]
    position: i64,
    #[diesel(sql_type = SqlUuid)]
    campaign_id: Uuid,
}

/// A campaign is updated when its run ends. The results of its last messages may come this much later.
const RUN_MARGIN: Duration = Duration::days(2);

/// For each contact and time, returns the campaign of the latest message that the contact received in the attribution
/// window before that time.
///
/// The ids of sends tell when their campaign was frozen, not when they were sent. A send since `$5` belongs to a campaign
/// that was updated since, or is still in the queue: the oldest freeze of these bounds the partitions.
pub(super) async fn last_messages(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    lookups: &[(ContactId, OffsetDateTime)],
) -> DbResult<Vec<Option<CampaignId>>> {
    let mut campaigns = vec![None; lookups.len()];
    if lookups.is_empty() {
        return Ok(campaigns);
    }
    let oldest = lookups.iter().map(|(_, at)| *at).min();
    let since = oldest.and_then(|at| at.checked_sub(ATTRIBUTION_WINDOW + RUN_MARGIN));
    let rows: Vec<LastMessage> = sql("SELECT d.position, s.campaign_id
         FROM unnest($2, $3) WITH ORDINALITY AS d (contact_id, placed_at, position)
         CROSS JOIN LATERAL (
           SELECT s.campaign_id FROM campaign_sends s
           WHERE s.account_id = $1 AND s.contact_id = d.contact_id AND s.status IN ('sent', 'delivered', 'read')
             AND s.id >= (SELECT first_id(least($5,
               (SELECT min(frozen_at) FROM campaigns
                WHERE account_id = $1 AND updated_at >= $5 AND frozen_at IS NOT NULL),
               (SELECT min(c.frozen_at) FROM campaign_queue q JOIN campaigns c ON c.account_id = $1 AND c.id = q.campaign_id
                WHERE q.account_id = $1))))
             AND s.sent_at <= d.placed_at AND s.sent_at >= d.placed_at - $4 * interval '1 microsecond'
           ORDER BY s.sent_at DESC, s.id DESC LIMIT 1) s")
    .bind(account)
    .bind(collect_column(lookups, |(contact, _)| Uuid::from(*contact)))
    .bind(collect_column(lookups, |(_, at)| *at))
    .bind(ATTRIBUTION_WINDOW)
    .bind(since)
    .load(conn)
    .await?;
    for row in rows {
        let slot = usize::try_from(row.position - 1)
            .ok()
            .and_then(|at| campaigns.get_mut(at));
        if let Some(slot) = slot {
            *slot = Some(row.campaign_id.into());
        }
    }
    Ok(campaigns)
}
