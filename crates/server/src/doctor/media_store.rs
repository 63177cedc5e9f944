//! Can files be written, read and deleted?

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use recado_domain::media::{MediaPath, MediaStore, MediaStoreError, MediaType};
use recado_domain::shared::AccountId;
use recado_gateways::media::ObjectMedia;
use tokio::time::timeout;
use uuid::Uuid;

use super::context::{AreaOutcome, DoctorContext};
use super::diagnosis::Diagnosis;
use recado_api::error_chain::chain;

const NAME: &str = "media_store";

/// Time limits of writing and reading the probe, and of deleting it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
const DELETE_TIMEOUT: Duration = Duration::from_secs(4);

/// The content of the probe.
const PROBE: &[u8] = b"recado doctor";

pub(super) async fn check(context: &DoctorContext) -> AreaOutcome {
    let Some(url) = context.config(&["MEDIA_STORE_URL"])?.media_store_url.as_deref() else {
        let found = "MEDIA_STORE_URL is not set: no file can be uploaded to the media store";
        return Ok(vec![Diagnosis::ok(NAME, found)]);
    };
    let created = url.strip_prefix("file://").map(missing_directories).unwrap_or_default();
    let tested = match ObjectMedia::open(Some(url), std::env::vars()) {
        Ok(store) => test(&store).await,
        Err(error) => Err(format!("MEDIA_STORE_URL {error}")),
    };
    // The server creates the directory at its start. The check leaves none behind.
    for directory in created {
        std::fs::remove_dir(directory).ok();
    }
    Ok(vec![match tested {
        Ok(()) => Diagnosis::ok(NAME, "the media store writes, reads and deletes files"),
        Err(error) => Diagnosis::fail(
            NAME,
            format!("the media store does not work: {error}"),
            "check MEDIA_STORE_URL, the credentials (AWS_...) and the permissions to write, read, list and delete",
        ),
    }])
}

/// The directories that do not exist yet, the innermost first.
fn missing_directories(directory: &str) -> Vec<PathBuf> {
    let ancestors = Path::new(directory).ancestors();
    ancestors
        .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
        .map(Path::to_owned)
        .collect()
}

async fn test(store: &dyn MediaStore) -> Result<(), String> {
    // No account has this id, so no file of a tenant is touched.
    let path = MediaPath {
        account_id: AccountId(Uuid::new_v4()),
        id: Uuid::new_v4(),
        kind: MediaType::Png,
    };
    let used = timeout(WRITE_TIMEOUT, write_and_read(store, &path)).await;
    let deleted = timeout(DELETE_TIMEOUT, delete(store, &path)).await;
    let late = |what: &str| Err(format!("{what} the probe took too long"));
    used.unwrap_or_else(|_| late("writing and reading"))?;
    deleted.unwrap_or_else(|_| late("deleting"))
}

async fn write_and_read(store: &dyn MediaStore, path: &MediaPath) -> Result<(), String> {
    write(store, path).await.map_err(|error| failed("written", &error))?;
    match read(store, path).await {
        Ok(content) if content == PROBE => Ok(()),
        Ok(_) => Err("the probe was read with other content".to_owned()),
        Err(error) => Err(failed("read", &error)),
    }
}

async fn write(store: &dyn MediaStore, path: &MediaPath) -> Result<(), MediaStoreError> {
    let mut file = store.begin(path).await?;
    file.write(Bytes::from_static(PROBE)).await?;
    file.commit().await
}

/// The content; empty if the file does not exist.
async fn read(store: &dyn MediaStore, path: &MediaPath) -> Result<Vec<u8>, MediaStoreError> {
    let Some(chunks) = store.read(path, 0).await? else {
        return Ok(Vec::new());
    };
    let chunks: Vec<Bytes> = chunks.try_collect().await?;
    Ok(chunks.concat())
}

/// Deletes the probe and, in a directory, the empty folder that it was in.
async fn delete(store: &dyn MediaStore, path: &MediaPath) -> Result<(), String> {
    let deleted = store.delete(path).await;
    let emptied = store.delete_account(path.account_id).await;
    deleted.and(emptied).map_err(|error| failed("deleted", &error))
}

fn failed(what: &str, error: &MediaStoreError) -> String {
    format!("the probe cannot be {what}: {}", chain(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_directories_are_those_that_the_store_creates() {
        let base = std::env::temp_dir().join(format!("recado-doctor-{}", Uuid::new_v4().simple()));
        let inner = base.join("a/b");
        let missing = missing_directories(inner.to_str().unwrap());
        assert_eq!(missing, [inner.clone(), base.join("a"), base]);
        assert!(missing_directories(std::env::temp_dir().to_str().unwrap()).is_empty());
    }
}
