//! Folders.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::folders::{Folder, FolderKind, FolderQuery, FolderStore};
use recado_domain::shared::{AccountId, CursorPage, FolderId, StoreError};
use uuid::Uuid;

use crate::errors::{DbError, DbResult, parse_enum};
use crate::pool::TenantPool;
use crate::sql::{FlagRow, sql};
use crate::transactions::in_tenant;

#[derive(Clone, Debug)]
pub struct PgFolders(TenantPool);

impl PgFolders {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

#[derive(QueryableByName)]
struct FolderRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Text)]
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
    let folder_exists: FlagRow =
        sql("SELECT EXISTS (SELECT 1 FROM folders WHERE account_id = $1 AND id = $2 AND kind = $3) AS yes")
            .bind(account)
            .bind(folder)
            .bind(kind.as_str())
            .get_result(conn)
            .await?;
    match folder_exists.yes {
        true => Ok(()),
        false => Err(DbError::Store(StoreError::UnknownReference { field: "folder_id" })),
    }
}

/// Deletes the folder and removes its campaigns and templates from it. The lock comes first: a writer that puts
/// something into the folder at the same time has either committed before, or fails on the foreign key.
async fn delete(conn: &mut AsyncPgConnection, account: AccountId, id: FolderId) -> DbResult<bool> {
    let statements = [
        "SELECT 1 FROM folders WHERE account_id = $1 AND id = $2 FOR UPDATE",
        "UPDATE campaigns SET folder_id = NULL WHERE account_id = $1 AND folder_id = $2",
        "UPDATE message_templates SET folder_id = NULL WHERE account_id = $1 AND folder_id = $2",
    ];
    for statement in statements {
        sql(statement).bind(account).bind(id).execute(&mut *conn).await?;
    }
    let deleted = sql("DELETE FROM folders WHERE account_id = $1 AND id = $2")
        .bind(account)
        .bind(id)
        .execute(conn)
        .await?;
    Ok(deleted > 0)
}

#[async_trait]
impl FolderStore for PgFolders {
    async fn list(&self, account: AccountId, query: &FolderQuery) -> Result<CursorPage<Folder>, StoreError> {
        let limit = query.page.limit;
        let listed = sql("SELECT id, name, kind FROM folders
             WHERE account_id = $1 AND id < $2 AND ($3 IS NULL OR kind = $3) ORDER BY id DESC LIMIT $4")
        .bind(account)
        .bind(query.page.cursor.unwrap_or(Uuid::max()))
        .bind(query.kind.map(FolderKind::as_str))
        .bind(limit + 1);
        let rows: Vec<FolderRow> = self.0.read_rows(account, listed).await?;
        let rows = rows.into_iter().map(Folder::try_from).collect::<Result<_, _>>()?;
        Ok(CursorPage::cut(rows, limit, |folder: &Folder| folder.id))
    }

    async fn insert(&self, account: AccountId, folder: &Folder) -> Result<(), StoreError> {
        let statement = sql("INSERT INTO folders (account_id, id, name, kind) VALUES ($1, $2, $3, $4)")
            .bind(account)
            .bind(folder.id)
            .bind(folder.name.as_str())
            .bind(folder.kind.as_str());
        self.0.run(account, statement).await.map(drop)
    }

    async fn delete(&self, account: AccountId, id: FolderId) -> Result<bool, StoreError> {
        in_tenant!(self.0, account, |conn| delete(conn, account, id))
    }
}
