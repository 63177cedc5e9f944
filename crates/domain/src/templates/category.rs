//! WhatsApp's changes of a template's category: scheduled first, effective a day later.

use serde_json::json;

use super::{CategoryChange, Template};
use crate::messaging::{Category, MetaStatus};
use crate::shared::{Event, NotificationDraft, NotificationKind, timestamp};

/// The template with the category that WhatsApp reports. A change clears the scheduled one. The current category,
/// which an old callback may repeat, changes nothing.
pub(super) fn with_category(template: &Template, category: Option<Category>) -> Template {
    match category {
        Some(category) if category != template.category => Template {
            category,
            category_change: None,
            correct_category: template.correct_category.filter(|correct| *correct != category),
            ..template.clone()
        },
        Some(_) | None => template.clone(),
    }
}

/// The template after a category update. A draft keeps the category that the account chose.
pub fn with_category_update(template: &Template, update: &CategoryUpdate) -> Template {
    if template.meta_status == MetaStatus::Draft {
        return template.clone();
    }
    match update {
        CategoryUpdate::Changed(category) => with_category(template, Some(*category)),
        CategoryUpdate::Scheduled(change) if change.to == template.category => template.clone(),
        CategoryUpdate::Scheduled(change) => Template {
            category_change: Some(change.clone()),
            correct_category: Some(change.to),
            ..template.clone()
        },
    }
}

/// A category update that WhatsApp reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CategoryUpdate {
    /// WhatsApp will change the category.
    Scheduled(CategoryChange),
    /// WhatsApp has changed the category.
    Changed(Category),
}

/// The scheduled category change that is new in `after`.
pub fn scheduled_category_change<'a>(before: &Template, after: &'a Template) -> Option<&'a CategoryChange> {
    let change = after.category_change.as_ref()?;
    (before.category_change.as_ref() != Some(change)).then_some(change)
}

/// Whether WhatsApp changed the category. A change by a member makes the template a draft.
pub fn has_other_category(before: Category, after: &Template) -> bool {
    before != after.category && after.meta_status != MetaStatus::Draft
}

/// The notifications about a new or scheduled category.
pub fn category_notifications(before: &Template, after: &Template) -> Vec<Event> {
    let mut events = Vec::new();
    if has_other_category(before.category, after) {
        events.push(changed_notification(before.category, after));
    }
    if let Some(CategoryChange { to, at }) = scheduled_category_change(before, after) {
        let (from, at) = (after.category, timestamp::format(*at));
        events.push(Event::Notification(NotificationDraft {
            kind: NotificationKind::Warning,
            title: format!("Template category will change: {}", after.name),
            message: format!("WhatsApp will change its category from {from} to {to} at {at}."),
            data: json!({ "template_id": after.id, "from": from, "to": to, "at": at }),
        }));
    }
    events
}

/// The notification about a new category.
pub fn changed_notification(before: Category, after: &Template) -> Event {
    let to = after.category;
    Event::Notification(NotificationDraft {
        kind: NotificationKind::Info,
        title: format!("Template category changed: {}", after.name),
        message: format!("WhatsApp has changed its category from {before} to {to}."),
        data: json!({ "template_id": after.id, "from": before, "to": to }),
    })
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::super::tests::approved_template;
    use super::*;

    fn scheduled_update(to: Category) -> CategoryUpdate {
        let at = datetime!(2026-03-02 12:00 UTC);
        CategoryUpdate::Scheduled(CategoryChange { to, at })
    }

    #[test]
    fn scheduled_category_stays_until_the_category_changes() {
        let template = approved_template("Oi", &[]);
        let warned = with_category_update(&template, &scheduled_update(Category::Utility));
        assert_eq!(
            (warned.category, scheduled_category_change(&template, &warned).is_some()),
            (Category::Marketing, true)
        );
        assert_eq!(warned.correct_category, Some(Category::Utility));
        assert_eq!(category_notifications(&template, &warned).len(), 1);
        assert_eq!(
            with_category_update(&warned, &scheduled_update(Category::Utility)),
            warned
        );
        assert_eq!(category_notifications(&warned, &warned), []);
        // A repeated report of the current category does not clear the scheduled change.
        let same = with_category_update(&warned, &CategoryUpdate::Changed(Category::Marketing));
        assert_eq!(same, warned);
        let changed = with_category_update(&warned, &CategoryUpdate::Changed(Category::Utility));
        assert_eq!((changed.category, &changed.category_change), (Category::Utility, &None));
        assert_eq!(changed.correct_category, None);
        assert_eq!(category_notifications(&warned, &changed).len(), 1);
        // A late repetition of the schedule changes nothing.
        assert_eq!(
            with_category_update(&changed, &scheduled_update(Category::Utility)),
            changed
        );
    }

    #[test]
    fn draft_ignores_category_updates() {
        let draft = Template {
            meta_status: MetaStatus::Draft,
            ..approved_template("Oi", &[])
        };
        for update in [
            scheduled_update(Category::Utility),
            CategoryUpdate::Changed(Category::Utility),
        ] {
            assert_eq!(with_category_update(&draft, &update), draft);
        }
        let edited = Template {
            category: Category::Utility,
            ..draft.clone()
        };
        assert_eq!(category_notifications(&draft, &edited), []);
    }
}
