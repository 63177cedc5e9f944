//! Taking over what the platform knows: which template of ours is which of its, and what follows. Pure; nothing that
//! somebody wrote here and did not submit yet is ever overwritten.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;

use super::parts::{body_examples, header_file, items, text, word};
use super::{
    HeaderType, MetaStatus, Template, TemplateCommand, TemplateType, placeholders, platform_verdict, transition,
};
use crate::shared::ProfileId;
use crate::whatsapp::RemoteTemplate;

/// What a synchronisation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SyncReport {
    /// How many templates were not known here.
    #[schemars(example = 3)]
    pub created: usize,
    /// How many templates changed in something.
    #[schemars(example = 1)]
    pub updated: usize,
    /// How many templates are as they were.
    #[schemars(example = 12)]
    pub unchanged: usize,
}

/// What tells a template from the others of its account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateKey {
    /// Its name.
    pub name: String,
    /// Its language.
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

/// A template to be written by a synchronisation.
#[derive(Clone, Debug, PartialEq)]
pub enum SyncedTemplate {
    /// It is new here.
    New(Template),
    /// What the platform decides about it changed, provided it still is as it was seen at `seen`.
    Changed {
        /// As it will be.
        template: Template,
        /// When it had last changed.
        seen: OffsetDateTime,
        /// Why the campaigns that are sending it have to wait; none when they may go on.
        stops: Option<&'static str>,
    },
}

/// What follows for our template from the platform's; none when nothing does. `blank` is an empty template of the
/// account.
pub(super) fn reconcile(
    local: Option<&Template>,
    remote: &RemoteTemplate,
    profile: ProfileId,
    blank: Template,
) -> Option<SyncedTemplate> {
    let now = blank.updated_at;
    let Some(local) = local else {
        return Some(SyncedTemplate::New(taken_over(remote, profile, blank)));
    };
    // The same name with another number of the account is another template.
    let same_id = local.meta_template_id.as_deref() == Some(remote.meta_template_id.as_str());
    let elsewhere = local.profile_id.is_some_and(|of| of != profile) && local.meta_template_id.is_some();
    if elsewhere && !same_id {
        return None;
    }
    let known = Template {
        meta_template_id: Some(remote.meta_template_id.clone()),
        profile_id: local.profile_id.filter(|_| same_id).or(Some(profile)),
        quality_score: remote.quality_score.clone().or_else(|| local.quality_score.clone()),
        ..local.clone()
    };
    let judged = judged(known, remote);
    (judged != *local).then_some(SyncedTemplate::Changed {
        template: Template {
            updated_at: now,
            ..judged
        },
        seen: local.updated_at,
        stops: platform_verdict(&remote.status).and_then(MetaStatus::stops),
    })
}

/// With the platform's verdict, unless it was on something that has changed since.
fn judged(known: Template, remote: &RemoteTemplate) -> Template {
    let verdict = platform_verdict(&remote.status).map(TemplateCommand::Verdict);
    match verdict.map(|verdict| transition(known.meta_status, verdict)) {
        Some(Ok(meta_status)) => Template {
            meta_status,
            category: remote.category.parse().unwrap_or(known.category),
            rejection_reason: reason(remote, meta_status),
            ..known
        },
        Some(Err(_)) | None => known,
    }
}

fn reason(remote: &RemoteTemplate, status: MetaStatus) -> Option<String> {
    let reason = remote.rejected_reason.clone();
    reason.filter(|reason| status == MetaStatus::Rejected && reason != "NONE")
}

/// A template that was written elsewhere, in our fields.
fn taken_over(remote: &RemoteTemplate, profile: ProfileId, blank: Template) -> Template {
    // What cannot be told apart must not be sent.
    let meta_status = platform_verdict(&remote.status).unwrap_or(MetaStatus::Disabled);
    let mut template = Template {
        name: remote.name.clone(),
        language: remote.language.clone(),
        category: remote.category.parse().unwrap_or(blank.category),
        profile_id: Some(profile),
        meta_template_id: Some(remote.meta_template_id.clone()),
        meta_status,
        rejection_reason: reason(remote, meta_status),
        quality_score: remote.quality_score.clone(),
        ..blank
    };
    for component in &remote.components {
        take_component(&mut template, component);
    }
    template
}

fn take_component(template: &mut Template, component: &Value) {
    let content = || Some(text(component, "text").to_owned()).filter(|text| !text.is_empty());
    match word(component, "type").as_str() {
        "HEADER" => take_header(template, component),
        "BODY" => {
            // The platform counts the placeholders of each component from 1, we count over header and body together.
            let before = template.variables.len();
            let body = text(component, "text");
            let wanted = placeholders(body).len();
            template.variables.extend(padded(body_examples(component), wanted));
            template.body_text = content().map(|body| shifted(&body, before));
        }
        "FOOTER" => template.footer_text = content(),
        "BUTTONS" => template.buttons = items(component, "buttons").to_vec(),
        "CAROUSEL" => {
            template.template_type = TemplateType::Carousel;
            template.carousel_cards = items(component, "cards").to_vec();
        }
        _ => {}
    }
}

