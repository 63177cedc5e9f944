//! Uploads to an in-memory store: accepted files, rejected files, and the removal of rejected ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::shared::{AccountId, MockIds, Role, Tenant, UserId};

pub(crate) const ACCOUNT: AccountId = AccountId(Uuid::from_u128(9));

/// Files in memory.
#[derive(Default)]
pub(crate) struct FakeMediaStore {
    pub(crate) files: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Files that were begun and not yet committed or dropped.
    open: Mutex<usize>,
    broken: bool,
    /// How many calls of `size` fail before one succeeds.
    pub(crate) failures: Mutex<usize>,
}

struct Draft {
    media_store: Arc<FakeMediaStore>,
    path: String,
    bytes: Vec<u8>,
}

impl Drop for Draft {
    fn drop(&mut self) {
        *self.media_store.open.lock().unwrap() -= 1;
    }
}

pub(crate) struct MemoryStore(pub(crate) Arc<FakeMediaStore>);

#[async_trait]
impl MediaStore for MemoryStore {
    async fn begin(&self, path: &MediaPath) -> Result<Box<dyn MediaWrite>, MediaStoreError> {
        *self.0.open.lock().unwrap() += 1;
        Ok(Box::new(Draft {
            media_store: self.0.clone(),
            path: path.to_string(),
            bytes: vec![],
        }))
    }

    async fn size(&self, path: &MediaPath) -> Result<Option<u64>, MediaStoreError> {
        let mut failures = self.0.failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return Err(MediaStoreError::Failed("no answer".into()));
        }
        let files = self.0.files.lock().unwrap();
        Ok(files
            .get(&path.to_string())
            .map(|bytes| bytes.len().try_into().unwrap()))
    }

    async fn read(&self, path: &MediaPath, from: u64) -> Result<Option<MediaStream>, MediaStoreError> {
        let files = self.0.files.lock().unwrap();
        let bytes = files.get(&path.to_string()).cloned();
        Ok(bytes.map(|bytes| {
            let rest = Bytes::from(bytes).slice(usize::try_from(from).unwrap()..);
            stream::once(async { Ok(rest) }).boxed()
        }))
    }

    async fn delete(&self, path: &MediaPath) -> Result<(), MediaStoreError> {
        self.0.files.lock().unwrap().remove(&path.to_string());
        Ok(())
    }

    async fn delete_account(&self, account: AccountId) -> Result<(), MediaStoreError> {
        let prefix = format!("{account}/");
        self.0
            .files
            .lock()
            .unwrap()
            .retain(|path, _| !path.starts_with(&prefix));
        Ok(())
    }
}

#[async_trait]
impl MediaWrite for Draft {
    async fn write(&mut self, chunk: Bytes) -> Result<(), MediaStoreError> {
        self.bytes.extend_from_slice(&chunk);
        if self.media_store.broken {
            return Err(MediaStoreError::Failed("disk full".into()));
        }
        Ok(())
    }

    async fn commit(self: Box<Self>) -> Result<(), MediaStoreError> {
        let mut files = self.media_store.files.lock().unwrap();
        files.insert(self.path.clone(), self.bytes.clone());
        Ok(())
    }

    async fn discard(self: Box<Self>) {}
}

/// Media in memory, published under `https://media.example`.
pub(crate) fn media(media_store: &Arc<FakeMediaStore>) -> Media {
    let mut ids = MockIds::new();
    ids.expect_next().returning(|| Uuid::from_u128(5));
    let store = Arc::new(MemoryStore(media_store.clone()));
    Media::new(store, MediaAddress::new("https://media.example/"), Arc::new(ids))
}

fn tenant() -> Tenant {
    Tenant::for_tests(ACCOUNT, UserId(Uuid::nil()), Role::Member)
}

async fn upload(
    media_store: &Arc<FakeMediaStore>,
    name: Option<&str>,
    chunks: &[&[u8]],
) -> Result<StoredMedia, MediaError> {
    let mut upload = media(media_store).upload(&tenant(), name);
    for chunk in chunks {
        upload.feed(Bytes::copy_from_slice(chunk)).await?;
    }
    upload.finish().await
}

fn is_empty(media_store: &FakeMediaStore) -> bool {
    media_store.files.lock().unwrap().is_empty() && *media_store.open.lock().unwrap() == 0
}

const PNG: &[u8] = b"\x89PNG\r\n\x1A\n0123456789";

#[tokio::test]
async fn upload_is_stored_by_account_and_type() {
    let media_store = Arc::<FakeMediaStore>::default();
    let stored = upload(&media_store, Some("../../oferta.html"), &[PNG]).await.unwrap();
    let path = format!("{ACCOUNT}/{}.png", Uuid::from_u128(5));
    assert_eq!(stored.url, format!("https://media.example/{path}"));
    assert_eq!(
        (stored.kind, stored.size, stored.name.as_str()),
        (MediaType::Png, 18, "oferta.html")
    );
    assert_eq!(media_store.files.lock().unwrap().get(&path).unwrap(), PNG);
}

