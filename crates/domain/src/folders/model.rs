//! Folders, as stored and published.

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

use crate::shared::string_enum;
use crate::shared::{CursorQuery, FieldErrors, FolderId, StoreError};

string_enum! {
    /// What a folder holds.
    FolderKind {
        /// Campaigns.
        Campaign = "campaign",
        /// Templates.
        Template = "template",
    }
}

/// A folder of campaigns or of templates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Folder {
    /// The folder's id.
    pub id: FolderId,
    /// Its name: 1 to 100 characters.
    #[schemars(example = &"Black Friday")]
    pub name: String,
    /// What it holds; it never changes.
    pub kind: FolderKind,
}

/// Asks for folders, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderQuery {
    /// Of this kind alone.
    pub kind: Option<FolderKind>,
    /// Which part of the list.
    pub page: CursorQuery,
}

/// Why a folder operation did not happen.
#[derive(Debug, Error)]
pub enum FolderError {
    /// No such folder in the account.
    #[error("not found")]
    NotFound,
    /// The input is wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for FolderError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
