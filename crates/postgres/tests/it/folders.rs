//! Folders, and the campaigns and templates in them.

use recado_domain::campaigns::{Campaign, CampaignStore};
use recado_domain::folders::{Folder, FolderKind, FolderQuery, FolderStore};
use recado_domain::shared::{AccountId, CursorQuery, FolderId, StoreError};
use recado_domain::templates::{Template, TemplateStore};
use recado_postgres::PgFolders;
use uuid::Uuid;

use crate::support::{DbFixture, id, position};

async fn insert_folder(fixture: &DbFixture, account: AccountId, kind: FolderKind) -> FolderId {
    let folder = Folder {
        id: id().into(),
        name: "Datas".into(),
        kind,
    };
    PgFolders::new(fixture.tenants.clone())
        .insert(account, &folder)
        .await
        .unwrap();
    folder.id
}

#[tokio::test]
async fn folders_are_listed_by_kind_and_account() {
    let fixture = DbFixture::new().await;
    let store = PgFolders::new(fixture.tenants.clone());
    let other_account = fixture.another_account().await;
    insert_folder(&fixture, other_account, FolderKind::Campaign).await;
    let a = insert_folder(&fixture, fixture.account, FolderKind::Campaign).await;
    let b = insert_folder(&fixture, fixture.account, FolderKind::Template).await;
    let c = insert_folder(&fixture, fixture.account, FolderKind::Campaign).await;
    let list = async |kind, cursor: Option<Uuid>, limit| {
        let page = CursorQuery { cursor, limit };
        let listed = store.list(fixture.account, &FolderQuery { kind, page }).await.unwrap();
        let ids: Vec<FolderId> = listed.data.iter().map(|folder| folder.id).collect();
        (ids, position(listed.next_cursor))
    };
    assert_eq!(list(None, None, 10).await, (vec![c, b, a], None));
    assert_eq!(list(Some(FolderKind::Template), None, 10).await, (vec![b], None));
    let (first, cursor) = list(Some(FolderKind::Campaign), None, 1).await;
    assert_eq!(first, [c]);
    assert_eq!(list(Some(FolderKind::Campaign), cursor, 1).await, (vec![a], None));
}

#[tokio::test]
async fn folder_deletion_leaves_its_contents_without_folder() {
    let fixture = DbFixture::new().await;
    let store = PgFolders::new(fixture.tenants.clone());
    let other_account = fixture.another_account().await;
    let (campaigns, templates, other_folder) = (
        insert_folder(&fixture, fixture.account, FolderKind::Campaign).await,
        insert_folder(&fixture, fixture.account, FolderKind::Template).await,
        insert_folder(&fixture, fixture.account, FolderKind::Campaign).await,
    );
    let campaign_in = |folder| Campaign {
        folder_id: Some(folder),
        ..fixture.draft()
    };
    let (moved, unchanged) = (campaign_in(campaigns), campaign_in(other_folder));
    fixture.campaigns().insert(&moved, &[]).await.unwrap();
    fixture.campaigns().insert(&unchanged, &[]).await.unwrap();
    let template = Template {
        folder_id: Some(templates),
        ..fixture.template("promo")
    };
    fixture.templates().insert(&template).await.unwrap();
    for folder in [campaigns, templates] {
        assert!(!store.delete(other_account, folder).await.unwrap().is_done());
        assert!(store.delete(fixture.account, folder).await.unwrap().is_done());
        assert!(!store.delete(fixture.account, folder).await.unwrap().is_done());
    }
    let folder_of = async |campaign: &Campaign| {
        let found = fixture.campaigns().find(fixture.account, campaign.id).await.unwrap();
        found.unwrap().folder_id
    };
    assert_eq!(folder_of(&moved).await, None);
    assert_eq!(folder_of(&unchanged).await, Some(other_folder));
    let template = fixture
        .templates()
        .find(fixture.account, template.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(template.folder_id, None);
}

#[tokio::test]
async fn folder_accepts_only_contents_of_its_kind() {
    let fixture = DbFixture::new().await;
    let (campaigns, templates) = (
        insert_folder(&fixture, fixture.account, FolderKind::Campaign).await,
        insert_folder(&fixture, fixture.account, FolderKind::Template).await,
    );
    let foreign = insert_folder(&fixture, fixture.another_account().await, FolderKind::Template).await;
    for (folder, unknown) in [(campaigns, vec![]), (templates, vec!["folder_id".to_owned()])] {
        let campaign = Campaign {
            folder_id: Some(folder),
            ..fixture.draft()
        };
        let found = fixture.campaigns().unknown_references(fixture.account, &campaign).await;
        assert_eq!(found.unwrap(), unknown);
    }
    let store = fixture.templates();
    let valid = Template {
        folder_id: Some(templates),
        ..fixture.template("valid")
    };
    store.insert(&valid).await.unwrap();
    for wrong in [campaigns, foreign, FolderId(id())] {
        let inside = |name: &str| Template {
            folder_id: Some(wrong),
            ..fixture.template(name)
        };
        let refused = store.insert(&inside("wrong")).await;
        assert!(
            matches!(refused, Err(StoreError::UnknownReference { field: "folder_id" })),
            "{refused:?}"
        );
        let moved = Template {
            folder_id: Some(wrong),
            ..valid.clone()
        };
        let refused = store.update(&moved, &valid, &[]).await;
        assert!(
            matches!(refused, Err(StoreError::UnknownReference { field: "folder_id" })),
            "{refused:?}"
        );
    }
    let found = store.find(fixture.account, valid.id).await.unwrap().unwrap();
    assert_eq!(found.folder_id, Some(templates));
}
