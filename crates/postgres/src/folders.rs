//! Folders.

use async_trait::async_trait;
use diesel::dsl::exists;
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, QueryDsl, Queryable, Selectable, SelectableHelper};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::folders::{Folder, FolderKind, FolderQuery, FolderStore};
use recado_domain::shared::{AccountId, CursorPage, FolderId, RowOutcome, StoreError};
use uuid::Uuid;

use crate::errors::{DbError, DbResult, parse_enum};
use crate::pool::TenantPool;
use crate::schema::{campaigns, folders, message_templates};
use crate::transactions::in_tenant;

#[derive(Clone, Debug)]
pub struct PgFolders(TenantPool);

impl PgFolders {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = folders, check_for_backend(Pg))]
struct FolderRow {
    id: Uuid,
    name: String,
    kind: String,
}

impl TryFrom<FolderRow> for Folder {
    type Error = StoreError;

    fn try_from(row: FolderRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.into(),
            name: row.name,
            kind: parse_enum(&row.kind)?,
        })
    }
}

/// Rejects a folder that does not exist or has another kind. The kind never changes, so the check remains valid until
/// the foreign key is checked at the end of the writing statement.
pub(crate) async fn check(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    folder: Option<FolderId>,
    kind: FolderKind,
) -> DbResult<()> {
    let Some(folder) = folder else {
        return Ok(());
    };
    let found = folders::table
        .find((account.0, folder.0))
        .filter(folders::kind.eq(kind.as_str()));
    match diesel::select(exists(found)).get_result(conn).await? {
        true => Ok(()),
        false => Err(DbError::Store(StoreError::UnknownReference { field: "folder_id" })),
    }
}

/// Deletes the folder and removes its campaigns and templates from it. The lock comes first: a writer that puts
/// something into the folder at the same time has either committed before, or fails on the foreign key.
async fn delete(conn: &mut AsyncPgConnection, account: AccountId, id: FolderId) -> DbResult<bool> {
    let folder = folders::table.find((account.0, id.0));
    folder.select(folders::id).for_update().execute(&mut *conn).await?;
    diesel::update(campaigns::table)
        .filter(campaigns::account_id.eq(account.0))
        .filter(campaigns::folder_id.eq(id.0))
        .set(campaigns::folder_id.eq(None::<Uuid>))
        .execute(&mut *conn)
        .await?;
    diesel::update(message_templates::table)
        .filter(message_templates::account_id.eq(account.0))
        .filter(message_templates::folder_id.eq(id.0))
        .set(message_templates::folder_id.eq(None::<Uuid>))
        .execute(&mut *conn)
        .await?;
    let deleted = diesel::delete(folder).execute(conn).await?;
    Ok(deleted > 0)
}

#[async_trait]
impl FolderStore for PgFolders {
    async fn list(&self, account: AccountId, query: &FolderQuery) -> Result<CursorPage<Folder>, StoreError> {
        let limit = query.page.limit;
        let mut listed = folders::table
            .filter(folders::account_id.eq(account.0))
            .filter(folders::id.lt(query.page.cursor.unwrap_or(Uuid::max())))
            .order(folders::id.desc())
            .limit(limit + 1)
            .select(FolderRow::as_select())
            .into_boxed();
        if let Some(kind) = query.kind {
            listed = listed.filter(folders::kind.eq(kind.as_str()));
        }
        let rows: Vec<FolderRow> = self.0.read_rows(account, listed).await?;
        let rows = rows.into_iter().map(Folder::try_from).collect::<Result<_, _>>()?;
        Ok(CursorPage::cut(rows, limit, |folder: &Folder| folder.id))
    }

    async fn insert(&self, account: AccountId, folder: &Folder) -> Result<(), StoreError> {
        let statement = diesel::insert_into(folders::table).values((
            folders::account_id.eq(account.0),
            folders::id.eq(folder.id.0),
            folders::name.eq(&folder.name),
            folders::kind.eq(folder.kind.as_str()),
        ));
        self.0.run(account, statement).await.map(drop)
    }

    async fn delete(&self, account: AccountId, id: FolderId) -> Result<RowOutcome, StoreError> {
        in_tenant!(self.0, account, |conn| delete(conn, account, id)).map(RowOutcome::of)
    }
}
