//! Files of messages: uploaded to WhatsApp once per number, then referenced by media id.

use std::sync::Arc;

use thiserror::Error;
use time::Duration;

use super::FileIdStore;
use crate::media::{Media, MediaFile, MediaStoreError};
use crate::messaging::{FileSource, WhatsappCredentials, WhatsappGateway};
use crate::shared::{AccountId, GatewayError, StoreError};

/// How long a media id is used. WhatsApp deletes the file after 30 days, and a run may take several days.
pub(super) const MEDIA_ID_TTL: Duration = Duration::days(25);

/// Finds or uploads the file of a message.
#[derive(Clone)]
pub struct MessageFiles {
    media: Media,
    ids: Arc<dyn FileIdStore>,
}

/// Why a message cannot have its file.
#[derive(Debug, Error)]
pub enum MessageFileError {
    /// The file does not exist, or WhatsApp cannot fetch the address. The text is for the caller.
    #[error("{0}")]
    Unusable(String),
    #[error("the template's header file could not be read: {0}")]
    Media(MediaStoreError),
    #[error("WhatsApp did not accept the template's header file: {0}")]
    Gateway(GatewayError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl MessageFileError {
    /// Whether a retry may succeed without any change by a person.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::Media(MediaStoreError::Failed(_)) | Self::Gateway(GatewayError::Unavailable(_))
        )
    }
}

impl MessageFiles {
    pub fn new(media: Media, ids: Arc<dyn FileIdStore>) -> Self {
        Self { media, ids }
    }

    /// Where WhatsApp gets the file at `url`. The account's own uploads get a media id and are uploaded once. WhatsApp
    /// fetches any other https URL itself; Recado does not.
    pub async fn source(
        &self,
        gateway: &dyn WhatsappGateway,
        account: AccountId,
        credentials: &WhatsappCredentials,
        url: &str,
    ) -> Result<FileSource, MessageFileError> {
        match self.media.own(account, url).await.map_err(MessageFileError::Media)? {
            Some(file) => self
                .media_id(gateway, account, credentials, &file)
                .await
                .map(FileSource::Id),
            None if self.media.publishes(url) => Err(MessageFileError::Unusable(
                "the file of the template's header no longer exists".to_owned(),
            )),
            None if url.starts_with("https://") => Ok(FileSource::Link(url.to_owned())),
            None => Err(MessageFileError::Unusable(
                "the template's header needs a file: upload one or use an https URL".to_owned(),
            )),
        }
    }

    async fn media_id(
        &self,
        gateway: &dyn WhatsappGateway,
        account: AccountId,
        credentials: &WhatsappCredentials,
        file: &MediaFile,
    ) -> Result<String, MessageFileError> {
        let (number, path) = (&credentials.phone_number_id, file.path.to_string());
        if let Some(id) = self.ids.find(account, number, &path).await? {
            return Ok(id);
        }
        let id = gateway
            .upload_file(credentials, &file.into())
            .await
            .map_err(MessageFileError::Gateway)?;
        self.ids.store(account, number, &path, &id, MEDIA_ID_TTL).await?;
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::MockFileIdStore;
    use super::*;
    use crate::media::tests::{ACCOUNT, FakeMediaStore, media};
    use crate::media::{MediaPath, MediaType};
    use crate::messaging::{MockWhatsappGateway, ProfileKey};

    fn credentials() -> WhatsappCredentials {
        WhatsappCredentials {
            profile: ProfileKey {
                account_id: ACCOUNT,
                profile_id: Uuid::from_u128(4).into(),
            },
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
    async fn file_is_uploaded_once_then_sent_by_media_id() {
        let (media_store, url) = media_store();
        let mut gateway = MockWhatsappGateway::new();
        gateway.expect_upload_file().times(1).returning(|_, _| Ok("55".into()));
        let mut ids = MockFileIdStore::new();
        ids.expect_find().times(1).returning(|_, _, _| Ok(None));
        ids.expect_find().times(1).returning(|_, _, _| Ok(Some("55".into())));
        ids.expect_store()
            .times(1)
            .withf(|_, number, _, id, ttl| (number, id, *ttl) == ("1065", "55", Duration::days(25)))
            .returning(|_, _, _, _, _| Ok(()));
        let files = MessageFiles::new(media(&media_store), Arc::new(ids));
        for _ in 0..2 {
            let source = files.source(&gateway, ACCOUNT, &credentials(), &url).await.unwrap();
            assert_eq!(source, FileSource::Id("55".into()));
        }
    }

    #[tokio::test]
    async fn foreign_file_needs_an_https_url() {
        let (media_store, url) = media_store();
        let files = MessageFiles::new(media(&media_store), Arc::new(MockFileIdStore::new()));
        let gateway = MockWhatsappGateway::new();
        let source = async |account, url: &str| files.source(&gateway, account, &credentials(), url).await;
        let link = "https://cdn.example/a.png";
        assert_eq!(source(ACCOUNT, link).await.unwrap(), FileSource::Link(link.into()));
        let other_account = AccountId(Uuid::from_u128(8));
        for (account, url) in [
            (other_account, url.as_str()),
            (ACCOUNT, "http://10.0.0.1/a.png"),
            (ACCOUNT, ""),
        ] {
            let result = source(account, url).await;
            assert!(
                matches!(result, Err(MessageFileError::Unusable(_))),
                "{url}: {result:?}"
            );
        }
    }
}
