//! Matches WhatsApp's templates with those of the account, and decides what changes. Pure. Content that a member wrote
//! and did not submit yet is never overwritten.

mod content;

use super::category::with_category;
use super::remote::with_components;
use super::{Template, TemplateCommand, transition};
use crate::messaging::{MetaStatus, RemoteTemplate};
use crate::shared::ProfileId;
use schemars::JsonSchema;
use serde::Serialize;

/// The result of a synchronization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SyncReport {
    /// How many templates were created.
    #[schemars(example = 3)]
    pub created: usize,
    /// How many templates were updated.
    #[schemars(example = 1)]
    pub updated: usize,
    /// How many templates did not change.
    #[schemars(example = 12)]
    pub unchanged: usize,
}

/// The identity of a template within its account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateKey {
    pub name: String,
    pub language: String,
}

impl From<&Template> for TemplateKey {
    fn from(template: &Template) -> Self {
        Self {
            name: template.name.clone(),
            language: template.language.clone(),
        }
    }
}

impl From<&RemoteTemplate> for TemplateKey {
    fn from(template: &RemoteTemplate) -> Self {
        Self {
            name: template.name.clone(),
            language: template.language.clone(),
        }
    }
}

/// A template that a synchronization writes.
#[derive(Clone, Debug, PartialEq)]
pub enum SyncedTemplate {
    /// A new template.
    New(Template),
    /// WhatsApp's data of the template changed. Written only if the stored version is still the one that was read.
    Changed {
        template: Template,
        /// Why campaigns that use the template must pause, or none.
        pause_reason: Option<&'static str>,
    },
}

/// The change of the local template that follows from WhatsApp's, or none. `new_draft` is an empty template of the
/// account. `is_own_file`: whether a URL is one of a file that was uploaded here.
pub(super) fn reconcile(
    local: Option<&Template>,
    remote: &RemoteTemplate,
    profile: ProfileId,
    new_draft: Template,
    is_own_file: &dyn Fn(&str) -> bool,
) -> Option<SyncedTemplate> {
    let now = new_draft.updated_at;
    let Some(local) = local else {
        return Some(SyncedTemplate::New(imported(remote, profile, new_draft)));
    };
    // A template with the same name at another number of the account is another template.
    let same_id = local.meta_template_id.as_deref() == Some(remote.meta_template_id.as_str());
    let has_other_number = local.profile_id.is_some_and(|id| id != profile) && local.meta_template_id.is_some();
    if has_other_number && !same_id {
        return None;
    }
    let linked = Template {
        meta_template_id: Some(remote.meta_template_id.clone()),
        profile_id: local.profile_id.filter(|_| same_id).or(Some(profile)),
        quality_score: remote.quality_score.clone().or_else(|| local.quality_score.clone()),
        message_send_ttl_seconds: remote.message_send_ttl_seconds.or(local.message_send_ttl_seconds),
        ..local.clone()
    };
    let reviewed = reviewed(linked, remote, new_draft, is_own_file);
    (reviewed != *local).then_some(SyncedTemplate::Changed {
        template: Template {
            updated_at: now,
            ..reviewed
        },
        pause_reason: remote.status.and_then(MetaStatus::pause_reason),
    })
}

/// Applies WhatsApp's review and content, unless a member has since changed the content.
fn reviewed(
    template: Template,
    remote: &RemoteTemplate,
    new_draft: Template,
    is_own_file: &dyn Fn(&str) -> bool,
) -> Template {
    let review = remote.status.map(TemplateCommand::Review);
    match review.map(|review| transition(template.meta_status, review)) {
        Some(Ok(meta_status)) => {
            let rejection_reason = reason(remote, meta_status);
            let recommendation = template.rejection_recommendation.clone();
            let categorized = with_category(&template, remote.category.parse().ok());
            Template {
                meta_status,
                // The list does not repeat the recommendation of a rejection.
                rejection_recommendation: recommendation.filter(|_| rejection_reason == template.rejection_reason),
                rejection_reason,
                ..content::refreshed(
                    with_correct_category(categorized, remote),
                    remote,
                    new_draft,
                    is_own_file,
                )
            }
        }
        Some(Err(_)) | None => template,
    }
}

/// Stores the category that WhatsApp considers right. A list without one says nothing.
fn with_correct_category(template: Template, remote: &RemoteTemplate) -> Template {
    let reported = remote
        .correct_category
        .as_deref()
        .and_then(|category| category.parse().ok());
    let correct_category = reported.or(template.correct_category);
    Template {
        correct_category: correct_category.filter(|category| *category != template.category),
        ..template
    }
}

fn reason(remote: &RemoteTemplate, status: MetaStatus) -> Option<String> {
    let reason = remote.rejected_reason.clone();
    reason.filter(|reason| status == MetaStatus::Rejected && reason != "NONE")
}

/// A template that was created outside this server, in this server's fields.
fn imported(remote: &RemoteTemplate, profile: ProfileId, new_draft: Template) -> Template {
    // A template with an unknown status must not be sent.
    let meta_status = remote.status.unwrap_or(MetaStatus::Disabled);
    let imported = Template {
        name: remote.name.clone(),
        language: remote.language.clone(),
        category: remote.category.parse().unwrap_or(new_draft.category),
        profile_id: Some(profile),
        meta_template_id: Some(remote.meta_template_id.clone()),
        meta_status,
        rejection_reason: reason(remote, meta_status),
        quality_score: remote.quality_score.clone(),
        message_send_ttl_seconds: remote.message_send_ttl_seconds,
        ..with_components(remote, new_draft)
    };
    with_correct_category(imported, remote)
}

#[cfg(test)]
mod tests;
