//! Tags.

use async_trait::async_trait;
use diesel::prelude::{ExpressionMethods, QueryDsl, Queryable, Selectable, SelectableHelper};
use recado_domain::contacts::{Tag, TagStore};
use recado_domain::shared::{AccountId, CursorPage, CursorQuery, RowOutcome, StoreError, TagId};
use uuid::Uuid;

use crate::pool::TenantPool;
use crate::schema::tags;

#[derive(Clone, Debug)]
pub struct PgTags(TenantPool);

impl PgTags {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = tags)]
struct TagRow {
    id: Uuid,
    name: String,
    color: Option<String>,
}

impl From<TagRow> for Tag {
    fn from(row: TagRow) -> Self {
        Self {
            id: row.id.into(),
            name: row.name,
            color: row.color,
        }
    }
}

#[async_trait]
impl TagStore for PgTags {
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Tag>, StoreError> {
        let mut tags = tags::table
            .filter(tags::account_id.eq(account.0))
            .order(tags::id.desc())
            .limit(query.limit + 1)
            .into_boxed();
        if let Some(after) = query.cursor {
            tags = tags.filter(tags::id.lt(after));
        }
        let rows: Vec<TagRow> = self.0.read_rows(account, tags.select(TagRow::as_select())).await?;
        let rows = rows.into_iter().map(Tag::from).collect();
        Ok(CursorPage::cut(rows, query.limit, |tag: &Tag| tag.id))
    }

    async fn insert(&self, account: AccountId, tag: &Tag) -> Result<(), StoreError> {
        let statement = diesel::insert_into(tags::table).values((
            tags::account_id.eq(account.0),
            tags::id.eq(tag.id.0),
            tags::name.eq(&tag.name),
            tags::color.eq(tag.color.as_deref()),
        ));
        self.0.run(account, statement).await.map(drop)
    }

    async fn delete(&self, account: AccountId, id: TagId) -> Result<RowOutcome, StoreError> {
        let statement = diesel::delete(tags::table.find((account.0, id.0)));
        Ok(RowOutcome::of(self.0.run(account, statement).await? > 0))
    }
}
