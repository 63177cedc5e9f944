//! The tenant context: the account, actor and role of a request. It is the first argument of every use case that
//! accesses a tenant's rows. Use cases without an actor (ingestion, inbound webhooks) take only the account.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AccountId, Audit, AuditAction, UserId, redacted_debug};

/// The role of a member in an account, from most to least rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// All rights, including changes of ownership.
    Owner,
    /// All rights except changes of ownership.
    Admin,
    /// Reads and writes, without the management of the account.
    Member,
    /// Reads only.
    Viewer,
}

impl Role {
    /// Every role, for tables and tests.
    pub const ALL: [Self; 4] = [Self::Owner, Self::Admin, Self::Member, Self::Viewer];

    /// The stored and published value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Admin => "admin",
            Self::Member => "member",
            Self::Viewer => "viewer",
        }
    }

    /// Whether the role may manage the account: owner or admin.
    pub fn manages(self) -> bool {
        matches!(self, Self::Owner | Self::Admin)
    }

    /// Whether the role may write.
    pub fn writes(self) -> bool {
        self != Self::Viewer
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(value: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == value)
            .ok_or_else(|| format!("unknown role {value}"))
    }
}

/// The user who acts (for an API key: its creator), and the client's address.
#[derive(Clone, PartialEq, Eq)]
pub struct Actor {
    pub user_id: UserId,
    /// The client's IP address, for the audit log.
    pub ip_address: Option<String>,
    /// In support mode, the platform administrator's e-mail address.
    pub support_admin: Option<String>,
}

redacted_debug!(Actor { user_id });

/// An authenticated tenant context. Only authentication creates one (`Accounts::context`, `ApiKeys::authenticate`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// The account that every query is scoped to.
    pub account_id: AccountId,
    pub actor: Actor,
    pub role: Role,
}

impl Tenant {
    pub(crate) fn new(account_id: AccountId, actor: Actor, role: Role) -> Self {
        Self {
            account_id,
            actor,
            role,
        }
    }

    /// An audit entry of this actor.
    pub fn audit(&self, action: AuditAction, entity_type: &str, entity_id: impl Into<uuid::Uuid>) -> Audit {
        Audit {
            user_id: Some(self.actor.user_id),
            action,
            entity_type: entity_type.to_owned(),
            entity_id: Some(entity_id.into()),
            changes: None,
            ip_address: self.actor.ip_address.clone(),
            support_admin: self.actor.support_admin.clone(),
        }
    }

    /// A tenant for unit tests of other crates.
    #[cfg(any(test, feature = "mocks"))]
    pub fn for_tests(account_id: AccountId, user_id: UserId, role: Role) -> Self {
        Self::new(
            account_id,
            Actor {
                user_id,
                ip_address: None,
                support_admin: None,
            },
            role,
        )
    }
}
