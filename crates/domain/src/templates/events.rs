//! The webhook events of templates.

use serde_json::json;
use uuid::Uuid;

use super::{CategoryChange, Template, has_other_category};
use crate::messaging::{Category, MetaStatus};
use crate::shared::{Event, WebhookKind, timestamp};

/// `template.status_changed`. A change is the status and the category before, and the template now. Templates that kept
/// both are left out. The category of a draft does not count: the account chose it.
pub fn status_changed_event<'a>(changes: impl IntoIterator<Item = (MetaStatus, Category, &'a Template)>) -> Event {
    let items = changes.into_iter().filter_map(|(status, category, now)| {
        let changed = status != now.meta_status || has_other_category(category, now);
        changed.then(|| {
            json!({ "id": now.id, "name": now.name, "language": now.language, "status": now.meta_status,
                    "previous_status": status, "category": now.category, "previous_category": category,
                    "rejection_reason": now.rejection_reason })
        })
    });
    Event::webhook(WebhookKind::TemplateStatusChanged, items.collect())
}

/// `template.category_changing`. `campaigns` are the scheduled and the sending ones with this template.
pub fn category_changing_event(template: &Template, change: &CategoryChange, campaigns: &[Uuid]) -> Event {
    let item = json!({ "id": template.id, "name": template.name, "language": template.language,
                       "from": template.category, "to": change.to, "at": timestamp::format(change.at),
                       "campaigns": campaigns });
    Event::webhook(WebhookKind::TemplateCategoryChanging, vec![item])
}

#[cfg(test)]
mod tests {
    use super::super::tests::approved_template;
    use super::*;

    fn items(event: Event) -> Vec<serde_json::Value> {
        let Event::Webhook(batch) = event else {
            panic!("{event:?}")
        };
        batch.items
    }

    #[test]
    fn only_templates_with_another_status_or_category_are_published() {
        let template = approved_template("Oi", &[]);
        let draft = Template {
            meta_status: MetaStatus::Draft,
            ..template.clone()
        };
        let event = status_changed_event([
            (MetaStatus::Approved, Category::Marketing, &template),
            (MetaStatus::Pending, Category::Marketing, &template),
            (MetaStatus::Approved, Category::Utility, &template),
            // The account chose the category of a draft itself.
            (MetaStatus::Draft, Category::Utility, &draft),
        ]);
        let published = |status: &str, category: &str| {
            json!({ "id": template.id, "name": "boas_vindas", "language": "pt_BR", "status": "approved",
                    "previous_status": status, "category": "MARKETING", "previous_category": category,
                    "rejection_reason": null })
        };
        assert_eq!(
            items(event),
            [published("pending", "MARKETING"), published("approved", "UTILITY")]
        );
    }

    #[test]
    fn category_changing_event_lists_its_campaigns() {
        let template = approved_template("Oi", &[]);
        let change = CategoryChange {
            to: Category::Utility,
            at: time::macros::datetime!(2026-03-02 12:00 UTC),
        };
        assert_eq!(
            items(category_changing_event(&template, &change, &[Uuid::nil()])),
            [
                json!({ "id": template.id, "name": "boas_vindas", "language": "pt_BR", "from": "MARKETING",
                        "to": "UTILITY", "at": "2026-03-02T12:00:00.000Z", "campaigns": [Uuid::nil()] })
            ]
        );
    }
}