/// The platform names the header first.
fn take_header(template: &mut Template, component: &Value) {
    template.header_type = match word(component, "format").as_str() {
        "TEXT" => HeaderType::Text,
        "IMAGE" => HeaderType::Image,
        "VIDEO" => HeaderType::Video,
        "DOCUMENT" => HeaderType::Document,
        _ => HeaderType::None,
    };
    if template.header_type == HeaderType::Text {
        let header = text(component, "text");
        let examples = component.pointer("/example/header_text").and_then(Value::as_array);
        let examples = examples
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned);
        template.variables = padded(examples.collect(), placeholders(header).len());
        template.header_text = Some(header.to_owned());
    }
    template.header_media_url = header_file(component)
        .filter(|url| template.header_type.is_file() && url.starts_with("https://"))
        .map(str::to_owned);
}

/// One example a placeholder. A missing one is empty: a campaign then has to say what stands there.
fn padded(mut examples: Vec<String>, wanted: usize) -> Vec<String> {
    examples.resize(wanted, String::new());
    examples
}

/// A text whose placeholders are counted from `before` + 1. Going downwards, no new number meets an old one.
fn shifted(text: &str, before: usize) -> String {
    let mut shifted = text.to_owned();
    for number in placeholders(text).into_iter().rev() {
        let new = number.saturating_add(before);
        shifted = shifted.replace(&format!("{{{{{number}}}}}"), &format!("{{{{{new}}}}}"));
    }
    shifted
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::Category;
    use super::super::tests::approved_template;
    use super::*;

    const PROFILE: ProfileId = ProfileId(Uuid::from_u128(4));
    const LATER: OffsetDateTime = datetime!(2026-03-02 12:00 UTC);

    fn remote() -> RemoteTemplate {
        RemoteTemplate {
            meta_template_id: "77".into(),
            name: "boas_vindas".into(),
            language: "pt_BR".into(),
            category: "MARKETING".into(),
            status: "APPROVED".into(),
            rejected_reason: Some("NONE".into()),
            quality_score: None,
            components: vec![],
        }
    }

    fn blank() -> Template {
        Template {
            updated_at: LATER,
            variables: vec![],
            meta_status: MetaStatus::Draft,
            body_text: None,
            ..approved_template("", &[])
        }
    }

    fn changed(local: &Template, remote: &RemoteTemplate) -> Option<Template> {
        match reconcile(Some(local), remote, PROFILE, blank()) {
            Some(SyncedTemplate::Changed { template, seen, stops }) => {
                assert_eq!((seen, template.updated_at), (local.updated_at, LATER));
                assert_eq!(
                    stops.is_some(),
                    ["PAUSED", "DISABLED"].contains(&remote.status.as_str())
                );
                Some(template)
            }
            Some(SyncedTemplate::New(new)) => panic!("{new:?}"),
            None => None,
        }
    }

    #[test]
    fn what_is_the_same_stays() {
        assert_eq!(changed(&approved_template("Oi", &[]), &remote()), None);
    }

    #[test]
    fn the_platforms_word_is_taken_over_and_the_content_is_not() {
        let local = approved_template("Oi", &[]);
        let news = RemoteTemplate {
            status: "REJECTED".into(),
            rejected_reason: Some("SCAM".into()),
            category: "UTILITY".into(),
            quality_score: Some("RED".into()),
            components: vec![json!({ "type": "BODY", "text": "Outro" })],
            ..remote()
        };
        let synced = changed(&local, &news).unwrap();
        assert_eq!(
            (synced.meta_status, synced.rejection_reason.as_deref()),
            (MetaStatus::Rejected, Some("SCAM"))
        );
        assert_eq!(
            (synced.category, synced.quality_score.as_deref()),
            (Category::Utility, Some("RED"))
        );
        assert_eq!(synced.body_text, local.body_text);
        for (status, wanted) in [("PAUSED", MetaStatus::Paused), ("DISABLED", MetaStatus::Disabled)] {
            let stopped = RemoteTemplate {
                status: status.into(),
                ..remote()
            };
            assert_eq!(changed(&local, &stopped).unwrap().meta_status, wanted);
        }
        let unknown = RemoteTemplate {
            status: "ARCHIVED".into(),
            ..remote()
        };
        assert_eq!(changed(&local, &unknown), None);
    }

    #[test]
    fn a_draft_keeps_everything_but_learns_its_id() {
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
    fn the_same_name_with_another_number_is_left_alone() {
        let elsewhere = Template {
            profile_id: Some(ProfileId(Uuid::from_u128(6))),
            meta_template_id: Some("66".into()),
            meta_status: MetaStatus::Pending,
            ..approved_template("Oi", &[])
        };
        assert_eq!(changed(&elsewhere, &remote()), None);
        let same = Template {
            meta_template_id: Some("77".into()),
            ..elsewhere
        };
        let synced = changed(&same, &remote()).unwrap();
        assert_eq!(
            (synced.meta_status, synced.profile_id),
            (MetaStatus::Approved, same.profile_id)
        );
    }

    fn new(components: serde_json::Value) -> Template {
        let remote = RemoteTemplate {
            components: components.as_array().unwrap().clone(),
            ..remote()
        };
        match reconcile(None, &remote, PROFILE, blank()) {
            Some(SyncedTemplate::New(template)) => template,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn components_become_our_fields() {
        let template = new(json!([
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
    fn files_and_cards_are_taken_and_a_missing_example_is_empty() {
        let header = json!({ "type": "HEADER", "format": "image", "example": { "header_handle": ["https://cdn/x"] } });
        let card = json!({ "components": [header] });
        let template = new(json!([header, { "type": "BODY", "text": "Oi {{1}}!" },
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
