//! Matches WhatsApp's templates with those of the account, and decides what changes. Pure. Content that a member wrote
//! and did not submit yet is never overwritten.

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
/// account.
pub(super) fn reconcile(
    local: Option<&Template>,
    remote: &RemoteTemplate,
    profile: ProfileId,
    new_draft: Template,
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
        ..local.clone()
    };
    let reviewed = reviewed(linked, remote, new_draft);
    (reviewed != *local).then_some(SyncedTemplate::Changed {
        template: Template {
            updated_at: now,
            ..reviewed
        },
        pause_reason: remote.status.and_then(MetaStatus::pause_reason),
    })
}

/// Applies WhatsApp's review, unless it concerns content that has since changed.
fn reviewed(template: Template, remote: &RemoteTemplate, new_draft: Template) -> Template {
    let review = remote.status.map(TemplateCommand::Review);
    match review.map(|review| transition(template.meta_status, review)) {
        Some(Ok(meta_status)) => Template {
            meta_status,
            rejection_reason: reason(remote, meta_status),
            ..with_parameters(
                with_category(&template, remote.category.parse().ok()),
                remote,
                new_draft,
            )
        },
        Some(Err(_)) | None => template,
    }
}

/// Applies the parts of WhatsApp's content that messages depend on. The texts are replaced only if the placeholder
/// format differs; otherwise the account's own numbering of header and body stays.
fn with_parameters(template: Template, remote: &RemoteTemplate, new_draft: Template) -> Template {
    let imported = with_components(remote, new_draft);
    let template = Template {
        unsupported: imported.unsupported,
        ..template
    };
    if imported.parameter_format == template.parameter_format {
        return template;
    }
    Template {
        parameter_format: imported.parameter_format,
        header_text: imported.header_text,
        body_text: imported.body_text,
        variables: imported.variables,
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
    Template {
        name: remote.name.clone(),
        language: remote.language.clone(),
        category: remote.category.parse().unwrap_or(new_draft.category),
        profile_id: Some(profile),
        meta_template_id: Some(remote.meta_template_id.clone()),
        meta_status,
        rejection_reason: reason(remote, meta_status),
        quality_score: remote.quality_score.clone(),
        ..with_components(remote, new_draft)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::TemplateType;
    use super::super::tests::approved_template;
    use super::*;
    use crate::messaging::{Category, Component, HeaderType, ParameterFormat};

    const PROFILE: ProfileId = ProfileId(Uuid::from_u128(4));
    const LATER: time::OffsetDateTime = datetime!(2026-03-02 12:00 UTC);

    fn remote() -> RemoteTemplate {
        RemoteTemplate {
            meta_template_id: "77".into(),
            name: "boas_vindas".into(),
            language: "pt_BR".into(),
            category: "MARKETING".into(),
            status: Some(MetaStatus::Approved),
            rejected_reason: Some("NONE".into()),
            quality_score: None,
            parameter_format: None,
            components: vec![],
        }
    }

    fn new_draft() -> Template {
        Template {
            updated_at: LATER,
            variables: vec![],
            meta_status: MetaStatus::Draft,
            body_text: None,
            ..approved_template("", &[])
        }
    }

    fn changed(local: &Template, remote: &RemoteTemplate) -> Option<Template> {
        match reconcile(Some(local), remote, PROFILE, new_draft()) {
            Some(SyncedTemplate::Changed { template, pause_reason }) => {
                assert_eq!((template.version, template.updated_at), (local.version, LATER));
                assert_eq!(
                    pause_reason.is_some(),
                    matches!(remote.status, Some(MetaStatus::Paused | MetaStatus::Disabled))
                );
                Some(template)
            }
            Some(SyncedTemplate::New(new)) => panic!("{new:?}"),
            None => None,
        }
    }

    #[test]
    fn sync_of_an_equal_template_changes_nothing() {
        assert_eq!(changed(&approved_template("Oi", &[]), &remote()), None);
    }

    #[test]
    fn sync_takes_the_review_and_keeps_the_content() {
        let local = approved_template("Oi", &[]);
        let rejected = RemoteTemplate {
            status: Some(MetaStatus::Rejected),
            rejected_reason: Some("SCAM".into()),
            category: "UTILITY".into(),
            quality_score: Some("RED".into()),
            components: components(&json!([{ "type": "BODY", "text": "Outro" }])),
            ..remote()
        };
        let synced = changed(&local, &rejected).unwrap();
        assert_eq!(
            (synced.meta_status, synced.rejection_reason.as_deref()),
            (MetaStatus::Rejected, Some("SCAM"))
        );
        assert_eq!(
            (synced.category, synced.quality_score.as_deref()),
            (Category::Utility, Some("RED"))
        );
        assert_eq!(synced.body_text, local.body_text);
        for status in [MetaStatus::Paused, MetaStatus::Disabled] {
            let stopped = RemoteTemplate {
                status: Some(status),
                ..remote()
            };
            assert_eq!(changed(&local, &stopped).unwrap().meta_status, status);
        }
        let unknown = RemoteTemplate {
            status: None,
            ..remote()
        };
        assert_eq!(changed(&local, &unknown), None);
    }

    #[test]
    fn sync_of_a_draft_only_sets_its_meta_id() {
        let draft = Template {
            meta_status: MetaStatus::Draft,
            meta_template_id: None,
            profile_id: None,
            ..approved_template("Escrito aqui", &[])
        };
        let synced = changed(&draft, &remote()).unwrap();
        assert_eq!(
            (synced.meta_status, synced.category),
            (MetaStatus::Draft, draft.category)
        );
        assert_eq!(
            (synced.meta_template_id.as_deref(), synced.profile_id),
            (Some("77"), Some(PROFILE))
        );
        assert_eq!(synced.body_text, draft.body_text);
    }

    #[test]
    fn sync_skips_a_template_of_another_number() {
        let of_other_number = Template {
            profile_id: Some(ProfileId(Uuid::from_u128(6))),
            meta_template_id: Some("66".into()),
            meta_status: MetaStatus::Pending,
            ..approved_template("Oi", &[])
        };
        assert_eq!(changed(&of_other_number, &remote()), None);
        let same = Template {
            meta_template_id: Some("77".into()),
            ..of_other_number
        };
        let synced = changed(&same, &remote()).unwrap();
        assert_eq!(
            (synced.meta_status, synced.profile_id),
            (MetaStatus::Approved, same.profile_id)
        );
    }

    fn components(json: &serde_json::Value) -> Vec<Component> {
        json.as_array().unwrap().iter().map(Component::from).collect()
    }

    fn new(json: &serde_json::Value) -> Template {
        let remote = RemoteTemplate {
            components: components(json),
            ..remote()
        };
        match reconcile(None, &remote, PROFILE, new_draft()) {
            Some(SyncedTemplate::New(template)) => template,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sync_reads_components_into_fields() {
        let template = new(&json!([
            { "type": "HEADER", "format": "TEXT", "text": "Cupom {{1}}", "example": { "header_text": ["X5"] } },
            { "type": "BODY", "text": "Oi {{1}}, {{2}} e {{1}}.", "example": { "body_text": [["Ana", "hoje"]] } },
            { "type": "FOOTER", "text": "SAIR" },
            { "type": "BUTTONS", "buttons": [{ "type": "QUICK_REPLY", "text": "Sair" }] } ]));
        assert_eq!(
            (template.header_type, template.header_text.as_deref()),
            (HeaderType::Text, Some("Cupom {{1}}"))
        );
        assert_eq!(template.body_text.as_deref(), Some("Oi {{2}}, {{3}} e {{2}}."));
        assert_eq!(template.variables, ["X5", "Ana", "hoje"]);
        assert_eq!(
            (template.footer_text.as_deref(), template.buttons.len()),
            (Some("SAIR"), 1)
        );
        assert_eq!(
            (template.meta_status, template.profile_id),
            (MetaStatus::Approved, Some(PROFILE))
        );
    }

    #[test]
    fn sync_reads_named_placeholders_with_examples() {
        let named = |format: Option<&str>| RemoteTemplate {
            parameter_format: format.map(str::to_owned),
            components: components(&json!([
                { "type": "HEADER", "format": "TEXT", "text": "Cupom de {{nome}}",
                  "example": { "header_text_named_params": [{ "param_name": "nome", "example": "Ana" }] } },
                { "type": "BODY", "text": "Use {{cupom}}, {{nome}}, até {{dia}}.",
                  "example": { "body_text_named_params": [{ "param_name": "cupom", "example": "X5" }] } } ])),
            ..remote()
        };
        for format in [Some("NAMED"), None] {
            let Some(SyncedTemplate::New(template)) = reconcile(None, &named(format), PROFILE, new_draft()) else {
                panic!()
            };
            assert_eq!(template.parameter_format, ParameterFormat::Named);
            assert_eq!(
                template.body_text.as_deref(),
                Some("Use {{cupom}}, {{nome}}, até {{dia}}.")
            );
            assert_eq!(template.variables, ["Ana", "X5", ""]);
        }
        // A template that an older version imported as numbered is converted.
        let before = Template {
            body_text: Some("Use {{cupom}}, {{nome}}, até {{dia}}.".into()),
            folder_id: Some(crate::shared::FolderId(Uuid::nil())),
            ..approved_template("", &[])
        };
        let synced = changed(&before, &named(Some("NAMED"))).unwrap();
        assert_eq!(
            (synced.parameter_format, synced.variables.len(), synced.folder_id),
            (ParameterFormat::Named, 3, before.folder_id)
        );
        assert_eq!(changed(&synced, &named(Some("NAMED"))), None);
        let draft = Template {
            meta_status: MetaStatus::Draft,
            ..before
        };
        assert_eq!(changed(&draft, &named(Some("NAMED"))).map(|t| t.parameter_format), None);
    }

    #[test]
    fn sync_records_unsupported_parts() {
        let json = json!([{ "type": "HEADER", "format": "LOCATION" }, { "type": "BODY", "text": "Oi" }]);
        assert_eq!(new(&json).unsendable_reasons(), ["unsupported_header:location"]);
        let remote = RemoteTemplate {
            components: components(&json),
            ..remote()
        };
        let synced = changed(&approved_template("Oi", &[]), &remote).unwrap();
        assert_eq!(synced.unsendable_reasons(), ["unsupported_header:location"]);
        let mixed_format = RemoteTemplate {
            parameter_format: Some("MIXED".into()),
            ..self::remote()
        };
        let synced = changed(&approved_template("Oi", &[]), &mixed_format).unwrap();
        assert_eq!(synced.unsendable_reasons(), ["unsupported_parameter_format"]);
    }

    #[test]
    fn sync_reads_files_cards_and_missing_examples() {
        let header = json!({ "type": "HEADER", "format": "image", "example": { "header_handle": ["https://cdn/x"] } });
        let card = json!({ "components": [header] });
        let template = new(&json!([header, { "type": "BODY", "text": "Oi {{1}}!" },
            { "type": "CAROUSEL", "cards": [card, card] }]));
        assert_eq!(template.header_type, HeaderType::Image);
        assert_eq!(template.header_media_url.as_deref(), Some("https://cdn/x"));
        assert_eq!(template.variables, [""]);
        assert_eq!(
            (template.template_type, template.carousel_cards.len()),
            (TemplateType::Carousel, 2)
        );
    }
}
