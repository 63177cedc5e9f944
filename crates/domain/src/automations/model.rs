//! Automations and their executions, as stored and published.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use time::OffsetDateTime;

use crate::shared::schema::Timestamp;
use crate::shared::string_enum;
use crate::shared::{AutomationId, ExecutionId, FieldErrors, StoreError, timestamp};

string_enum! {
    /// Whether an automation runs.
    AutomationStatus {
        /// Not yet.
        Draft = "draft",
        /// It does.
        Active = "active",
        /// Not any more, for now.
        Paused = "paused",
    }
}

string_enum! {
    /// How an execution ended.
    ExecutionStatus {
        /// As it should.
        Completed = "completed",
        /// It did not get to its end.
        Failed = "failed",
    }
}

/// An automation that runs in a system of the account, and whose executions are reported here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Automation {
    /// The automation's id.
    pub id: AutomationId,
    /// Its name: 1 to 200 characters, without HTML tags and control characters.
    #[schemars(example = "Carrinho abandonado")]
    pub name: String,
    /// Whether it runs.
    pub status: AutomationStatus,
    /// When the automation was created.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
    /// When the automation was last changed.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub updated_at: OffsetDateTime,
}

/// What a caller wrote of an automation, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AutomationInput {
    /// Kept on update when absent.
    pub name: Option<String>,
    /// Kept on update when absent.
    pub status: Option<String>,
}

/// A checked change of an automation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutomationChange {
    /// Kept when none.
    pub name: Option<String>,
    /// Kept when none.
    pub status: Option<AutomationStatus>,
}

/// One time that an automation ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ExecutionInput {
    /// The id that it is told apart by: one that is known already changes nothing. Absent, the execution is new.
    pub id: Option<ExecutionId>,
    /// How it ended.
    #[schemars(required, with = "ExecutionStatus")]
    pub status: Option<String>,
    /// When it began: the moment that it is counted at.
    #[schemars(required, with = "Timestamp")]
    #[serde(with = "timestamp::option")]
    pub started_at: Option<OffsetDateTime>,
    /// When it ended: at `started_at` or later.
    #[schemars(required, with = "Timestamp")]
    #[serde(with = "timestamp::option")]
    pub finished_at: Option<OffsetDateTime>,
}

/// One time that an automation ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Its id.
    pub id: ExecutionId,
    /// How it ended.
    pub status: ExecutionStatus,
    /// When it began: the moment that it is counted at.
    pub started_at: OffsetDateTime,
    /// When it ended.
    pub finished_at: OffsetDateTime,
}

/// Why an operation on automations did not happen.
#[derive(Debug, Error)]
pub enum AutomationError {
    /// No such automation in the account.
    #[error("not found")]
    NotFound,
    /// The input is wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
