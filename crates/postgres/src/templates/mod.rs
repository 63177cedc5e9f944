//! The store of message templates.

mod campaigns;
mod read;
mod rows;
mod sync;

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::dsl::auto_type;
use diesel::pg::Pg;
use diesel::prelude::{
    BoolExpressionMethods, ExpressionMethods, PgTextExpressionMethods, QueryDsl, QueryableByName, SelectableHelper,
};
use diesel::sql_types::{Array, Bool, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::folders::FolderKind;
use recado_domain::messaging::MetaStatus;
use recado_domain::shared::{
    AccountId, CursorPage, CursorQuery, Event, Page, PageQuery, RowOutcome, StoreError, TemplateId, WriteOutcome,
};
use recado_domain::templates::{
    SyncReport, SyncedTemplate, Template, TemplateFilter, TemplateKey, TemplateSort, TemplateStore, apply_review,
    category_changing_event, review_events, scheduled_category_change, status_changed_event,
};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::{DbResult, parse_enum};
use crate::folders;
use crate::outbox;
use crate::pool::TenantPool;
use crate::schema::message_templates;
use crate::sql::{like_contains, sql};
use crate::transactions::in_tenant;

pub(crate) use campaigns::pause_template;
pub(crate) use read::{find, find_all, find_locked};
use rows::{Content, TemplateRow};

#[derive(Clone, Debug)]
pub struct PgTemplates(TenantPool);

impl PgTemplates {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

/// A template that is not deleted.
#[auto_type]
fn live(account: AccountId, id: TemplateId) -> _ {
    let key: (Uuid, Uuid) = (account.0, id.0);
    message_templates::table
        .find(key)
        .filter(message_templates::deleted_at.is_null())
}

type Query = message_templates::BoxedQuery<'static, Pg>;

fn filtered(account: AccountId, filter: &TemplateFilter) -> Query {
    let mut query = message_templates::table
        .filter(message_templates::account_id.eq(account.0))
        .filter(message_templates::deleted_at.is_null())
        .into_boxed();
    if let Some(search) = &filter.search {
        let pattern = like_contains(search);
        let name = message_templates::name.ilike(pattern.clone());
        query = query.filter(name.or(message_templates::body_text.ilike(pattern)));
    }
    if let Some(category) = filter.category {
        query = query.filter(message_templates::category.eq(category.as_str()));
    }
    if let Some(status) = filter.meta_status {
        query = query.filter(message_templates::meta_status.eq(status.as_str()));
    }
    if let Some(folder) = filter.folder_id {
        query = query.filter(message_templates::folder_id.eq(folder.0));
    }
    query
}

/// Orders by one column and then by id, both in one direction, for keyset pagination over the pair.
macro_rules! order_by {
    ($query:expr, $column:ident, $descending:expr) => {
        if $descending {
            $query.order((message_templates::$column.desc(), message_templates::id.desc()))
        } else {
            $query.order((message_templates::$column.asc(), message_templates::id.asc()))
        }
    };
}

/// Selects the rows after a pair. The first filter is implied by the second one: it is the condition that an index
/// supports.
macro_rules! after {
    ($query:expr, $column:ident, $descending:expr, $value:expr, $id:expr) => {{
        let (value, id) = ($value, $id);
        let same_value = message_templates::$column.eq(value.clone());
        if $descending {
            let after = message_templates::$column
                .lt(value.clone())
                .or(same_value.and(message_templates::id.lt(id)));
            $query.filter(message_templates::$column.le(value)).filter(after)
        } else {
            let after = message_templates::$column
                .gt(value.clone())
                .or(same_value.and(message_templates::id.gt(id)));
            $query.filter(message_templates::$column.ge(value)).filter(after)
        }
    }};
}

fn ordered(query: Query, filter: &TemplateFilter) -> Query {
    match filter.sort {
        TemplateSort::CreatedAt => order_by!(query, created_at, filter.descending),
        TemplateSort::UpdatedAt => order_by!(query, updated_at, filter.descending),
        TemplateSort::Name => order_by!(query, name, filter.descending),
    }
}

/// The opaque cursor after a template: sort column, its value and the id.
fn cursor(sort: TemplateSort, template: &Template) -> String {
    let value = match sort {
        TemplateSort::CreatedAt => microseconds(template.created_at),
        TemplateSort::UpdatedAt => microseconds(template.updated_at),
        TemplateSort::Name => template.name.clone(),
    };
    hex::encode(format!("{} {} {value}", sort.as_str(), template.id))
}

fn microseconds(time: OffsetDateTime) -> String {
    (time.unix_timestamp_nanos() / 1000).to_string()
}

/// Parses the time of a cursor. `None` for times before 1970, because PostgreSQL's calendar starts later than the
/// type's.
fn parse_time(microseconds: &str) -> Option<OffsetDateTime> {
    let nanoseconds = microseconds.parse::<i128>().ok()?.checked_mul(1000)?;
    let time = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).ok();
    time.filter(|time| *time >= OffsetDateTime::UNIX_EPOCH)
}

/// Selects the templates after a cursor. `None`: the cursor is invalid or belongs to a list with another order.
fn after_cursor(query: Query, filter: &TemplateFilter, cursor: &str) -> Option<Query> {
    let text = String::from_utf8(hex::decode(cursor).ok()?).ok()?;
    let (sort, rest) = text.split_once(' ')?;
    let (id, value) = rest.split_once(' ')?;
    let id: Uuid = id.parse().ok()?;
    if sort != filter.sort.as_str() || value.contains('\0') {
        return None;
    }
    Some(match filter.sort {
        TemplateSort::CreatedAt => after!(query, created_at, filter.descending, parse_time(value)?, id),
        TemplateSort::UpdatedAt => after!(query, updated_at, filter.descending, parse_time(value)?, id),
        TemplateSort::Name => after!(query, name, filter.descending, value.to_owned(), id),
    })
}

/// Optimistic locking: writes `template` if the stored version and status are those of `expected`, and appends `events`
/// and the webhook events of the change to the outbox. Otherwise, returns `Stale` with the stored status, or `Missing`.
async fn update(
    conn: &mut AsyncPgConnection,
    template: &Template,
    expected: &Template,
    events: &[Event],
) -> DbResult<WriteOutcome<MetaStatus>> {
    folders::check(conn, template.account_id, template.folder_id, FolderKind::Template).await?;
    let unchanged = live(template.account_id, template.id)
        .filter(message_templates::meta_status.eq(expected.meta_status.as_str()))
        .filter(message_templates::version.eq(expected.version));
    if diesel::update(unchanged)
        .set((
            Content::from(template),
            message_templates::version.eq(message_templates::version + 1),
        ))
        .execute(&mut *conn)
        .await?
        > 0
    {
        outbox::append(conn, template.account_id, events).await?;
        let webhook_events = webhook_events(conn, template, expected).await?;
        outbox::append(conn, template.account_id, &webhook_events).await?;
        return Ok(WriteOutcome::Done);
    }
    let status: Option<String> = live(template.account_id, template.id)
        .select(message_templates::meta_status)
        .first(conn)
        .await
        .optional()?;
    Ok(match status {
        Some(status) => WriteOutcome::Stale(parse_enum(&status)?),
        None => WriteOutcome::Missing,
    })
}

/// Webhook events for a new status or category, and for a category change that WhatsApp has scheduled.
async fn webhook_events(conn: &mut AsyncPgConnection, template: &Template, before: &Template) -> DbResult<Vec<Event>> {
    let mut events = vec![status_changed_event([(before.meta_status, before.category, template)])];
    if let Some(change) = scheduled_category_change(before, template) {
        let campaigns = campaigns::active_campaigns(conn, template.account_id, template.id).await?;
        events.push(category_changing_event(template, change, &campaigns));
    }
    Ok(events)
}

#[derive(QueryableByName)]
struct NowRow {
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

/// Stores the status, unless the template was changed since its submission, and pauses the runs of the template.
pub(crate) async fn review(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    template: TemplateId,
    status: MetaStatus,
) -> DbResult<()> {
    let locked: Option<NowRow> = sql("SELECT now() AS now FROM message_templates
         WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE")
    .bind(account)
    .bind(template)
    .get_result(&mut *conn)
    .await
    .optional()?;
    if let (Some(row), Some(template)) = (locked, find(conn, account, template, false).await?)
        && let Some(reviewed) = apply_review(&template, status.into(), row.now)
    {
        update(conn, &reviewed, &template, &review_events(&template, &reviewed)).await?;
    }
    // Runs pause last, as after a synchronization.
    match status.pause_reason() {
        Some(reason) => pause_template(conn, account, template, reason).await,
        None => Ok(()),
    }
}

async fn delete(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: TemplateId,
    now: OffsetDateTime,
    events: &[Event],
) -> DbResult<bool> {
    let deletion = (
        message_templates::deleted_at.eq(now),
        message_templates::updated_at.eq(now),
        message_templates::version.eq(message_templates::version + 1),
    );
    if diesel::update(live(account, id))
        .set(deletion)
        .execute(&mut *conn)
        .await?
        == 0
    {
        return Ok(false);
    }
    outbox::append(conn, account, events).await?;
    Ok(true)
}

async fn insert(conn: &mut AsyncPgConnection, template: &Template) -> DbResult<()> {
    folders::check(conn, template.account_id, template.folder_id, FolderKind::Template).await?;
    let keys = (
        message_templates::account_id.eq(template.account_id.0),
        message_templates::id.eq(template.id.0),
        message_templates::created_at.eq(template.created_at),
    );
    let values = (keys, Content::from(template));
    let insert = diesel::insert_into(message_templates::table).values(values);
    insert.execute(conn).await?;
    Ok(())
}

#[async_trait]
impl TemplateStore for PgTemplates {
    async fn page(
        &self,
        account: AccountId,
        filter: &TemplateFilter,
        page: PageQuery,
    ) -> Result<Page<Template>, StoreError> {
        let matching = filtered(account, filter);
        let page_query = ordered(filtered(account, filter), filter)
            .limit(page.limit())
            .offset(page.offset());
        let (total, rows): (i64, Vec<TemplateRow>) = self
            .0
            .read_page::<i64, _, _, _>(account, matching.count(), page_query.select(TemplateRow::as_select()))
            .await?;
        let templates = rows.into_iter().map(Template::try_from).collect::<Result<_, _>>()?;
        Ok(Page::new(page, templates, total))
    }

    async fn cursor_page(
        &self,
        account: AccountId,
        filter: &TemplateFilter,
        query: &CursorQuery<String>,
    ) -> Result<CursorPage<Template>, StoreError> {
        let mut page = ordered(filtered(account, filter), filter).limit(query.limit + 1);
        if let Some(cursor) = &query.cursor {
            page = after_cursor(page, filter, cursor).ok_or(StoreError::UnknownReference { field: "cursor" })?;
        }
        let rows: Vec<TemplateRow> = self.0.read_rows(account, page.select(TemplateRow::as_select())).await?;
        let templates = rows.into_iter().map(Template::try_from).collect::<Result<_, _>>()?;
        Ok(CursorPage::cut(templates, query.limit, |template: &Template| {
            cursor(filter.sort, template)
        }))
    }

    async fn find(&self, account: AccountId, id: TemplateId) -> Result<Option<Template>, StoreError> {
        let template = live(account, id).select(TemplateRow::as_select());
        let row: Option<TemplateRow> = self.0.read_row_if_any(account, template).await?;
        row.map(Template::try_from).transpose()
    }

    async fn insert(&self, template: &Template) -> Result<(), StoreError> {
        in_tenant!(self.0, template.account_id, |conn| insert(conn, template))
    }

    async fn update(
        &self,
        template: &Template,
        expected: &Template,
        events: &[Event],
    ) -> Result<WriteOutcome<MetaStatus>, StoreError> {
        in_tenant!(self.0, template.account_id, |conn| update(
            conn, template, expected, events
        ))
    }

    async fn delete(
        &self,
        account: AccountId,
        id: TemplateId,
        now: OffsetDateTime,
        events: &[Event],
    ) -> Result<RowOutcome, StoreError> {
        in_tenant!(self.0, account, |conn| delete(conn, account, id, now, events)).map(RowOutcome::of)
    }

    async fn named(&self, account: AccountId, keys: &[TemplateKey]) -> Result<Vec<Template>, StoreError> {
        let names: Vec<String> = keys.iter().map(|key| key.name.clone()).collect();
        let languages: Vec<String> = keys.iter().map(|key| key.language.clone()).collect();
        // The limit lets the planner expect one key, as in `sql::key_rows`.
        let has_key = diesel::dsl::sql::<Bool>("(name, language) IN (SELECT * FROM unnest(")
            .bind::<Array<Text>, _>(names.clone())
            .sql(", ")
            .bind::<Array<Text>, _>(languages)
            .sql(") LIMIT (SELECT cardinality(")
            .bind::<Array<Text>, _>(names)
            .sql(")))");
        let named = message_templates::table
            .filter(message_templates::account_id.eq(account.0))
            .filter(message_templates::deleted_at.is_null())
            .filter(has_key)
            .into_boxed();
        let rows: Vec<TemplateRow> = self
            .0
            .read_rows(account, named.select(TemplateRow::as_select()))
            .await?;
        rows.into_iter().map(Template::try_from).collect()
    }

    async fn sync(&self, account: AccountId, templates: &[SyncedTemplate]) -> Result<SyncReport, StoreError> {
        if templates.is_empty() {
            return Ok(SyncReport::default());
        }
        in_tenant!(self.0, account, |conn| sync::write(conn, account, templates))
    }

    async fn find_by_meta_id(&self, account: AccountId, meta_id: &str) -> Result<Option<Template>, StoreError> {
        let template = message_templates::table
            .filter(message_templates::account_id.eq(account.0))
            .filter(message_templates::meta_template_id.eq(meta_id.to_owned()))
            .filter(message_templates::deleted_at.is_null())
            .order(message_templates::id.desc())
            .limit(1)
            .select(TemplateRow::as_select());
        let row: Option<TemplateRow> = self.0.read_row_if_any(account, template).await?;
        row.map(Template::try_from).transpose()
    }
}
