//! The content of a free-form message: a text, a file, or buttons or a list. It does not depend on the context that
//! sends the message.

mod input;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use self::input::{
    ButtonInput, ContentInput, HeaderInput, HeaderPartsInput, InteractiveInput, MediaInput, RowInput, SectionInput,
};
use crate::media::FileKind;
use crate::shared::{MediaId, redacted_debug};

/// The checked content of a free-form message. Its serialized form may be stored.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageContent {
    /// 1 to 4096 characters.
    Text(String),
    Media(MediaContent),
    Interactive(Interactive),
    /// Asks for the recipient's phone number: 1 to 1024 characters.
    ContactRequest(String),
}

redacted_debug!(
    enum MessageContent {
        Text,
        Media,
        Interactive,
        ContactRequest,
    }
);

/// A file with its caption.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaContent {
    pub kind: FileKind,
    pub file: FileReference,
    pub caption: Option<String>,
    /// The name that the recipient sees. Documents only.
    pub file_name: Option<String>,
}

redacted_debug!(MediaContent { kind });

/// The file that a message names.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileReference {
    /// A file of the account.
    Media(MediaId),
    /// An https URL, which WhatsApp fetches.
    Url(String),
}

redacted_debug!(
    enum FileReference {
        Media,
        Url,
    }
);

/// A message with buttons or a list.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interactive {
    pub header: Option<InteractiveHeader>,
    pub body: String,
    pub footer: Option<String>,
    pub choice: InteractiveChoice,
}

redacted_debug!(Interactive {});

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InteractiveHeader {
    Text(String),
    Media(MediaContent),
}

redacted_debug!(
    enum InteractiveHeader {
        Text,
        Media,
    }
);

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InteractiveChoice {
    Buttons(Vec<ReplyButton>),
    List {
        /// The label of the button that opens the list.
        button: String,
        sections: Vec<ListSection>,
    },
}

redacted_debug!(
    enum InteractiveChoice {
        Buttons,
        List,
    }
);

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyButton {
    pub id: String,
    pub title: String,
}

redacted_debug!(ReplyButton {});

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListSection {
    pub title: Option<String>,
    pub rows: Vec<ListRow>,
}

redacted_debug!(ListSection {});

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRow {
    pub id: String,
    pub title: String,
    pub description: Option<String>,
}

redacted_debug!(ListRow {});

impl MessageContent {
    /// The published type of the message. It is WhatsApp's, but a contact request is `interactive` there.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Media(media) => media.kind.as_str(),
            Self::Interactive(_) => "interactive",
            Self::ContactRequest(_) => "contact_request",
        }
    }

    /// The readable text: the text, the caption or the body.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::ContactRequest(text) => Some(text),
            Self::Media(media) => media.caption.as_deref(),
            Self::Interactive(interactive) => Some(&interactive.body),
        }
    }

    pub fn caption(&self) -> Option<&str> {
        match self {
            Self::Media(media) => media.caption.as_deref(),
            Self::Text(_) | Self::Interactive(_) | Self::ContactRequest(_) => None,
        }
    }

    /// The message's file, with the path of its field. A message has at most one.
    pub fn media(&self) -> Option<(&'static str, &MediaContent)> {
        match self {
            Self::Media(media) => Some(("media", media)),
            Self::Interactive(interactive) => match &interactive.header {
                Some(InteractiveHeader::Media(media)) => Some(("interactive.header.media", media)),
                Some(InteractiveHeader::Text(_)) | None => None,
            },
            Self::Text(_) | Self::ContactRequest(_) => None,
        }
    }
}
