//! The effect of WhatsApp's review on a template, its campaigns and the members' notifications.

use serde_json::json;
use time::OffsetDateTime;

use super::{Template, TemplateCommand, transition};
use crate::messaging::MetaStatus;
use crate::shared::{Event, NotificationDraft, NotificationKind};

impl MetaStatus {
    /// Whether WhatsApp withdrew its approval. An edit here (`draft`) withdraws nothing: WhatsApp still has the
    /// approved content.
    pub fn withdraws_approval(self) -> bool {
        match self {
            Self::Pending | Self::Rejected | Self::Paused | Self::Disabled => true,
            Self::Draft | Self::Approved => false,
        }
    }

    /// Why campaigns that use a template of this status must pause, or none.
    pub fn pause_reason(self) -> Option<&'static str> {
        match self {
            Self::Paused => Some("WhatsApp has paused the template"),
            Self::Disabled => Some("WhatsApp has disabled the template"),
            Self::Draft | Self::Pending | Self::Approved | Self::Rejected => None,
        }
    }
}

/// A review as WhatsApp reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    pub status: MetaStatus,
    /// WhatsApp's reason for a rejection.
    pub reason: Option<String>,
    /// What WhatsApp recommends to change in a rejected template.
    pub recommendation: Option<String>,
}

impl Review {
    /// A review without a recommendation.
    pub fn new(status: MetaStatus, reason: Option<String>) -> Self {
        Self {
            status,
            reason,
            recommendation: None,
        }
    }
}

impl From<MetaStatus> for Review {
    fn from(status: MetaStatus) -> Self {
        Self::new(status, None)
    }
}

/// The template after a review. None if nothing changes, or if the content has changed since the submission.
pub fn apply_review(template: &Template, review: Review, now: OffsetDateTime) -> Option<Template> {
    let reviewed = Template {
        meta_status: transition(template.meta_status, TemplateCommand::Review(review.status)).ok()?,
        rejection_reason: review.reason,
        rejection_recommendation: review.recommendation,
        ..template.clone()
    };
    (reviewed != *template).then_some(Template {
        updated_at: now,
        ..reviewed
    })
}

/// The notification about a template that can no longer be sent, or that was rejected.
pub fn review_events(before: &Template, after: &Template) -> Vec<Event> {
    let (title, message) = match after.meta_status {
        status if status == before.meta_status => return vec![],
        MetaStatus::Draft | MetaStatus::Pending | MetaStatus::Approved => return vec![],
        MetaStatus::Rejected => {
            let reason = after.rejection_reason.as_deref().unwrap_or("no reason given");
            (
                "Template rejected",
                format!("WhatsApp rejected the template. Reason: {reason}."),
            )
        }
        MetaStatus::Paused => ("Template paused", "WhatsApp has paused the template.".to_owned()),
        MetaStatus::Disabled => ("Template disabled", "WhatsApp has disabled the template.".to_owned()),
    };
    vec![Event::Notification(NotificationDraft {
        kind: NotificationKind::Warning,
        title: format!("{title}: {}", after.name),
        message,
        data: json!({ "template_id": after.id, "meta_status": after.meta_status, "reason": after.rejection_reason }),
    })]
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::super::tests::approved_template;
    use super::*;

    const LATER: OffsetDateTime = datetime!(2026-03-02 12:00 UTC);

    #[test]
    fn review_changes_submitted_template_and_notifies_once() {
        let approved = approved_template("Oi", &[]);
        let paused = apply_review(&approved, MetaStatus::Paused.into(), LATER).unwrap();
        assert_eq!((paused.meta_status, paused.updated_at), (MetaStatus::Paused, LATER));
        assert!(
            matches!(&review_events(&approved, &paused)[..], [Event::Notification(notification)]
            if notification.title.starts_with("Template paused"))
        );
        assert_eq!(review_events(&paused, &paused), []);
        assert_eq!(apply_review(&paused, MetaStatus::Paused.into(), LATER), None);
        let draft = Template {
            meta_status: MetaStatus::Draft,
            ..approved
        };
        assert_eq!(apply_review(&draft, MetaStatus::Disabled.into(), LATER), None);
    }

    #[test]
    fn only_paused_and_disabled_templates_stop_campaigns() {
        let stop: Vec<_> = MetaStatus::ALL
            .iter()
            .copied()
            .filter(|s| s.pause_reason().is_some())
            .collect();
        assert_eq!(stop, [MetaStatus::Paused, MetaStatus::Disabled]);
    }
}
