//! The audience of a campaign.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::segments::AudienceFilters;
use crate::shared::{SegmentId, TagId, string_enum};

string_enum! {
    /// By which addresses a campaign reaches people.
    #[derive(Default)]
    Reach {
        /// By phone number alone.
        #[default]
        Phone = "phone",
        /// By phone number, otherwise by the user id that WhatsApp gave to the sending number.
        Any = "any",
    }
}

/// The tags and filters that select the contacts of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SegmentConfig {
    /// Selects contacts with any of these tags; absent or empty for no tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag_ids: Option<Vec<TagId>>,
    /// Conditions that narrow the audience, whatever its sources.
    #[schemars(with = "AudienceFilters")]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_filters")]
    pub filters: Option<AudienceFilters>,
}

/// Rejects null: a caller omits the field instead.
fn deserialize_filters<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<AudienceFilters>, D::Error> {
    AudienceFilters::deserialize(deserializer).map(Some)
}

/// The audience of a campaign: the union of its sources (all contacts if there is none), narrowed by the filters.
/// Contacts without an address and opted-out contacts are never part of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Audience {
    /// Selects the segment's members, and every contact that matches the segment's filters.
    pub segment_id: Option<SegmentId>,
    /// Selects contacts with any of these tags.
    pub tag_ids: Vec<TagId>,
    /// Selects contacts in any of these RFM segments.
    pub rfm_segments: Vec<String>,
    /// Conditions that narrow the union.
    pub filters: AudienceFilters,
    /// Leaves out contacts for which a campaign of the account was started before.
    pub newcomers_only: bool,
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
