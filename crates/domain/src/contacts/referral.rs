//! The ad or post that led a contact to send a message.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The ad or post that led a contact to send a message.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Referral {
    /// The kind of source, for example `ad` or `post`; null if WhatsApp does not report it.
    pub source_type: Option<String>,
    /// Meta's id of the ad or post; null if WhatsApp does not report it.
    pub source_id: Option<String>,
    /// The URL of the ad or post; null if WhatsApp does not report it.
    pub source_url: Option<String>,
    /// The headline of the ad; null if it has none.
    pub headline: Option<String>,
    /// The text of the ad; null if it has none.
    pub body: Option<String>,
    /// The media type of the ad, `image` or `video`; null if it has none.
    pub media_type: Option<String>,
    /// The URL of the ad's image; null if it has none.
    pub image_url: Option<String>,
    /// The URL of the ad's video; null if it has none.
    pub video_url: Option<String>,
    /// The URL of the video's thumbnail; null if it has none.
    pub thumbnail_url: Option<String>,
    /// Meta's click id, which its Conversions API accepts; null if WhatsApp does not report it.
    pub ctwa_clid: Option<String>,
}

/// Shows only the kind of source: the other fields reveal what a contact viewed.
impl fmt::Debug for Referral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut output = f.debug_struct("Referral");
        output.field("source_type", &self.source_type).finish_non_exhaustive()
    }
}
