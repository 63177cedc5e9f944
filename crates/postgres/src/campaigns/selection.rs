//! How an audience is selected: from its sources if they are few contacts, else in one pass over the account's contacts.
//!
//! The sources are counted first, up to [`MAX_LOOKUPS`]. So the choice depends on the rows and not on what the planner
//! expects of an account or a tag that its statistics do not contain. For the same reason the statements have generic
//! plans: of an account without statistics a custom plan expects one row, and then every index seems equally good.

use diesel::OptionalExtension;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::campaigns::{Audience, Campaign, Reach};
use recado_domain::messaging::Category;
use recado_domain::shared::{AccountId, CampaignId, ProfileId};

use crate::errors::DbResult;
use crate::filters::{Access, BoundFilters, HAS_OPTED_OUT, LOOKUP_PLANS, SET_PLANS, SegmentRule};
use crate::sql::{FENCE, NumberRow, Sql, TextRow, sql, uuids};
use crate::whatsapp::USER_ID_SCOPE;

/// The largest number of contacts that are looked up one by one. Looking up more costs more than reading all contacts
/// of an account of this size.
const MAX_LOOKUPS: i64 = 20_000;

/// Reads the contacts of the account only: of the average account the planner expects a third of the contacts before or
/// after an unknown time, and may prefer to read the whole table.
const PLANS: &str = "SET LOCAL enable_seqscan = off";

/// A set of contacts of which the audience is a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Tags,
    RfmSegments,
    Members,
    /// The contacts that match the segment's filters.
    SegmentFilters,
    /// All contacts that were created in the period of the audience's filters.
    Period,
}

/// By which addresses contacts are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Addressing {
    /// Whether contacts without a phone are written to by user id.
    pub(super) by_user_id: bool,
    /// Whether the template goes to phone numbers alone.
    pub(super) needs_phone: bool,
    /// The scope of the user ids that the number may use. None: the account has no number, and the run is simulated.
    pub(super) scope: Option<String>,
}

impl Addressing {
    /// Reads the scope of the campaign's number.
    pub(super) async fn of(
        conn: &mut AsyncPgConnection,
        campaign: &Campaign,
        category: Option<Category>,
        profile: Option<ProfileId>,
    ) -> DbResult<Self> {
        let scope: Option<TextRow> = sql(format!(
            "SELECT {USER_ID_SCOPE} AS text FROM whatsapp_profiles p WHERE p.account_id = $1 AND p.id = $2"
        ))
        .bind(campaign.account_id)
        .bind(profile)
        .get_result(conn)
        .await
        .optional()?;
        let needs_phone = category.is_some_and(Category::needs_phone);
        Ok(Self {
            by_user_id: campaign.reach == Reach::Any && !needs_phone,
            needs_phone,
            scope: scope.map(|row| row.text),
        })
    }
}

/// The statement text and the parameters that select an audience.
pub(super) struct Selection<'a> {
    audience: &'a Audience,
    /// The campaign of the audience. Its own sends do not count as earlier ones.
    campaign: CampaignId,
    addressing: Addressing,
    filters: BoundFilters,
    /// None: no segment is selected, or the segment was deleted.
    segment: Option<SegmentRule>,
    /// Whether the sources are so few contacts that each is looked up.
    looks_up: bool,
}

/// Positions of the parameters, counted from the first one.
const TAGS: usize = 0;
const RFM_SEGMENTS: usize = 1;
const FILTERS: usize = 2;
const SEGMENT: usize = FILTERS + BoundFilters::PARAMETERS;
const SEGMENT_FILTERS: usize = SEGMENT + 1;
const SCOPE: usize = SEGMENT_FILTERS + BoundFilters::PARAMETERS;
const CAMPAIGN: usize = SCOPE + 1;

