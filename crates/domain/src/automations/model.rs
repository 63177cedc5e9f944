//! Automations and their executions.

use schemars::JsonSchema;
use serde::Deserialize;
use thiserror::Error;
use time::OffsetDateTime;

use crate::shared::schema::Timestamp;
use crate::shared::string_enum;
use crate::shared::{AutomationId, ExecutionId, FieldErrors, StoreError, timestamp};

string_enum! {
    /// The status of an automation.
    AutomationStatus {
        /// The automation has not been activated.
        Draft = "draft",
        /// The automation runs.
        Active = "active",
        /// The automation is stopped until it is activated again.
        Paused = "paused",
    }
}

string_enum! {
    /// The result of an execution.
    ExecutionStatus {
        /// The execution reached its end.
        Completed = "completed",
        /// The execution failed.
        Failed = "failed",
    }
}

/// An automation that runs in one of the account's own systems, which report its executions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Automation {
    pub id: AutomationId,
    /// The name: 1 to 200 characters, without HTML tags and control characters.
    pub name: String,
    pub status: AutomationStatus,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
}

/// Unchecked input of an automation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AutomationInput {
    /// If absent, an update keeps the value.
    pub name: Option<String>,
    /// If absent, an update keeps the value.
    pub status: Option<String>,
}

/// A validated change of an automation. None keeps the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutomationChange {
    pub name: Option<String>,
    pub status: Option<AutomationStatus>,
}

/// One execution of an automation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ExecutionInput {
    /// The execution's id, which makes the report idempotent: an id that the account has already reported changes
    /// nothing. If absent, the execution is new.
    pub id: Option<ExecutionId>,
    /// The result of the execution.
    #[schemars(required, with = "ExecutionStatus")]
    pub status: Option<String>,
    /// When the execution started. Reports count it at this time.
    #[schemars(required, with = "Timestamp")]
    #[serde(with = "timestamp::option")]
    pub started_at: Option<OffsetDateTime>,
    /// When the execution ended: at `started_at` or later.
    #[schemars(required, with = "Timestamp")]
    #[serde(with = "timestamp::option")]
    pub finished_at: Option<OffsetDateTime>,
}

/// One execution of an automation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    pub id: ExecutionId,
    pub status: ExecutionStatus,
    /// When the execution started. Reports count it at this time.
    pub started_at: OffsetDateTime,
    pub finished_at: OffsetDateTime,
}

#[derive(Debug, Error)]
pub enum AutomationError {
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error(transparent)]
    Store(#[from] StoreError),
}
