//! The content of a run: a snapshot that the start takes, so that later edits change none of its messages.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::{Campaign, Variables};
use crate::messaging::HeaderLocation;
use crate::shared::timestamp;
use crate::templates::{Template, TemplateContent};

/// Template, mapping and values of a run. Stored as JSON, once per campaign, so that a field that is added later needs
/// `#[serde(default)]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunContent {
    /// The template as it was when the run started.
    pub template: TemplateContent,
    /// The mapping of placeholders as it was when the run started.
    pub variables: Option<Variables>,
    /// The location of the header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header_location: Option<HeaderLocation>,
    /// When the template's limited-time offer ends.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "timestamp::option")]
    pub offer_expires_at: Option<OffsetDateTime>,
}

impl RunContent {
    /// Snapshot of the current campaign and template.
    pub fn of(campaign: &Campaign, template: &Template) -> Self {
        Self {
            template: template.content(),
            variables: campaign.variables.clone(),
            header_location: campaign.header_location.clone(),
            offer_expires_at: campaign.offer_expires_at,
        }
    }

    /// Replaces the current content of campaign and template by the frozen content. The result is for reading: it MUST
    /// NOT be written to the template.
    pub fn restore(self, campaign: Campaign, template: Template) -> (Campaign, Template) {
        let campaign = Campaign {
            variables: self.variables,
            header_location: self.header_location,
            offer_expires_at: self.offer_expires_at,
            ..campaign
        };
        (campaign, template.with_content(self.template))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::prepare::tests::facts;
    use super::super::service::tests::NOW;
    use super::*;
    use crate::messaging::MetaStatus;
    use crate::templates::outbound_tests::location;
    use crate::templates::tests::approved_template;

    #[test]
    fn run_content_replaces_later_edits() {
        let mut campaign = facts().campaign;
        campaign.variables = Some(Variables([("2".to_owned(), "X5".to_owned())].into()));
        campaign.header_location = Some(location());
        campaign.offer_expires_at = Some(NOW);
        let template = facts().template.unwrap();
        let stored = serde_json::to_value(RunContent::of(&campaign, &template)).unwrap();
        assert_eq!(stored["variables"], json!({ "2": "X5" }));
        let edited = Template {
            meta_status: MetaStatus::Draft,
            ..approved_template("{{2}} {{1}}", &["a", "b"])
        };
        let content: RunContent = serde_json::from_value(stored).unwrap();
        let remapped = Campaign {
            variables: None,
            header_location: None,
            offer_expires_at: None,
            ..campaign.clone()
        };
        let (restored, frozen_template) = content.restore(remapped, edited);
        assert_eq!(restored, campaign);
        assert_eq!(
            (frozen_template.content(), frozen_template.meta_status),
            (template.content(), MetaStatus::Draft)
        );
    }
}