#[tokio::test]
async fn rejected_upload_leaves_nothing_in_the_store() {
    let media_store = Arc::<FakeMediaStore>::default();
    let large = vec![0; 5 * 1_048_576 - PNG.len() + 1];
    for chunks in [
        vec![&b"<html>named.png"[..]],
        vec![&b"%PD"[..]],
        vec![],
        vec![PNG, &large[..]],
        vec![PNG, &large[1..], &large[..1]],
    ] {
        let refused = upload(&media_store, Some("a.png"), &chunks).await;
        assert!(
            matches!(&refused, Err(MediaError::Invalid(e)) if e.0.contains_key("file")),
            "{refused:?}"
        );
        assert!(is_empty(&media_store));
    }
    assert!(
        upload(&media_store, None, &[PNG, &large[1..]]).await.is_ok(),
        "exactly the limit"
    );
}

#[tokio::test]
async fn failed_or_dropped_upload_leaves_nothing_in_the_store() {
    let broken = Arc::new(FakeMediaStore {
        broken: true,
        ..FakeMediaStore::default()
    });
    let failed = upload(&broken, None, &[PNG]).await;
    assert!(matches!(failed, Err(MediaError::Store(_))), "{failed:?}");
    assert!(is_empty(&broken));
    let media_store = Arc::<FakeMediaStore>::default();
    let mut upload = media(&media_store).upload(&tenant(), None);
    upload.feed(Bytes::from_static(PNG)).await.unwrap();
    drop(upload);
    assert!(is_empty(&media_store));
}

#[tokio::test]
async fn media_own_finds_only_files_of_the_account() {
    let media_store = Arc::<FakeMediaStore>::default();
    let stored = upload(&media_store, None, &[PNG]).await.unwrap();
    let media = media(&media_store);
    let own = async |account, url: &str| media.own(account, url).await.unwrap();
    let file = own(ACCOUNT, &stored.url).await.unwrap();
    assert_eq!((file.size, file.path.kind), (18, MediaType::Png));
    let rest: Vec<Bytes> = file.read(16).await.unwrap().map(Result::unwrap).collect().await;
    assert_eq!(rest, ["89"]);
    assert_eq!(own(AccountId(Uuid::from_u128(8)), &stored.url).await, None);
    for foreign in [
        format!("https://media.example.evil/{ACCOUNT}/{}.png", Uuid::from_u128(5)),
        stored.url.replace("https", "http"),
        stored.url.replace(".png", ".jpg"),
        stored.url.replace("example/", "example//"),
        format!("{}?x=1", stored.url),
        stored.url.replace(&ACCOUNT.to_string(), &format!("../media/{ACCOUNT}")),
        stored.url.to_uppercase(),
    ] {
        assert_eq!(own(ACCOUNT, &foreign).await, None, "{foreign}");
    }
}

#[tokio::test]
async fn uploaded_name_is_returned_without_its_path() {
    let long = "x".repeat(300);
    for (file_name, name) in [
        ("a.png", "a.png"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Fotos\\a b.png", "a b.png"),
        ("a\0\r\nb.png", "ab.png"),
        ("..", "file"),
        ("", "file"),
        ("fotos/", "file"),
        (long.as_str(), long.get(..255).unwrap()),
    ] {
        let stored = upload(&Arc::default(), Some(file_name), &[PNG]).await.unwrap();
        assert_eq!(stored.name, name);
    }
    assert_eq!(upload(&Arc::default(), None, &[PNG]).await.unwrap().name, "file");
}

proptest! {
    #[test]
    fn upload_is_independent_of_chunk_sizes(content in "%PDF-[a-z]{0,40}", cuts in proptest::collection::vec(0_usize..50, 0..6)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let media_store = Arc::<FakeMediaStore>::default();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(content.len())).collect();
        cuts.sort_unstable();
        let mut chunks = Vec::new();
        let mut from = 0;
        for cut in cuts.into_iter().chain([content.len()]) {
            chunks.push(&content.as_bytes()[from..cut]);
            from = cut;
        }
        let stored = runtime.block_on(upload(&media_store, None, &chunks)).unwrap();
        prop_assert_eq!(stored.size, u64::try_from(content.len()).unwrap());
        let files = media_store.files.lock().unwrap();
        prop_assert_eq!(files.values().next().unwrap(), content.as_bytes());
    }

    #[test]
    fn media_path_has_one_spelling(text in "[0-9a-f/.-]{0,90}|\\PC{0,50}") {
        if let Ok(path) = text.parse::<MediaPath>() {
            prop_assert_eq!(path.to_string(), text);
        }
    }
}
