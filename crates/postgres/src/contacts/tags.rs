//! Tags.

use async_trait::async_trait;
use diesel::prelude::{ExpressionMethods, QueryDsl, Queryable, Selectable, SelectableHelper};
use diesel_async::RunQueryDsl;
use recado_domain::contacts::{Tag, TagStore};
use recado_domain::shared::{AccountId, Slice, SliceQuery, StoreError, TagId};
use uuid::Uuid;

use crate::errors::{Fault, retry};
use crate::pool::TenantPool;
use crate::schema::tags;

/// Tags.
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
    async fn list(&self, account: AccountId, query: &SliceQuery) -> Result<Slice<Tag>, StoreError> {
        let mut tags = tags::table
            .filter(tags::account_id.eq(account.0))
            .order(tags::id.desc())
            .limit(query.limit + 1)
            .into_boxed();
        if let Some(cursor) = &query.cursor {
            let Ok(after) = cursor.parse::<Uuid>() else {
                return Ok(Slice::cut(vec![], query.limit, |_| String::new()));
            };
            tags = tags.filter(tags::id.lt(after));
        }
        let rows: Vec<TagRow> = self
            .0
            .read(account, |mut conn| {
                Box::pin(async move { Ok(tags.select(TagRow::as_select()).load(&mut conn).await?) })
            })
            .await?;
        let rows = rows.into_iter().map(Tag::from).collect();
        Ok(Slice::cut(rows, query.limit, |tag: &Tag| tag.id.to_string()))
    }

    async fn insert(&self, account: AccountId, tag: &Tag) -> Result<(), StoreError> {
        let values = (
            tags::account_id.eq(account.0),
            tags::id.eq(tag.id.0),
            tags::name.eq(&tag.name),
            tags::color.eq(tag.color.as_deref()),
        );
        retry(|| async {
            let mut tx = self.0.begin(account).await?;
            let insert = diesel::insert_into(tags::table).values(values);
            let inserted = insert.execute(tx.conn()?).await;
            tx.end(inserted.map(|_| ()).map_err(Fault::from)).await
        })
        .await
    }

    async fn delete(&self, account: AccountId, id: TagId) -> Result<bool, StoreError> {
        let one = tags::table
            .filter(tags::account_id.eq(account.0))
            .filter(tags::id.eq(id.0));
        retry(|| async {
            let mut tx = self.0.begin(account).await?;
            let deleted = diesel::delete(one).execute(tx.conn()?).await;
            tx.end(deleted.map(|rows| rows > 0).map_err(Fault::from)).await
        })
        .await
    }
}
