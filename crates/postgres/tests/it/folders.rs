//! Folders, and what becomes of what lay in them.

use recado_domain::campaigns::{Campaign, CampaignStore};
use recado_domain::folders::{Folder, FolderKind, FolderQuery, FolderStore};
use recado_domain::shared::{AccountId, CursorQuery, FolderId, StoreError};
use recado_domain::templates::{Template, TemplateStore};
use recado_postgres::PgFolders;
use uuid::Uuid;

use crate::support::{DbFixture, id, position};

async fn made(fixture: &DbFixture, account: AccountId, kind: FolderKind) -> FolderId {
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
    let other = fixture.another_account().await;
    made(&fixture, other, FolderKind::Campaign).await;
    let a = made(&fixture, fixture.account, FolderKind::Campaign).await;
    let b = made(&fixture, fixture.account, FolderKind::Template).await;
    let c = made(&fixture, fixture.account, FolderKind::Campaign).await;
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
async fn what_lay_in_a_folder_stays_without_one() {
    let fixture = DbFixture::new().await;
    let store = PgFolders::new(fixture.tenants.clone());
    let other = fixture.another_account().await;
    let (campaigns, templates, kept) = (
        made(&fixture, fixture.account, FolderKind::Campaign).await,
        made(&fixture, fixture.account, FolderKind::Template).await,
        made(&fixture, fixture.account, FolderKind::Campaign).await,
    );
    let inside = |folder| Campaign {
        folder_id: Some(folder),
        ..fixture.draft()
    };
    let (gone, stays) = (inside(campaigns), inside(kept));
    fixture.campaigns().insert(&gone, &[]).await.unwrap();
    fixture.campaigns().insert(&stays, &[]).await.unwrap();
    let template = Template {
        folder_id: Some(templates),
        ..fixture.template("promo")
    };
    fixture.templates().insert(&template).await.unwrap();
    for folder in [campaigns, templates] {
        assert!(!store.delete(other, folder).await.unwrap());
        assert!(store.delete(fixture.account, folder).await.unwrap());
        assert!(!store.delete(fixture.account, folder).await.unwrap());
    }
    let folder_of = async |campaign: &Campaign| {
        let found = fixture.campaigns().find(fixture.account, campaign.id).await.unwrap();
        found.unwrap().folder_id
    };
    assert_eq!(folder_of(&gone).await, None);
    assert_eq!(folder_of(&stays).await, Some(kept));
    let template = fixture
        .templates()
        .find(fixture.account, template.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(template.folder_id, None);
}

#[tokio::test]
async fn a_folder_takes_what_it_is_for() {
    let fixture = DbFixture::new().await;
    let (campaigns, templates) = (
        made(&fixture, fixture.account, FolderKind::Campaign).await,
        made(&fixture, fixture.account, FolderKind::Template).await,
    );
    let foreign = made(&fixture, fixture.another_account().await, FolderKind::Template).await;
    for (folder, dangling) in [(campaigns, vec![]), (templates, vec!["folder_id".to_owned()])] {
        let campaign = Campaign {
            folder_id: Some(folder),
            ..fixture.draft()
        };
        let found = fixture.campaigns().unknown_references(fixture.account, &campaign).await;
        assert_eq!(found.unwrap(), dangling);
    }
    let store = fixture.templates();
    let fine = Template {
        folder_id: Some(templates),
        ..fixture.template("fine")
    };
    store.insert(&fine).await.unwrap();
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
            ..fine.clone()
        };
        let refused = store.update(&moved, &fine, &[]).await;
        assert!(
            matches!(refused, Err(StoreError::UnknownReference { field: "folder_id" })),
            "{refused:?}"
        );
    }
    let found = store.find(fixture.account, fine.id).await.unwrap().unwrap();
    assert_eq!(found.folder_id, Some(templates));
}
