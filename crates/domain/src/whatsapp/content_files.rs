//! The files of free-form messages: looked up when the message is accepted, uploaded to WhatsApp when it leaves.

use std::sync::Arc;

use super::upload_locks::UploadLocks;
use super::{FileIdStore, MEDIA_ID_TTL, MessageFileError};
use crate::media::{
    FileKind, FoundFile, MediaStoreError, MediaStream, MessageFileStorage, MessageFileStore, StoredFile,
};
use crate::messaging::{
    FileReference, FileSource, HeaderType, MessageContent, UploadContent, UploadFile, WhatsappCredentials,
    WhatsappGateway,
};
use crate::shared::{AccountId, FieldErrors, GatewayError, MediaId, StoreError};

/// Why the file of a message cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum ContentFileError {
    /// The message names a file that cannot be used.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The file of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentFile {
    /// The message has no file.
    None,
    /// WhatsApp fetches the file.
    Link(String),
    /// A file of the account, which is stored.
    Stored(StoredFile),
}

impl ContentFile {
    /// The account's file, if the message has one.
    pub fn media_id(&self) -> Option<MediaId> {
        match self {
            Self::Stored(file) => Some(file.id),
            Self::None | Self::Link(_) => None,
        }
    }
}

/// Finds the files of free-form messages, and uploads them to WhatsApp once per number.
#[derive(Clone)]
pub struct ContentFiles {
    files: Arc<dyn MessageFileStore>,
    storage: Arc<dyn MessageFileStorage>,
    ids: Arc<dyn FileIdStore>,
    uploads: UploadLocks,
}

impl ContentFiles {
    pub fn new(
        files: Arc<dyn MessageFileStore>,
        storage: Arc<dyn MessageFileStorage>,
        ids: Arc<dyn FileIdStore>,
    ) -> Self {
        Self {
            files,
            storage,
            ids,
            uploads: UploadLocks::default(),
        }
    }

    /// The file of a message. It must be ready, and of the type that the message names.
    pub async fn find(&self, account: AccountId, content: &MessageContent) -> Result<ContentFile, ContentFileError> {
        let Some((field, media)) = content.media() else {
            return Ok(ContentFile::None);
        };
        match &media.file {
            FileReference::Url(url) => Ok(ContentFile::Link(url.clone())),
            FileReference::Media(id) => self
                .find_stored(account, *id, field, media.kind)
                .await
                .map(ContentFile::Stored),
        }
    }

    /// The account's file for the header of a template. It must be ready, and of the header's type.
    pub async fn find_header(
        &self,
        account: AccountId,
        id: MediaId,
        header: HeaderType,
    ) -> Result<StoredFile, ContentFileError> {
        const FIELD: &str = "template.header";
        let kind = match header {
            HeaderType::Image => FileKind::Image,
            HeaderType::Video => FileKind::Video,
            HeaderType::Document => FileKind::Document,
            HeaderType::None | HeaderType::Text | HeaderType::Location => {
                let message = "is not possible: the template's header is no file";
                return Err(FieldErrors::one(format!("{FIELD}.media_id"), message).into());
            }
        };
        let file = self.find_stored(account, id, FIELD, kind).await?;
        if file.kind != kind {
            let message = format!("is of type {}, not {kind}", file.kind);
            return Err(FieldErrors::one(format!("{FIELD}.media_id"), message).into());
        }
        Ok(file)
    }

    async fn find_stored(
        &self,
        account: AccountId,
        id: MediaId,
        field: &str,
        kind: FileKind,
    ) -> Result<StoredFile, ContentFileError> {
        let invalid = |message: String| FieldErrors::one(format!("{field}.media_id"), message);
        let found = self.files.find(account, id).await?;
        let file = match found.ok_or_else(|| invalid("does not exist".to_owned()))? {
            FoundFile::Ready(file) => file,
            FoundFile::Unavailable(state) => return Err(invalid(format!("is {state}, not ready")).into()),
        };
        if file.kind != kind && kind != FileKind::Document {
            return Err(invalid(format!("is of type {}, not {kind}", file.kind)).into());
        }
        Ok(file)
    }

