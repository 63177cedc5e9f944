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
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_filters")]
    pub filters: Option<AudienceFilters>,
}

/// Rejects null: a caller omits the field instead.
fn deserialize_filters<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<AudienceFilters>, D::Error> {
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
    /// Whether no source is named, so that the sources are all contacts.
    pub fn selects_all_contacts(&self) -> bool {
        self.segment_id.is_none() && self.tag_ids.is_empty() && self.rfm_segments.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_config_round_trips_unchanged() {
        for input in [
            "{}",
            r#"{"tag_ids":[]}"#,
            r#"{"filters":{}}"#,
            r#"{"tag_ids":["00000000-0000-0000-0000-000000000001"]}"#,
            r#"{"tag_ids":[],"filters":{"has_email":false}}"#,
        ] {
            let config: SegmentConfig = serde_json::from_str(input).unwrap();
            assert_eq!(serde_json::to_string(&config).unwrap(), input);
        }
        assert!(serde_json::from_str::<SegmentConfig>(r#"{"filters":null}"#).is_err());
    }

    #[test]
    fn segment_config_refuses_unknown_filters_and_omits_absent_ones() {
        let unknown = serde_json::from_str::<SegmentConfig>(r#"{"filters":{"age":3}}"#);
        assert!(unknown.unwrap_err().to_string().contains("age"));
        let config: SegmentConfig = serde_json::from_str(r#"{"tag_ids":null,"filters":{"has_email":true}}"#).unwrap();
        assert_eq!(
            serde_json::to_string(&config).unwrap(),
            r#"{"filters":{"has_email":true}}"#
        );
    }
}
