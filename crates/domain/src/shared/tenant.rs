//! Who is asking, and for which account: the first argument of every use case that touches a tenant's rows; or, where no
//! person acts (ingestion, inbound webhooks), the account alone.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AccountId, Audit, AuditAction, UserId, redacted_debug};

/// What a member may do in an account, from most to least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything, including ownership itself.
    Owner,
    /// Everything but ownership.
    Admin,
    /// Reads and writes of daily work.
    Member,
    /// Reads alone.
    Viewer,
}

impl Role {
    /// Every role, for tables and tests.
    pub const ALL: [Self; 4] = [Self::Owner, Self::Admin, Self::Member, Self::Viewer];

    /// The stored and published word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Admin => "admin",
            Self::Member => "member",
            Self::Viewer => "viewer",
        }
    }

    /// Whether the role may use the role-restricted routes.
    pub fn manages(self) -> bool {
        matches!(self, Self::Owner | Self::Admin)
    }

    /// Whether the role may change anything at all.
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

/// The person (or the key's creator) behind a request, and where it came from.
#[derive(Clone, PartialEq, Eq)]
pub struct Actor {
    /// The user.
    pub user_id: UserId,
    /// The caller's address, for the audit log.
    pub ip_address: Option<String>,
    /// Where the user is a platform administrator at work in support mode: their e-mail address.
    pub support_admin: Option<String>,
}

redacted_debug!(Actor { user_id });

/// An authenticated account context. Only authentication makes one (`Accounts::context`, `ApiKeys::authenticate`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// The account that every query is scoped to.
    pub account_id: AccountId,
    /// Who acts.
    pub actor: Actor,
    /// What they may do.
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

    /// An audit entry of this caller.
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