    /// Where WhatsApp gets the file. A file of the account is uploaded once for a number, and its id is used for
    /// `MEDIA_ID_TTL`.
    pub async fn source(
        &self,
        gateway: &dyn WhatsappGateway,
        account: AccountId,
        credentials: &WhatsappCredentials,
        file: &ContentFile,
    ) -> Result<Option<FileSource>, MessageFileError> {
        let file = match file {
            ContentFile::None => return Ok(None),
            ContentFile::Link(url) => return Ok(Some(FileSource::Link(url.clone()))),
            ContentFile::Stored(file) => file,
        };
        let (number, path) = (&credentials.phone_number_id, file.path.to_string());
        if let Some(id) = self.ids.find(account, number, &path).await? {
            return Ok(Some(FileSource::Id(id)));
        }
        let lock = self.uploads.lock(format!("{number} {path}")).await;
        if let Some(id) = self.ids.find(account, number, &path).await? {
            return Ok(Some(FileSource::Id(id)));
        }
        if lock.has_waited {
            // The other upload failed. One after another would fail, too, each after its timeout.
            let error = GatewayError::Unavailable("the file could not be uploaded".to_owned());
            return Err(MessageFileError::Gateway(error));
        }
        let id = gateway
            .upload_file(credentials, &self.upload(file))
            .await
            .map_err(MessageFileError::Gateway)?;
        self.ids.store(account, number, &path, &id, MEDIA_ID_TTL).await?;
        Ok(Some(FileSource::Id(id)))
    }

    fn upload(&self, file: &StoredFile) -> UploadFile {
        let declared = file.mime_type.clone();
        let found = file.content_type.map(|kind| kind.to_string());
        UploadFile {
            id: file.path.key,
            media_type: found
                .or(declared)
                .unwrap_or_else(|| "application/octet-stream".to_owned()),
            extension: file.content_type.map_or("bin", |kind| kind.extension()),
            size: file.size,
            content: Arc::new(StoredContentOf {
                storage: self.storage.clone(),
                file: file.clone(),
            }),
        }
    }
}

struct StoredContentOf {
    storage: Arc<dyn MessageFileStorage>,
    file: StoredFile,
}

#[async_trait::async_trait]
impl UploadContent for StoredContentOf {
    async fn read(&self, from: u64) -> Result<MediaStream, MediaStoreError> {
        let missing = || MediaStoreError::Failed(format!("{} no longer exists", self.file.path).into());
        let content = self.storage.read_file(&self.file.path, from..self.file.size).await?;
        content.ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::join_all;
    use time::Duration;
    use uuid::Uuid;

    use super::*;
    use crate::media::{MessageFilePath, MockMessageFileStorage, MockMessageFileStore};
    use crate::messaging::{MockWhatsappGateway, ProfileKey};

    /// The stored id. Every look at it lets the other messages run.
    #[derive(Default)]
    struct Ids(Mutex<Option<String>>);

    #[async_trait::async_trait]
    impl FileIdStore for Ids {
        async fn find(&self, _: AccountId, _: &str, _: &str) -> Result<Option<String>, StoreError> {
            tokio::task::yield_now().await;
            Ok(self.0.lock().unwrap().clone())
        }

        async fn store(&self, _: AccountId, _: &str, _: &str, id: &str, _: Duration) -> Result<(), StoreError> {
            *self.0.lock().unwrap() = Some(id.to_owned());
            Ok(())
        }
    }

    /// The sources of a file for five messages that leave together. WhatsApp answers the only upload with `uploaded`.
    async fn sources(uploaded: Result<String, GatewayError>) -> Vec<Result<Option<FileSource>, MessageFileError>> {
        let account = AccountId(Uuid::from_u128(1));
        let mut gateway = MockWhatsappGateway::new();
        gateway.expect_upload_file().times(1).return_once(|_, _| uploaded);
        let files = ContentFiles::new(
            Arc::new(MockMessageFileStore::new()),
            Arc::new(MockMessageFileStorage::new()),
            Arc::new(Ids::default()),
        );
        let credentials = WhatsappCredentials {
            profile: ProfileKey {
                account_id: account,
                profile_id: Uuid::from_u128(2).into(),
            },
            phone_number_id: "1065".into(),
            waba_id: "1022".into(),
            token: "token".into(),
        };
        let file = ContentFile::Stored(StoredFile {
            id: Uuid::from_u128(3).into(),
            path: MessageFilePath {
                account_id: account,
                key: Uuid::from_u128(4),
            },
            kind: FileKind::Image,
            mime_type: None,
            content_type: None,
            size: 3,
            sha256: String::new(),
            file_name: None,
        });
        join_all((0..5).map(|_| files.source(&gateway, account, &credentials, &file))).await
    }

    #[tokio::test]
    async fn messages_that_leave_together_upload_their_file_once() {
        for source in sources(Ok("55".into())).await {
            assert_eq!(source.unwrap(), Some(FileSource::Id("55".into())));
        }
    }

    #[tokio::test]
    async fn upload_that_fails_is_not_repeated_by_those_who_waited() {
        let timeout = GatewayError::Unavailable("timeout".into());
        for source in sources(Err(timeout)).await {
            assert!(source.unwrap_err().is_temporary());
        }
    }
}
