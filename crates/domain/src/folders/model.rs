//! Folders, their query and errors.

use thiserror::Error;

use crate::shared::string_enum;
use crate::shared::{CursorQuery, FieldErrors, FolderId, StoreError};

string_enum! {
    /// The kind of item that a folder contains.
    FolderKind {
        /// The folder contains campaigns.
        Campaign = "campaign",
        /// The folder contains templates.
        Template = "template",
    }
}

/// A folder of campaigns or of templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    pub id: FolderId,
    /// The name: 1 to 100 characters.
    pub name: String,
    /// The kind of item that the folder contains. It cannot be changed.
    pub kind: FolderKind,
}

/// A query for folders, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderQuery {
    /// Only folders of this kind.
    pub kind: Option<FolderKind>,
    pub page: CursorQuery,
}

#[derive(Debug, Error)]
pub enum FolderError {
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for FolderError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
