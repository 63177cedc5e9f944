//! The ad or post that led a contact to send a message.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The ad or post that led a contact to send a message.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Referral {
    /// The kind of source, for example `ad` or `post`; null if WhatsApp does not report it.
    #[schemars(example = &"ad")]
    pub source_type: Option<String>,
    /// Meta's id of the ad or post; null if WhatsApp does not report it.
    #[schemars(example = &"120210000000000001")]
    pub source_id: Option<String>,
    /// The URL of the ad or post; null if WhatsApp does not report it.
    #[schemars(example = "https://fb.me/3cr4Wqqkv")]
    pub source_url: Option<String>,
    /// The headline of the ad; null if it has none.
    #[schemars(example = "Bolo de cenoura com 20% de desconto")]
    pub headline: Option<String>,
    /// The text of the ad; null if it has none.
    #[schemars(example = "Peça pelo WhatsApp")]
    pub body: Option<String>,
    /// The media type of the ad, `image` or `video`; null if it has none.
    #[schemars(example = &"image")]
    pub media_type: Option<String>,
    /// The URL of the ad's image; null if it has none.
    #[schemars(example = "https://scontent.example/bolo.jpg")]
    pub image_url: Option<String>,
    /// The URL of the ad's video; null if it has none.
    #[schemars(example = serde_json::Value::Null)]
    pub video_url: Option<String>,
    /// The URL of the video's thumbnail; null if it has none.
    #[schemars(example = serde_json::Value::Null)]
    pub thumbnail_url: Option<String>,
    /// Meta's click id, which its Conversions API accepts; null if WhatsApp does not report it.
    #[schemars(example = &"ARAkLkA8rmlFeiCktEJQ")]
    pub ctwa_clid: Option<String>,
}

/// Shows only the kind of source: the other fields reveal what a contact viewed.
impl fmt::Debug for Referral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut output = f.debug_struct("Referral");
        output.field("source_type", &self.source_type).finish_non_exhaustive()
    }
}
