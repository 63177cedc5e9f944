//! The parts of a template that calls to WhatsApp contain, and the values of its placeholders and buttons.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::media::MediaType;
use crate::shared::text::is_blank;
use crate::shared::{FieldErrors, redacted_debug, string_enum};

/// The longest name and address of a header's location, in characters.
const LOCATION_NAME_CHARS: usize = 100;
const LOCATION_ADDRESS_CHARS: usize = 200;

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

impl Category {
    /// Whether WhatsApp sends such templates to phone numbers alone.
    pub fn needs_phone(self) -> bool {
        self == Self::Authentication
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
        /// A location, which each run or message gives.
        Location = "location",
    }
}

impl HeaderType {
    /// Whether WhatsApp accepts a file of this media type in a header of this type. No header may be a WebP file.
    pub fn accepts(self, file_type: MediaType) -> bool {
        match self {
            Self::None | Self::Text | Self::Location => false,
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

/// The location in the header of a message, of a template whose header is a location.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeaderLocation {
    /// Degrees north of the equator, from -90 to 90.
    #[schemars(range(min = -90, max = 90), example = -23.561_4)]
    pub latitude: f64,
    /// Degrees east of Greenwich, from -180 to 180.
    #[schemars(range(min = -180, max = 180), example = -46.655_9)]
    pub longitude: f64,
    /// The name of the location: 1 to 100 characters.
    #[schemars(length(min = 1, max = 100), example = &"Loja Paulista")]
    pub name: String,
    /// The address of the location: 1 to 200 characters.
    #[schemars(length(min = 1, max = 200), example = &"Av. Paulista, 1578, São Paulo")]
    pub address: String,
}

redacted_debug!(HeaderLocation {});

impl HeaderLocation {
    /// Adds the errors of the location's fields below the field `at`.
    pub fn check(&self, at: &str, errors: &mut FieldErrors) {
        for (field, degrees, most) in [("latitude", self.latitude, 90.0), ("longitude", self.longitude, 180.0)] {
            if !(-most..=most).contains(&degrees) {
                errors.add(
                    format!("{at}.{field}"),
                    format!("must be a number from -{most} to {most}"),
                );
            }
        }
        for (field, text, most) in [
            ("name", &self.name, LOCATION_NAME_CHARS),
            ("address", &self.address, LOCATION_ADDRESS_CHARS),
        ] {
            if is_blank(text) || text.chars().count() > most {
                errors.add(format!("{at}.{field}"), format!("must have 1 to {most} characters"));
            }
        }
    }
}

/// The limited-time offer of a template: WhatsApp shows its text above the body, with a countdown if it expires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitedTimeOffer {
    /// The text of the offer: 1 to 16 characters.
    #[schemars(length(min = 1, max = 16), example = &"Só até domingo")]
    pub text: String,
    /// Whether the offer ends at a time, which each run or message gives.
    pub has_expiration: bool,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_names_each_wrong_field() {
        let location = HeaderLocation {
            latitude: -90.0,
            longitude: 180.0,
            name: "x".repeat(100),
            address: "y".repeat(200),
        };
        let error_fields = |location: &HeaderLocation| {
            let mut errors = FieldErrors::default();
            location.check("header_location", &mut errors);
            errors.0.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(error_fields(&location), Vec::<String>::new());
        let wrong = HeaderLocation {
            latitude: 90.1,
            longitude: -180.1,
            name: " \n".into(),
            address: "y".repeat(201),
        };
        let fields = ["address", "latitude", "longitude", "name"];
        assert_eq!(
            error_fields(&wrong),
            fields.map(|field| format!("header_location.{field}"))
        );
    }
}
