//! The errors of the use cases of conversations.

use thiserror::Error;

use super::ReplyRefusal;
use crate::shared::{FieldErrors, GatewayError, StoreError};

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
    /// WhatsApp rejected the reply.
    #[error(transparent)]
    Gateway(GatewayError),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ConversationError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
