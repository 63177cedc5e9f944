//! The ad or post that a message came from.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The ad or post that led a person to write.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Referral {
    /// What led to the message, for example `ad` or `post`; null where WhatsApp does not say.
    #[schemars(example = &"ad")]
    pub source_type: Option<String>,
    /// Meta's id of the ad or post; null where WhatsApp does not say.
    #[schemars(example = &"120210000000000001")]
    pub source_id: Option<String>,
    /// The address of the ad or post; null where WhatsApp does not say.
    #[schemars(example = "https://fb.me/3cr4Wqqkv")]
    pub source_url: Option<String>,
    /// The headline of the ad; null where it has none.
    #[schemars(example = "Bolo de cenoura com 20% de desconto")]
    pub headline: Option<String>,
    /// The text of the ad; null where it has none.
    #[schemars(example = "Peça pelo WhatsApp")]
    pub body: Option<String>,
    /// The kind of the ad's file, `image` or `video`; null where it has none.
    #[schemars(example = &"image")]
    pub media_type: Option<String>,
    /// The address of the ad's image; null where it has none.
    #[schemars(example = "https://scontent.example/bolo.jpg")]
    pub image_url: Option<String>,
    /// The address of the ad's video; null where it has none.
    #[schemars(example = serde_json::Value::Null)]
    pub video_url: Option<String>,
    /// The address of the video's thumbnail; null where it has none.
    #[schemars(example = serde_json::Value::Null)]
    pub thumbnail_url: Option<String>,
    /// Meta's id of the click, which its conversions API takes; null where WhatsApp does not say.
    #[schemars(example = &"ARAkLkA8rmlFeiCktEJQ")]
    pub ctwa_clid: Option<String>,
}

/// Names the kind of source alone: the rest says what a person looked at.
impl fmt::Debug for Referral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut output = f.debug_struct("Referral");
        output.field("source_type", &self.source_type).finish_non_exhaustive()
    }
}
