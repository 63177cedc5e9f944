//! The parts of a template that calls to WhatsApp contain, and the values of its placeholders and buttons.

use crate::media::MediaType;
use crate::shared::{redacted_debug, string_enum};

string_enum! {
    /// The purpose of a template. WhatsApp prices and limits messages by it.
    Category {
        /// Offers and promotions.
        Marketing = "MARKETING",
        /// Messages about an order or a request of the contact.
        Utility = "UTILITY",
        /// One-time codes.
        Authentication = "AUTHENTICATION",
    }
}

string_enum! {
    /// The status of WhatsApp's review.
    MetaStatus {
        /// The current content was not submitted.
        Draft = "draft",
        /// Submitted; the review is not finished.
        Pending = "pending",
        /// Approved: the template may be sent.
        Approved = "approved",
        /// Rejected. `rejection_reason` has the reason.
        Rejected = "rejected",
        /// Paused by WhatsApp for low quality.
        Paused = "paused",
        /// Disabled by WhatsApp.
        Disabled = "disabled",
    }
}

string_enum! {
    /// The header above the body.
    HeaderType {
        /// No header.
        None = "none",
        /// A line of text.
        Text = "text",
        /// An image.
        Image = "image",
        /// A video.
        Video = "video",
        /// A document file.
        Document = "document",
    }
}

impl HeaderType {
    /// Whether WhatsApp accepts a file of this media type in a header of this type. No header may be a WebP file.
    pub fn accepts(self, file_type: MediaType) -> bool {
        match self {
            Self::None | Self::Text => false,
            Self::Image => matches!(file_type, MediaType::Jpeg | MediaType::Png),
            Self::Video => file_type == MediaType::Mp4,
            Self::Document => file_type == MediaType::Pdf,
        }
    }

    pub fn is_file(self) -> bool {
        matches!(self, Self::Image | Self::Video | Self::Document)
    }
}

string_enum! {
    /// The syntax of the placeholders of header and body.
    ParameterFormat {
        /// `{{1}}`, `{{2}}`, ...
        Positional = "positional",
        /// `{{first_name}}`: a name of lowercase letters, digits and underscores.
        Named = "named",
    }
}

/// The value of one placeholder in a message or example, in WhatsApp's format.
#[derive(Clone, PartialEq, Eq)]
pub struct TextParameter {
    /// The placeholder's name. None for a numbered placeholder, whose position counts.
    pub name: Option<String>,
    pub text: String,
}

redacted_debug!(TextParameter { name });

impl TextParameter {
    /// The value of a numbered placeholder.
    pub fn numbered(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { name: None, text }
    }
}

/// The kind of value that a button needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ButtonKind {
    /// The end of a URL.
    Url,
    /// A code that the contact copies.
    CopyCode,
}

#[derive(Clone, PartialEq, Eq)]
pub struct ButtonValue {
    /// The position among the buttons.
    pub index: usize,
    pub kind: ButtonKind,
    pub value: String,
}

redacted_debug!(ButtonValue {});
