//! Who a campaign goes to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::segments::AudienceFilters;
use crate::shared::{SegmentId, TagId};

/// Whom a campaign goes to, by tags and filters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SegmentConfig {
    /// Contacts that bear any of these tags; absent or empty for no tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag_ids: Option<Vec<TagId>>,
    /// Conditions that narrow the audience, whatever it comes from.
    #[schemars(with = "AudienceFilters")]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub filters: Option<AudienceFilters>,
}

/// Null is no filters: it is refused.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<AudienceFilters>, D::Error> {
    AudienceFilters::deserialize(deserializer).map(Some)
}

/// The sources of a campaign's audience, as one value: a union of the sources, or all contacts where none is named,
/// narrowed by the filters. Contacts without a phone and those who opted out never belong to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Audience {
    /// The members of this segment, and whoever matches its filters.
    pub segment_id: Option<SegmentId>,
    /// Bearers of any of these tags.
    pub tag_ids: Vec<TagId>,
    /// Contacts in any of these RFM segments.
    pub rfm_segments: Vec<String>,
    /// What narrows the union.
    pub filters: AudienceFilters,
}

impl Audience {
    /// Whether no source is named, so that all contacts are meant.
    pub fn is_everybody(&self) -> bool {
        self.segment_id.is_none() && self.tag_ids.is_empty() && self.rfm_segments.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_comes_back_as_it_was() {
        for given in [
            "{}",
            r#"{"tag_ids":[]}"#,
            r#"{"filters":{}}"#,
            r#"{"tag_ids":["00000000-0000-0000-0000-000000000001"]}"#,
            r#"{"tag_ids":[],"filters":{"has_email":false}}"#,
        ] {
            let config: SegmentConfig = serde_json::from_str(given).unwrap();
            assert_eq!(serde_json::to_string(&config).unwrap(), given);
        }
        assert!(serde_json::from_str::<SegmentConfig>(r#"{"filters":null}"#).is_err());
    }

    #[test]
    fn unknown_filters_are_refused_and_absent_ones_stay_absent() {
        let unknown = serde_json::from_str::<SegmentConfig>(r#"{"filters":{"age":3}}"#);
        assert!(unknown.unwrap_err().to_string().contains("age"));
        let config: SegmentConfig = serde_json::from_str(r#"{"tag_ids":null,"filters":{"has_email":true}}"#).unwrap();
        assert_eq!(
            serde_json::to_string(&config).unwrap(),
            r#"{"filters":{"has_email":true}}"#
        );
    }
}
