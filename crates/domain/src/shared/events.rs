//! Outbox events: audit entries, notifications and webhook events that commit with the change that causes them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{UserId, redacted_debug, string_enum};

string_enum! {
    /// The destination of an outbox event. Each kind has its own relay, so that a failing destination delays no other.
    EventKind {
        /// The audit log.
        Audit = "audit",
        /// The notifications.
        Notification = "notification",
        /// The account's webhook endpoints.
        Webhook = "webhook",
    }
}

string_enum! {
    /// The types of webhook events.
    WebhookKind {
        MessageReceived = "message.received",
        MessageMediaReady = "message.media_ready",
        MessageSent = "message.sent",
        MessageDelivered = "message.delivered",
        MessageRead = "message.read",
        MessageFailed = "message.failed",
        MessageCancelled = "message.cancelled",
        CampaignStarted = "campaign.started",
        CampaignFinished = "campaign.finished",
        CampaignCancelled = "campaign.cancelled",
        ContactCreated = "contact.created",
        ContactUpdated = "contact.updated",
        ContactDeleted = "contact.deleted",
        ContactErased = "contact.erased",
        TemplateStatusChanged = "template.status_changed",
        TemplateCategoryChanging = "template.category_changing",
        NumberChanged = "number.changed",
        SubscriptionChanged = "subscription.changed",
        CostThreshold = "cost.threshold",
        OrderRecorded = "order.recorded",
        MetricRecorded = "metric.recorded",
        /// A test of an endpoint, without a cause.
        TestPing = "test.ping",
    }
}

/// An outbox event. The relay applies it exactly once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    Audit(Audit),
    Notification(NotificationDraft),
    Webhook(WebhookEventBatch),
}

impl Event {
    /// One webhook event per item. It is stored only if an endpoint of the account subscribes to `kind`, and not without
    /// items.
    pub fn webhook(kind: WebhookKind, items: Vec<Value>) -> Self {
        Self::Webhook(WebhookEventBatch { kind, items })
    }
}

/// The action of an audit entry. All values are published as filters. Nothing writes `restore` and `export` so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditAction {
    Create,
    Update,
    Delete,
    Restore,
    Login,
    Export,
}

impl AuditAction {
    /// The stored and published value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Restore => "restore",
            Self::Login => "login",
            Self::Export => "export",
        }
    }
}

/// An audit entry without its id, account and time.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// The acting user. `None`: the system acted.
    pub user_id: Option<UserId>,
    pub action: AuditAction,
    /// The type of the changed resource, for example `campaign`.
    pub entity_type: String,
    pub entity_id: Option<Uuid>,
    pub changes: Option<Value>,
    /// The client's IP address.
    pub ip_address: Option<String>,
    /// In support mode, the platform administrator's e-mail address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub support_admin: Option<String>,
}

redacted_debug!(Audit {
    user_id,
    action,
    entity_type,
    entity_id
});

impl Audit {
    /// The changes as the audit log stores them. In support mode, they include the administrator's e-mail address.
    pub fn recorded_changes(&self) -> Option<Value> {
        let Some(admin) = &self.support_admin else {
            return self.changes.clone();
        };
        let mut fields = match self.changes.clone() {
            Some(Value::Object(fields)) => fields,
            Some(value) => Map::from_iter([("changes".to_owned(), value)]),
            None => Map::new(),
        };
        fields.insert("support_admin".to_owned(), Value::from(admin.as_str()));
        Some(Value::Object(fields))
    }

    /// Adds changes to the entry.
    #[must_use]
    pub fn with_changes(mut self, changes: Value) -> Self {
        self.changes = Some(changes);
        self
    }
}

/// The severity of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NotificationKind {
    Success,
    Info,
    Warning,
    Error,
}

impl NotificationKind {
    /// The stored and published value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A notification without its id, account and time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotificationDraft {
    #[serde(rename = "type")]
    pub kind: NotificationKind,
    /// One line.
    pub title: String,
    /// One or two sentences.
    pub message: String,
    /// Machine-readable details.
    pub data: Value,
}

/// The webhook events of one type that a change emits. Receivers get one event per item.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct WebhookEventBatch {
    #[serde(rename = "type")]
    pub kind: WebhookKind,
    /// The `data` of each event, as published in `docs/webhooks.md`.
    pub items: Vec<Value>,
}

redacted_debug!(WebhookEventBatch { kind });

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The store distinguishes kinds by the stored value of `kind`.
    #[test]
    fn outbox_event_is_stored_with_its_kind() {
        let audit = Audit {
            user_id: None,
            action: AuditAction::Create,
            entity_type: "campaign".into(),
            entity_id: None,
            changes: None,
            ip_address: None,
            support_admin: None,
        };
        let notification = NotificationDraft {
            kind: NotificationKind::Info,
            title: "t".into(),
            message: "m".into(),
            data: json!({}),
        };
        let webhook = Event::webhook(WebhookKind::MessageSent, vec![json!({ "id": 1 })]);
        let kinds = [Event::Audit(audit), Event::Notification(notification), webhook];
        let kinds = kinds.map(|event| json!(event)["kind"].clone());
        assert_eq!(
            kinds.as_slice(),
            EventKind::ALL.iter().map(|kind| json!(kind)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn audit_changes_include_the_support_admin() {
        let audit = |changes: Option<Value>, admin: Option<&str>| Audit {
            user_id: None,
            action: AuditAction::Update,
            entity_type: "campaign".into(),
            entity_id: None,
            changes,
            ip_address: None,
            support_admin: admin.map(str::to_owned),
        };
        let root = Some("root@example.com");
        for (changes, admin, recorded) in [
            (None, None, None),
            (Some(json!({ "a": 1 })), None, Some(json!({ "a": 1 }))),
            (None, root, Some(json!({ "support_admin": "root@example.com" }))),
            (
                Some(json!({ "a": 1 })),
                root,
                Some(json!({ "a": 1, "support_admin": "root@example.com" })),
            ),
            (
                Some(json!(7)),
                root,
                Some(json!({ "changes": 7, "support_admin": "root@example.com" })),
            ),
        ] {
            assert_eq!(audit(changes, admin).recorded_changes(), recorded);
        }
        // An event that an earlier version stored has no administrator.
        let old = json!({ "user_id": null, "action": "create", "entity_type": "x", "entity_id": null,
                          "changes": null, "ip_address": null });
        assert_eq!(serde_json::from_value::<Audit>(old).unwrap().support_admin, None);
    }

    /// SQL statements that record many changes at once write this JSON directly.
    #[test]
    fn webhook_event_batch_has_a_stable_json_form() {
        let event = Event::webhook(WebhookKind::MessageSent, vec![json!({ "id": 1 }), json!({ "id": 2 })]);
        let stored = json!({ "kind": "webhook", "type": "message.sent", "items": [{ "id": 1 }, { "id": 2 }] });
        assert_eq!(json!(event), stored);
        assert_eq!(serde_json::from_value::<Event>(stored).unwrap(), event);
        assert_eq!(WebhookKind::ALL.len(), 22);
    }
}
