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
    #[schemars(with = "Option<Vec<TagId>>")]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub tag_ids: Vec<TagId>,
    /// Conditions that narrow the audience, whatever it comes from.
    pub filters: AudienceFilters,
}

fn null_is_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<TagId>, D::Error> {
    Ok(Option::<Vec<TagId>>::deserialize(deserializer)?.unwrap_or_default())
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
