//! The tenant context: the account, actor and role of a request. It is the first argument of every use case that
//! accesses a tenant's rows. Use cases without an actor (ingestion, inbound webhooks) take only the account.

use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;

use super::{
    AccountId, ApiKeyId, Audit, AuditAction, Event, KeyScopes, NotificationDraft, NotificationKind, RouteScope, UserId,
    redacted_debug, string_enum,
};

string_enum! {
    /// The role of a member in an account, from most to least rights.
    Role {
        /// All rights, including changes of ownership.
        Owner = "owner",
        /// All rights except changes of ownership.
        Admin = "admin",
        /// Reads and writes, without the management of the account.
        Member = "member",
        /// Reads only.
        Viewer = "viewer",
    }
}

impl Role {
    /// Whether the role may manage the account: owner or admin.
    pub fn manages(self) -> bool {
        matches!(self, Self::Owner | Self::Admin)
    }

    /// Whether the role may write.
    pub fn writes(self) -> bool {
        self != Self::Viewer
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

/// The API key that authenticated a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallingKey {
    pub id: ApiKeyId,
    /// What of the role's rights the key has.
    pub scopes: Arc<KeyScopes>,
}

/// An authenticated tenant context. Only authentication creates one (`Accounts::context`, `ApiKeys::authenticate`).
#[derive(Clone, PartialEq, Eq)]
pub struct Tenant {
    /// The account that every query is scoped to.
    pub account_id: AccountId,
    pub actor: Actor,
    pub role: Role,
    /// The person or the API key, as notifications name it.
    pub caller_name: Arc<str>,
    /// `None`: a session.
    pub api_key: Option<CallingKey>,
}

redacted_debug!(Tenant {
    account_id,
    actor,
    role,
    api_key
});

/// A new resource through which others reach the account, for [`Tenant::creation_notice`].
#[derive(Clone, Copy, Debug)]
pub struct Creation<'a> {
    /// The first words of the title, for example `Webhook created`.
    pub title: &'a str,
    /// The verb and the noun, for example `created the webhook`.
    pub action: &'a str,
    pub name: &'a str,
    /// The field of the notification's `data` that holds the id.
    pub id_field: &'a str,
    pub id: Uuid,
}

impl Tenant {
    pub(crate) fn new(
        account_id: AccountId,
        actor: Actor,
        role: Role,
        caller_name: String,
        api_key: Option<CallingKey>,
    ) -> Self {
        Self {
            account_id,
            actor,
            role,
            caller_name: caller_name.into(),
            api_key,
        }
    }

    /// Whether the credential includes the scope. A session has every right of its role.
    pub fn has_scope(&self, scope: RouteScope) -> bool {
        self.api_key.as_ref().is_none_or(|key| key.scopes.allow(scope))
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

    /// The notification that names who created a resource, so that an unexpected one is noticed.
    pub fn creation_notice(&self, creation: &Creation<'_>) -> Event {
        let Creation {
            title,
            action,
            name,
            id_field,
            id,
        } = *creation;
        let mut data = json!({ "name": name, "created_by": self.actor.user_id, "created_by_name": &*self.caller_name });
        if let (Some(fields), Some(key)) = (data.as_object_mut(), &self.api_key) {
            fields.insert("created_by_api_key".to_owned(), json!(key.id));
        }
        if let Some(fields) = data.as_object_mut() {
            fields.insert(id_field.to_owned(), json!(id));
        }
        Event::Notification(NotificationDraft {
            kind: NotificationKind::Info,
            title: format!("{title}: {name}"),
            message: format!("{} {action} {name}.", self.caller_name),
            data,
        })
    }

    /// A tenant for unit tests of other crates.
    #[cfg(any(test, feature = "mocks"))]
    pub fn for_tests(account_id: AccountId, user_id: UserId, role: Role) -> Self {
        let actor = Actor {
            user_id,
            ip_address: None,
            support_admin: None,
        };
        Self::new(account_id, actor, role, "ana@example.com".to_owned(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(api_key: Option<CallingKey>) -> Tenant {
        let owner = Tenant::for_tests(AccountId(Uuid::nil()), UserId(Uuid::from_u128(3)), Role::Member);
        Tenant { api_key, ..owner }
    }

    fn key(scopes: KeyScopes) -> Option<CallingKey> {
        Some(CallingKey {
            id: ApiKeyId(Uuid::from_u128(9)),
            scopes: Arc::new(scopes),
        })
    }

    #[test]
    fn session_has_every_scope_and_key_only_its_own() {
        assert!(tenant(None).has_scope(RouteScope::CAMPAIGNS_SEND));
        assert!(tenant(key(KeyScopes::default())).has_scope(RouteScope::CAMPAIGNS_SEND));
        let narrow = KeyScopes::from_stored(&["notifications:read".to_owned()]);
        assert!(!tenant(key(narrow.clone())).has_scope(RouteScope::CAMPAIGNS_SEND));
        assert!(tenant(key(narrow)).has_scope(RouteScope::NOTIFICATIONS_READ));
    }

    #[test]
    fn creation_notice_names_the_caller() {
        let creation = Creation {
            title: "Webhook created",
            action: "created the webhook",
            name: "Loja",
            id_field: "webhook_id",
            id: Uuid::from_u128(5),
        };
        let Event::Notification(notice) = tenant(None).creation_notice(&creation) else {
            panic!()
        };
        assert_eq!(notice.kind, NotificationKind::Info);
        assert_eq!(notice.title, "Webhook created: Loja");
        assert_eq!(notice.message, "ana@example.com created the webhook Loja.");
        let mut data = json!({ "webhook_id": Uuid::from_u128(5), "name": "Loja", "created_by": Uuid::from_u128(3),
            "created_by_name": "ana@example.com" });
        assert_eq!(notice.data, data);
        let Event::Notification(notice) = tenant(key(KeyScopes::default())).creation_notice(&creation) else {
            panic!()
        };
        data["created_by_api_key"] = json!(Uuid::from_u128(9));
        assert_eq!(notice.data, data);
    }
}
