//! The errors of the use cases of conversations.

use thiserror::Error;

use super::ReplyRefusal;
use crate::direct_messages::{Refusal, TemplateFileError};
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
    /// The template, the contact or the plan does not allow a template reply.
    #[error(transparent)]
    NotAllowed(#[from] Refusal),
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

impl From<TemplateFileError> for ConversationError {
    fn from(error: TemplateFileError) -> Self {
        match error {
            TemplateFileError::Header(error) => error.into(),
            TemplateFileError::Message(MessageFileError::Unusable(message)) => {
                Self::Invalid(FieldErrors::one("template.header", message))
            }
            TemplateFileError::Message(error) => error.into(),
        }
    }
}

impl From<StoreError> for ConversationError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
