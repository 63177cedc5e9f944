//! A page of contacts: one statement for each combination of filters, and one for a whole phone number. It starts from
//! the narrowest source (the tag, the members of the segment, or all contacts) in the order of the list, and reads at
//! most [`MAX_SCAN`] rows to find those that the other filters select.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, Bool, Nullable, Text, Uuid as SqlUuid};
use recado_domain::contacts::{Contact, ContactFilter, Phone, Tag};
use recado_domain::shared::{AccountId, StoreError};
use uuid::Uuid;

use super::rows::ContactRow;
use crate::errors::corrupt;
use crate::filters::{BoundFilters, SegmentRule};
use crate::sql::{FENCE, MAX_PAGE, Sql, key_rows, like_contains, limit_hint, sql};

/// How many rows of the source a page reads at most.
pub(super) const MAX_SCAN: i64 = 50_000;

/// How many rows a page reads before it uses the search index: many contacts match a frequent text, and then the first
/// of them are found sooner in the order of the list.
pub(super) const MAX_SCAN_BEFORE_INDEX: i64 = 2_000;

/// The parameters of the conditions, after account, cursor, limit and scan limit.
const SEARCH: usize = 5;
/// Patterns, or the number of `by_number`.
const PHONES: usize = 6;
const TAG: usize = 7;
const SEGMENT: usize = 8;

const COLUMNS: &str = "c.id, c.name, c.phone, c.email, c.wa_user_id, c.time_zone, c.attributes, c.opted_out_at, c.created_at, \
     c.updated_at, c.version";

/// The end of a scan at contact `e`.
const SCAN_END: &str = "SELECT e.id, '', NULL, NULL, NULL, NULL, '{}', NULL, now(), now(), 0, true";

/// The text that `contacts_search_idx` indexes. A line break separates the fields.
pub(super) const SEARCHED_TEXT: &str = "(name || E'\\n' || coalesce(phone, '') || E'\\n' || coalesce(email, ''))";

/// A row of a list.
#[derive(QueryableByName)]
pub(super) struct ListedRow {
    #[diesel(embed)]
    contact: ContactRow,
    /// Not an item of the list: the row at which the scan ended (or [`by_number`](ContactList::by_number) found its
    /// contact). It has no data but its id.
    #[diesel(sql_type = Bool)]
    is_scan_end: bool,
    #[diesel(sql_type = Array<SqlUuid>)]
    tag_ids: Vec<Uuid>,
    #[diesel(sql_type = Array<Text>)]
    tag_names: Vec<String>,
    #[diesel(sql_type = Array<Nullable<Text>>)]
    tag_colors: Vec<Option<String>>,
}

impl ListedRow {
    /// Removes the end of the scan from the rows. None: the rows are complete, or more than the limit.
    pub(super) fn take_scan_end(rows: &mut Vec<Self>) -> Option<Uuid> {
        let end = rows.pop_if(|row| row.is_scan_end)?;
        Some(end.contact.id)
    }
}

impl TryFrom<ListedRow> for Contact {
    type Error = StoreError;

    fn try_from(row: ListedRow) -> Result<Self, StoreError> {
        if row.tag_ids.len() != row.tag_names.len() || row.tag_ids.len() != row.tag_colors.len() {
            return Err(corrupt("the tags of a contact are incomplete"));
        }
        let tags = row.tag_ids.into_iter().zip(row.tag_names).zip(row.tag_colors);
        let tags = tags.map(|((id, name), color)| Tag {
            id: id.into(),
            name,
            color,
        });
        row.contact.with(tags.collect())
    }
}

/// The filters of a list, and the statements that they need.
pub(super) struct ContactList<'a> {
    account: AccountId,
    filter: &'a ContactFilter,
    segment: Option<&'a SegmentRule>,
}

impl<'a> ContactList<'a> {
    /// `segment` is the rule of the filter's segment.
    pub(super) fn new(account: AccountId, filter: &'a ContactFilter, segment: Option<&'a SegmentRule>) -> Self {
        Self {
            account,
            filter,
            segment,
        }
    }

    /// Whether the search has three letters or digits in a row: the index has no shorter parts of a text.
    pub(super) fn can_use_index(&self) -> bool {
        let search = self.filter.search.as_deref().unwrap_or_default();
        let words = search.split(|c: char| !c.is_alphanumeric());
        words.into_iter().any(|word| word.chars().nth(2).is_some())
    }

