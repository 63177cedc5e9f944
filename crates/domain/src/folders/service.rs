//! The use cases of folders.

use std::sync::Arc;

use super::{Folder, FolderError, FolderKind, FolderQuery, FolderStore};
use crate::shared::{CursorPage, FieldErrors, FolderId, Ids, Tenant, text};

const NAME_CHARS: usize = 100;

/// Lists, creates and deletes folders.
pub struct Folders {
    store: Arc<dyn FolderStore>,
    ids: Arc<dyn Ids>,
}

impl Folders {
    pub fn new(store: Arc<dyn FolderStore>, ids: Arc<dyn Ids>) -> Self {
        Self { store, ids }
    }

    /// The account's folders, newest first.
    pub async fn list(&self, tenant: &Tenant, query: &FolderQuery) -> Result<CursorPage<Folder>, FolderError> {
        Ok(self.store.list(tenant.account_id, query).await?)
    }

    /// Creates a folder. `kind` is the name of a [`FolderKind`].
    pub async fn create(&self, tenant: &Tenant, name: &str, kind: &str) -> Result<Folder, FolderError> {
        let mut errors = FieldErrors::default();
        let name = text::sanitize(name);
        if name.is_empty() || name.chars().count() > NAME_CHARS {
            errors.add("name", format!("must have 1 to {NAME_CHARS} characters"));
        }
        let kind = match kind.parse::<FolderKind>() {
            Ok(kind) => kind,
            Err(message) => {
                errors.add("kind", message);
                return Err(errors.into());
            }
        };
        errors.into_result()?;
        let id = self.ids.next().into();
        let folder = Folder { id, name, kind };
        self.store.insert(tenant.account_id, &folder).await?;
        Ok(folder)
    }

    /// Deletes a folder. Its items remain, without a folder.
    pub async fn delete(&self, tenant: &Tenant, id: FolderId) -> Result<(), FolderError> {
        self.store
            .delete(tenant.account_id, id)
            .await?
            .or_missing(FolderError::NotFound)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::MockFolderStore;
    use super::*;
    use crate::shared::{AccountId, MockIds, Role, RowOutcome, UserId};

    fn folders(store: MockFolderStore) -> Folders {
        let mut ids = MockIds::new();
        ids.expect_next().returning(|| Uuid::from_u128(1));
        Folders::new(Arc::new(store), Arc::new(ids))
    }

    fn tenant() -> Tenant {
        Tenant::for_tests(AccountId(Uuid::from_u128(9)), UserId(Uuid::nil()), Role::Member)
    }

    #[tokio::test]
    async fn folder_needs_a_name_and_a_kind() {
        let mut store = MockFolderStore::new();
        store.expect_insert().times(1).returning(|_, _| Ok(()));
        let folders = folders(store);
        let long = "x".repeat(101);
        let cases = [
            ("", "campaign", vec!["name"]),
            (" <b> ", "template", vec!["name"]),
            (&long, "campaign", vec!["name"]),
            ("x", "contact", vec!["kind"]),
            ("", "", vec!["kind", "name"]),
        ];
        for (name, kind, invalid_fields) in cases {
            let Err(FolderError::Invalid(errors)) = folders.create(&tenant(), name, kind).await else {
                panic!("{name} {kind}")
            };
            assert_eq!(errors.0.keys().collect::<Vec<_>>(), invalid_fields);
        }
        let made = folders.create(&tenant(), " Datas  <i>especiais</i> ", "template").await;
        let made = made.unwrap();
        assert_eq!(
            (made.name.as_str(), made.kind),
            ("Datas especiais", FolderKind::Template)
        );
    }

    #[tokio::test]
    async fn unknown_folder_is_not_found() {
        let mut store = MockFolderStore::new();
        store.expect_delete().returning(|_, _| Ok(RowOutcome::Missing));
        let missing = folders(store).delete(&tenant(), FolderId(Uuid::nil())).await;
        assert!(matches!(missing, Err(FolderError::NotFound)));
    }
}
