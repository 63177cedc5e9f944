//! The files of messages: given to the platform once a number, and named by its id from then on.

use std::sync::Arc;

use thiserror::Error;
use time::Duration;

use super::{FileIdStore, FileSource, WhatsappCredentials, WhatsappGateway};
use crate::media::{Media, MediaFile, MediaStoreError};
use crate::shared::{AccountId, GatewayError, StoreError};

/// How long an id is used: the platform forgets it after 30 days, and a run may take some of them.
const KEPT: Duration = Duration::days(25);

/// The use cases of a message's files.
#[derive(Clone)]
pub struct MessageFiles {
    media: Media,
    ids: Arc<dyn FileIdStore>,
}

/// Why a message cannot have its file.
#[derive(Debug, Error)]
pub enum MessageFileError {
    /// It is not there, or nothing the platform could fetch. The text is for the caller.
    #[error("{0}")]
    Unusable(String),
    /// The store of files did not give it.
    #[error("the file of a header could not be read: {0}")]
    Media(MediaStoreError),
    /// The platform did not take it.
    #[error("the platform did not take a header's file: {0}")]
    Platform(GatewayError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl MessageFileError {
    /// Whether a later try may succeed without any action of a person.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::Media(MediaStoreError::Failed(_)) | Self::Platform(GatewayError::Unavailable(_))
        )
    }
}

impl MessageFiles {
    pub fn new(media: Media, ids: Arc<dyn FileIdStore>) -> Self {
        Self { media, ids }
    }

    /// Where the platform has the file at an address from: for the account's own uploads an id, which is asked for
    /// once; for any other address the address itself, which the platform fetches, not we.
    pub async fn source(
        &self,
        gateway: &dyn WhatsappGateway,
        account: AccountId,
        credentials: &WhatsappCredentials,
        url: &str,
    ) -> Result<FileSource, MessageFileError> {
        match self.media.own(account, url).await.map_err(MessageFileError::Media)? {
            Some(file) => self.id(gateway, account, credentials, &file).await.map(FileSource::Id),
            None if self.media.publishes(url) => Err(MessageFileError::Unusable(
                "the file of a header is not there any more".to_owned(),
            )),
            None if url.starts_with("https://") => Ok(FileSource::Link(url.to_owned())),
            None => Err(MessageFileError::Unusable(
                "a header of the template has no file that can be sent".to_owned(),
            )),
        }
    }

    async fn id(
        &self,
        gateway: &dyn WhatsappGateway,
        account: AccountId,
        credentials: &WhatsappCredentials,
        file: &MediaFile,
    ) -> Result<String, MessageFileError> {
        let number = &credentials.phone_number_id;
        if let Some(id) = self.ids.find(account, number, &file.path).await? {
            return Ok(id);
        }
        let id = gateway
            .upload_file(credentials, file)
            .await
            .map_err(MessageFileError::Platform)?;
        self.ids.keep(account, number, &file.path, &id, KEPT).await?;
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::{MockFileIdStore, MockWhatsappGateway};
    use super::*;
    use crate::media::tests::{ACCOUNT, FakeMediaStore, media};
    use crate::media::{MediaPath, MediaType};

    fn credentials() -> WhatsappCredentials {
        WhatsappCredentials {
            phone_number_id: "1065".into(),
            waba_id: "1022".into(),
            token: "token".into(),
        }
    }

    fn media_store() -> (Arc<FakeMediaStore>, String) {
        let (account_id, id, kind) = (ACCOUNT, Uuid::from_u128(5), MediaType::Png);
        let path = MediaPath { account_id, id, kind };
        let media_store = Arc::<FakeMediaStore>::default();
        media_store
            .files
            .lock()
            .unwrap()
            .insert(path.to_string(), b"png".to_vec());
        (media_store, format!("https://media.example/{path}"))
    }

    #[tokio::test]
    async fn a_file_is_given_once_and_then_named() {
        let (media_store, url) = media_store();
        let mut gateway = MockWhatsappGateway::new();
        gateway.expect_upload_file().times(1).returning(|_, _| Ok("55".into()));
        let mut ids = MockFileIdStore::new();
        ids.expect_find().times(1).returning(|_, _, _| Ok(None));
        ids.expect_find().times(1).returning(|_, _, _| Ok(Some("55".into())));
        ids.expect_keep()
            .times(1)
            .withf(|_, number, _, id, time| (number, id, *time) == ("1065", "55", Duration::days(25)))
            .returning(|_, _, _, _, _| Ok(()));
        let files = MessageFiles::new(media(&media_store), Arc::new(ids));
        for _ in 0..2 {
            let source = files.source(&gateway, ACCOUNT, &credentials(), &url).await.unwrap();
            assert_eq!(source, FileSource::Id("55".into()));
        }
    }

    #[tokio::test]
    async fn what_is_not_ours_is_fetched_by_the_platform_or_not_at_all() {
        let (media_store, url) = media_store();
        let files = MessageFiles::new(media(&media_store), Arc::new(MockFileIdStore::new()));
        let gateway = MockWhatsappGateway::new();
        let source = async |account, url: &str| files.source(&gateway, account, &credentials(), url).await;
        let link = "https://cdn.example/a.png";
        assert_eq!(source(ACCOUNT, link).await.unwrap(), FileSource::Link(link.into()));
        let other = AccountId(Uuid::from_u128(8));
        for (account, url) in [(other, url.as_str()), (ACCOUNT, "http://10.0.0.1/a.png"), (ACCOUNT, "")] {
            let fault = source(account, url).await;
            assert!(matches!(fault, Err(MessageFileError::Unusable(_))), "{url}: {fault:?}");
        }
    }
}
