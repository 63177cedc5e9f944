//! The errors of the use cases of conversations.

use thiserror::Error;

use super::ReplyRefusal;
use crate::media::MediaStoreError;
use crate::shared::{FieldErrors, GatewayError, StoreError};
use crate::whatsapp::{ContentFileError, MessageFileError};

/// Why a use case of conversations failed.
#[derive(Debug, Error)]
pub enum ConversationError {
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The current state does not allow a reply.
    #[error(transparent)]
    Refused(#[from] ReplyRefusal),
    /// The file of the reply cannot be read.
    #[error(transparent)]
    Media(MediaStoreError),
    /// WhatsApp rejected the reply.
    #[error(transparent)]
    Gateway(GatewayError),
    #[error(transparent)]
    Store(StoreError),
}

impl From<ContentFileError> for ConversationError {
    fn from(error: ContentFileError) -> Self {
        match error {
            ContentFileError::Invalid(errors) => Self::Invalid(errors),
            ContentFileError::Store(error) => error.into(),
        }
    }
}

impl From<MessageFileError> for ConversationError {
    fn from(error: MessageFileError) -> Self {
        match error {
            MessageFileError::Unusable(message) => Self::Invalid(FieldErrors::one("media", message)),
            MessageFileError::Media(error) => Self::Media(error),
            MessageFileError::Gateway(error) => Self::Gateway(error),
            MessageFileError::Store(error) => error.into(),
        }
    }
}

impl From<StoreError> for ConversationError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