impl<'a> Selection<'a> {
    /// Reads the segment's filters and counts the sources. The rest of the transaction is planned without
    /// sequential scans.
    pub(super) async fn of(
        conn: &mut AsyncPgConnection,
        campaign: &Campaign,
        audience: &'a Audience,
        addressing: Addressing,
    ) -> DbResult<Selection<'a>> {
        let account = campaign.account_id;
        conn.batch_execute(PLANS).await?;
        let segment = match audience.segment_id {
            None => None,
            Some(id) => SegmentRule::find(conn, account, id).await?,
        };
        let mut selection = Self {
            audience,
            campaign: campaign.id,
            addressing,
            filters: BoundFilters::try_from(&audience.filters)?,
            segment,
            looks_up: false,
        };
        selection.looks_up = selection.is_narrow(conn, account).await?;
        Ok(selection)
    }

    /// Sets the plans for a statement with a clause.
    pub(super) async fn begin_statement(&self, conn: &mut AsyncPgConnection) -> DbResult<()> {
        if self.has_sets() {
            conn.batch_execute(SET_PLANS).await?;
        }
        Ok(())
    }

    /// Resets the plans for the other statements of the transaction.
    pub(super) async fn end_statement(&self, conn: &mut AsyncPgConnection) -> DbResult<()> {
        if self.has_sets() {
            conn.batch_execute(LOOKUP_PLANS).await?;
        }
        Ok(())
    }

    /// Whether the clauses join sets of contacts.
    fn has_sets(&self) -> bool {
        let has_tree = self.filters.has_tree() || self.segment.as_ref().is_some_and(SegmentRule::has_tree);
        self.audience.newcomers_only || (has_tree && !self.looks_up)
    }

    async fn is_narrow(&self, conn: &mut AsyncPgConnection, account: AccountId) -> DbResult<bool> {
        let Some(sources) = self.sources() else {
            return Ok(false);
        };
        if sources.is_empty() {
            return Ok(true);
        }
        let text = format!(
            "SELECT count(*) AS n FROM (SELECT 1 FROM ({ids}) AS source LIMIT $2) AS counted",
            ids = self.ids(&sources, 3, true),
        );
        let query = sql(text).bind(account).bind(MAX_LOOKUPS + 1);
        let counted: NumberRow = self.bind(query).get_result(conn).await?;
        Ok(counted.n <= MAX_LOOKUPS)
    }

    /// The sources. None: all contacts have to be read.
    fn sources(&self) -> Option<Vec<Source>> {
        if self.audience.selects_all_contacts() {
            return self.filters.has_period().then(|| vec![Source::Period]);
        }
        let mut sources = vec![];
        if !self.audience.tag_ids.is_empty() {
            sources.push(Source::Tags);
        }
        if !self.audience.rfm_segments.is_empty() {
            sources.push(Source::RfmSegments);
        }
        if let Some(segment) = &self.segment {
            sources.push(Source::Members);
            if let Some(filters) = &segment.filters {
                if !filters.has_period() {
                    return None;
                }
                sources.push(Source::SegmentFilters);
            }
        }
        Some(sources)
    }

    /// Selects the ids of the sources, some of them repeatedly. To be counted, filters are reduced to what an index
    /// has.
    fn ids(&self, sources: &[Source], first: usize, counting: bool) -> String {
        let select = |source: &Source| match source {
            Source::Tags => format!(
                "SELECT l.id FROM unnest(${tags}) AS t (id) CROSS JOIN LATERAL (
                   SELECT l.contact_id AS id FROM contact_tags l
                   WHERE l.account_id = $1 AND l.tag_id = t.id {FENCE}) AS l",
                tags = first + TAGS,
            ),
            Source::RfmSegments => format!(
                "SELECT r.id FROM unnest(${segments}) AS s (name) CROSS JOIN LATERAL (
                   SELECT r.contact_id AS id FROM contact_rfm r
                   WHERE r.account_id = $1 AND r.segment = s.name {FENCE}) AS r",
                segments = first + RFM_SEGMENTS,
            ),
            Source::Members => format!(
                "SELECT m.contact_id AS id FROM segment_members m
                 WHERE m.account_id = $1 AND m.segment_id = ${segment}",
                segment = first + SEGMENT,
            ),
            Source::SegmentFilters => match self.segment.as_ref().and_then(|segment| segment.filters.as_ref()) {
                None => contacts("false"),
                Some(filters) if counting => contacts(&filters.period_conditions(first + SEGMENT_FILTERS)),
                Some(filters) => contacts(&filters.conditions(first + SEGMENT_FILTERS)),
            },
            Source::Period => contacts(&self.filters.period_conditions(first + FILTERS)),
        };
        let selected: Vec<String> = sources.iter().map(select).collect();
        selected.join(" UNION ALL ")
    }

    /// The FROM and WHERE clauses that select the recipients as contacts `c` of account `$1`, with the parameters of
    /// [`bind`](Self::bind) from `$first` on.
    pub(super) fn clause(&self, first: usize) -> String {
        let is_reached = format!("{} AND NOT {HAS_OPTED_OUT}", self.is_reachable(first));
        self.select(first, &is_reached)
    }

    /// As [`clause`](Self::clause), with the contacts that cannot be reached or opted out.
    pub(super) fn clause_of_all(&self, first: usize) -> String {
        self.select(first, "true")
    }

    fn select(&self, first: usize, is_reached: &str) -> String {
        // Trees are joined as sets in a pass over all contacts. Contacts that are looked up have few rows each.
        let access = match self.looks_up {
            true => Access::PerContact,
            false => Access::Sets,
        };
        let filters = self.filters.written(first + FILTERS, access, "f");
        let (newcomers, is_newcomer) = self.newcomers(first, access);
        let narrowed = format!("c.account_id = $1 AND c.deleted_at IS NULL AND {is_reached} AND {is_newcomer}");
        let joins = format!("{} {newcomers}", filters.joins);
        match self.sources() {
            Some(sources) if sources.is_empty() => format!("FROM contacts c {joins} WHERE {narrowed} AND false"),
            // The look-up has the key alone: a further condition would make the partial indexes an alternative.
            Some(sources) if self.looks_up => format!(
                "FROM {found} AS k
                 CROSS JOIN LATERAL (SELECT * FROM contacts c WHERE c.account_id = $1 AND c.id = k.id {FENCE}) AS c
                 {joins} WHERE {narrowed} AND {is_chosen}",
                found = self.found(&sources, first),
                is_chosen = self.or_same_person(first, &format!("k.is_source AND {}", filters.condition)),
            ),
            _ => {
                // Without a tree each contact is looked up in the index of the members.
                let access = match self.segment.as_ref().is_some_and(SegmentRule::has_tree) {
                    true => Access::Sets,
                    false => Access::PerContact,
                };
                let (sources, is_selected) = self.is_selected(first, access);
                let is_chosen = self.or_same_person(first, &format!("{} AND {is_selected}", filters.condition));
                format!("FROM contacts c {joins} {sources} WHERE {narrowed} AND {is_chosen}")
            }
        }
    }

    /// The joins and the condition that leave out contacts for which another campaign was started before. Recipient
    /// batches hold those without a send yet.
    fn newcomers(&self, first: usize, access: Access) -> (String, String) {
        if !self.audience.newcomers_only {
            return (String::new(), "true".to_owned());
        }
        let is_other = format!("campaign_id IS DISTINCT FROM ${}", first + CAMPAIGN);
        let batches = format!(
            "LEFT JOIN (SELECT DISTINCT b.id FROM campaign_recipient_batches r
             CROSS JOIN LATERAL unnest(r.contact_ids) AS b (id) WHERE r.account_id = $1 AND r.{is_other}) AS queued
             ON queued.id = c.id"
        );
        match access {
            Access::PerContact => (
                batches,
                format!(
                    "queued.id IS NULL AND NOT EXISTS (SELECT 1 FROM campaign_sends p
                       WHERE p.account_id = $1 AND p.contact_id = c.id AND p.{is_other} {FENCE})"
                ),
            ),
            Access::Sets => (
                format!(
                    "{batches} LEFT JOIN (SELECT DISTINCT p.contact_id AS id FROM campaign_sends p
                       WHERE p.account_id = $1 AND p.{is_other}) AS written ON written.id = c.id"
                ),
                "queued.id IS NULL AND written.id IS NULL".to_owned(),
            ),
        }
    }

    /// The contacts of the sources, and with `Reach::Any` the other contacts of the same persons.
    fn found(&self, sources: &[Source], first: usize) -> String {
        let ids = self.ids(sources, first, false);
        if !self.addressing.by_user_id {
            return format!("(SELECT DISTINCT id, true AS is_source FROM ({ids}) AS source)");
        }
        format!(
            "(SELECT n.id, bool_or(n.is_source) AS is_source FROM (SELECT DISTINCT id FROM ({ids}) AS source) AS s
              CROSS JOIN LATERAL (
                SELECT s.id, true AS is_source
                UNION ALL SELECT p.id, false FROM (
                  SELECT o.id, o.same_person_as FROM contacts o WHERE o.account_id = $1 AND o.id = s.id {FENCE}) AS o
                CROSS JOIN LATERAL same_person_contacts($1, o.id) AS p (id)
                WHERE o.same_person_as IS NOT NULL) AS n
              GROUP BY n.id)"
        )
    }

    /// Whether contact `c` meets the condition, or with `Reach::Any` another contact of the same person is in the
    /// audience: the person is then written to by the one that goes first. An opted-out person is counted by what is
    /// selected.
    fn or_same_person(&self, first: usize, condition: &str) -> String {
        if !self.addressing.by_user_id {
            return condition.to_owned();
        }
        format!(
            "({condition} OR (c.same_person_as IS NOT NULL AND NOT {HAS_OPTED_OUT} AND EXISTS (
               SELECT 1 FROM (SELECT c.id AS known) AS one
               CROSS JOIN LATERAL same_person_contacts($1, one.known) AS p (id)
               JOIN contacts c ON c.account_id = $1 AND c.id = p.id
               WHERE c.deleted_at IS NULL AND {filters} AND {is_selected})))",
            filters = self.filters.written(first + FILTERS, Access::PerContact, "f").condition,
            is_selected = self.is_selected(first, Access::PerContact).1,
        )
    }

    /// Whether contact `c` has an address, and no other contact of the same person is written to.
    fn is_reachable(&self, first: usize) -> String {
        match self.addressing.by_user_id {
            false => "c.phone IS NOT NULL".to_owned(),
            true => format!(
                "(c.phone IS NOT NULL OR {user_id} IS NOT NULL) AND NOT {GOES_FIRST}",
                user_id = user_id(first)
            ),
        }
    }

    /// How contact `c` is reached, or why not. Null: another contact of the same person stands for it.
    pub(super) fn reached(&self, first: usize) -> String {
        let user_id = user_id(first);
        let by_id = match (self.addressing.needs_phone, self.addressing.by_user_id) {
            (true, _) => "authentication_needs_phone",
            (false, true) => "user_id",
            (false, false) => "no_address",
        };
        let goes_first = if self.addressing.by_user_id {
            GOES_FIRST
        } else {
            "false"
        };
        format!(
            "CASE WHEN {HAS_OPTED_OUT} THEN 'opted_out' WHEN {goes_first} THEN NULL WHEN c.phone IS NOT NULL THEN 'phone'
               WHEN {user_id} IS NOT NULL THEN '{by_id}' ELSE 'no_address' END"
        )
    }

    /// The joins and the condition that select the contacts of the sources.
    fn is_selected(&self, first: usize, access: Access) -> (String, String) {
        if self.audience.selects_all_contacts() {
            return (String::new(), "true".to_owned());
        }
        let tags = (!self.audience.tag_ids.is_empty()).then(|| {
            format!(
                "EXISTS (SELECT 1 FROM contact_tags l
                   WHERE l.account_id = $1 AND l.contact_id = c.id AND l.tag_id = ANY (${}))",
                first + TAGS
            )
        });
        let rfm_segments = (!self.audience.rfm_segments.is_empty()).then(|| {
            format!(
                "EXISTS (SELECT 1 FROM contact_rfm r
                   WHERE r.account_id = $1 AND r.contact_id = c.id AND r.segment = ANY (${}))",
                first + RFM_SEGMENTS
            )
        });
        let segment = self
            .segment
            .as_ref()
            .map(|segment| segment.written(first + SEGMENT, access));
        let (joins, segment) = match segment {
            None => (String::new(), None),
            Some(tree) => (tree.joins, Some(tree.condition)),
        };
        // With an OR, a single EXISTS does not become a join, which could read all rows of the source for each contact.
        let sources = [Some("false".to_owned()), tags, rfm_segments, segment];
        let sources: Vec<String> = sources.into_iter().flatten().collect();
        (joins, format!("({})", sources.join(" OR ")))
    }

    /// Binds the parameters of [`clause`](Self::clause).
    pub(super) fn bind<'b>(&self, query: Sql<'b>) -> Sql<'b> {
        let query = query
            .bind(uuids(&self.audience.tag_ids))
            .bind(self.audience.rfm_segments.clone());
        let query = self.filters.bind(query);
        let query = match &self.segment {
            None => BoundFilters::default().bind(query.bind(self.audience.segment_id)),
            Some(segment) => segment.bind(query),
        };
        query.bind(self.addressing.scope.clone()).bind(self.campaign)
    }
}

/// Whether another contact of the same person as contact `c` is written to.
const GOES_FIRST: &str = "(c.same_person_as IS NOT NULL
    AND same_person_goes_first($1, c.id, c.phone, c.same_person_as))";

/// The user id of contact `c` that the number may use.
pub(super) fn user_id(first: usize) -> String {
    format!("fitting_user_id($1, c.id, c.wa_user_id, ${})", first + SCOPE)
}

/// Selects the ids of the account's contacts that meet a condition.
fn contacts(condition: &str) -> String {
    format!("SELECT c.id FROM contacts c WHERE c.account_id = $1 AND c.deleted_at IS NULL AND {condition}")
}