    /// Selects the contact that has the searched phone number, unless cursor or filters exclude it. A scan-end row
    /// follows if a contact has this number at all: it distinguishes an empty page from an unknown number. None: the
    /// search is not a whole number.
    pub(super) fn by_number(&self, before: Uuid) -> Option<Sql<'a>> {
        let number = Phone::parse(self.filter.search.as_deref()?)?;
        let conditions = self.tag_condition().into_iter().chain(self.segment_condition());
        let conditions: String = conditions.map(|condition| format!(" AND {condition}")).collect();
        let found = format!(
            "WITH number AS MATERIALIZED (SELECT * FROM contacts
               WHERE account_id = $1 AND phone = (${PHONES})[1] AND deleted_at IS NULL)
             SELECT {COLUMNS}, false AS is_scan_end FROM number c WHERE c.id < $2{conditions}
             UNION ALL {SCAN_END} FROM number e",
        );
        Some(self.bind(sql(with_tags(&found)), before, 1, 0, vec![number.to_string()]))
    }

    /// Selects up to `limit` contacts with smaller ids than `before`, among the next `max_scan` rows of the source. If
    /// there are more rows, and fewer contacts than `limit`, the end of the scan follows.
    pub(super) fn page(&self, before: Uuid, limit: i64, max_scan: i64) -> Sql<'a> {
        let conditions = self.conditions(self.starts_from_members());
        let found = if conditions.is_empty() {
            limit_hint(self.found("", &conditions), "$3")
        } else {
            // Lazy: the second part is read only if the first one does not fill the page.
            format!(
                "SELECT * FROM (
                   (SELECT * FROM ({found}) AS found LIMIT {MAX_PAGE})
                   UNION ALL
                   ({SCAN_END} FROM ({ids} OFFSET $4 LIMIT 1) e)
                 ) AS first LIMIT $3",
                found = self.found("LIMIT $4", &conditions),
                ids = self.ids(),
            )
        };
        self.bind(sql(with_tags(&found)), before, limit, max_scan, self.phone_patterns())
    }

    /// Selects the ids of up to `limit` contacts with smaller ids than `before`, by the search index. For the owner
    /// pool: under a row-level policy the index is not used, because its operators are not leakproof.
    ///
    /// Only the index has the account as a text, so no other index is an alternative for the planner.
    pub(super) fn indexed_ids(&self, before: Uuid, limit: i64) -> Sql<'a> {
        let mut conditions = self.conditions(false);
        conditions.extend(self.tag_condition());
        let text = format!(
            "WITH found AS MATERIALIZED (
               SELECT c.account_id, c.id, c.name, c.phone, c.email, c.created_at, c.opted_out_at, c.same_person_as,
                 c.time_zone,
                 {attributes} AS attributes
               FROM contacts c
               WHERE c.account_id::text = $1::text AND c.deleted_at IS NULL
                 AND ({SEARCHED_TEXT} ILIKE ${SEARCH} OR {SEARCHED_TEXT} LIKE (${PHONES})[1]
                   OR {SEARCHED_TEXT} LIKE (${PHONES})[2]))
             SELECT c.id FROM found c WHERE c.account_id = $1 AND c.id < $2 AND {conditions}
             ORDER BY c.id DESC LIMIT $3",
            attributes = if self.segment.is_some() {
                "c.attributes"
            } else {
                "NULL::jsonb"
            },
            conditions = conditions.join(" AND "),
        );
        self.bind(sql(text), before, limit, 0, self.phone_patterns())
    }

    /// Patterns of the numbers that contain the search in any notation.
    fn phone_patterns(&self) -> Vec<String> {
        let search = self.filter.search.as_deref();
        let phones = search.map(Phone::search_forms).unwrap_or_default();
        phones.iter().map(|phone| like_contains(phone)).collect()
    }

    fn bind(&self, statement: Sql<'a>, before: Uuid, limit: i64, max_scan: i64, phones: Vec<String>) -> Sql<'a> {
        let search = self.filter.search.as_deref();
        let statement = statement
            .bind(self.account)
            .bind(before)
            .bind(limit)
            .bind(max_scan)
            .bind(search.map(like_contains))
            .bind(phones)
            .bind(self.filter.tag_id);
        match self.segment {
            None => BoundFilters::default().bind(statement.bind(None::<Uuid>)),
            Some(segment) => segment.bind(statement),
        }
    }

    /// Whether the members of the segment are the source: it has no filters, and there is no tag.
    fn starts_from_members(&self) -> bool {
        self.filter.tag_id.is_none() && self.segment.is_some_and(|segment| segment.filters.is_none())
    }

    /// The conditions that the source does not meet by itself.
    fn conditions(&self, are_members: bool) -> Vec<String> {
        let search = self.filter.search.as_ref().map(|_| {
            format!(
                "(c.name ILIKE ${SEARCH} OR c.phone ILIKE ${SEARCH} OR c.email ILIKE ${SEARCH}
                   OR c.phone LIKE ANY (${PHONES}))"
            )
        });
        let segment = self.segment_condition().filter(|_| !are_members);
        search.into_iter().chain(segment).collect()
    }

    fn segment_condition(&self) -> Option<String> {
        self.segment.map(|segment| segment.belongs(SEGMENT))
    }

    fn tag_condition(&self) -> Option<String> {
        self.filter.tag_id?;
        Some(format!(
            "EXISTS (SELECT 1 FROM contact_tags l
               WHERE l.account_id = $1 AND l.contact_id = c.id AND l.tag_id = ${TAG} {FENCE})"
        ))
    }

    /// The ids of the source in the order of the list.
    fn ids(&self) -> String {
        if self.filter.tag_id.is_some() {
            format!(
                "SELECT l.contact_id AS id FROM contact_tags l
                 WHERE l.account_id = $1 AND l.tag_id = ${TAG} AND l.contact_id < $2 ORDER BY l.contact_id DESC"
            )
        } else if self.starts_from_members() {
            format!(
                "SELECT m.contact_id AS id FROM segment_members m
                 WHERE m.account_id = $1 AND m.segment_id = ${SEGMENT} AND m.contact_id < $2
                 ORDER BY m.contact_id DESC"
            )
        } else {
            "SELECT c.id FROM contacts c WHERE c.account_id = $1 AND c.deleted_at IS NULL AND c.id < $2
             ORDER BY c.id DESC"
                .to_owned()
        }
    }

    /// The contacts of the source that meet the conditions. `scan_limit` limits the source. A look-up has the key
    /// alone: a further condition would make the partial indexes an alternative.
    fn found(&self, scan_limit: &str, conditions: &[String]) -> String {
        let conditions = match conditions {
            [] => "true".to_owned(),
            conditions => conditions.join(" AND "),
        };
        if self.filter.tag_id.is_none() && !self.starts_from_members() {
            return format!(
                "SELECT {COLUMNS}, false AS is_scan_end
                 FROM (SELECT * FROM contacts c WHERE c.account_id = $1 AND c.deleted_at IS NULL AND c.id < $2
                   ORDER BY c.id DESC {scan_limit}) AS c
                 WHERE {conditions} ORDER BY c.id DESC"
            );
        }
        format!(
            "SELECT {COLUMNS}, false AS is_scan_end
             FROM ({ids} {scan_limit}) AS k
             CROSS JOIN LATERAL (SELECT * FROM contacts c WHERE c.account_id = $1 AND c.id = k.id {FENCE}) AS c
             WHERE c.deleted_at IS NULL AND {conditions} ORDER BY k.id DESC",
            ids = self.ids(),
        )
    }
}

/// Selects the contacts with these ids, in no order.
pub(super) fn by_ids<'a>(account: AccountId, ids: Vec<Uuid>) -> Sql<'a> {
    let found = format!(
        "SELECT {COLUMNS}, false AS is_scan_end
         FROM {keys} k JOIN contacts c ON c.account_id = $1 AND c.id = k.id WHERE c.deleted_at IS NULL",
        keys = key_rows("$2", "id"),
    );
    sql(with_tags(&found)).bind(account).bind(ids)
}

/// Adds the tags to the contacts of a page. The page is cut before tags are looked up, and each tag is looked up once.
fn with_tags(part: &str) -> String {
    format!(
        include_str!("with_tags.sql"),
        part = part,
        columns = COLUMNS,
        fence = FENCE,
    )
}
