//! The submission of a template for WhatsApp's review.

use super::{Button, CarouselCard, Category, HeaderType, LimitedTimeOffer, ParameterFormat, TextParameter};

/// A template that passed every rule for which WhatsApp would reject it.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateSubmission {
    pub name: String,
    /// `pt_BR` or `pt`.
    pub language: String,
    pub category: Category,
    pub parameter_format: ParameterFormat,
    pub header: Option<HeaderSubmission>,
    pub limited_time_offer: Option<LimitedTimeOffer>,
    /// The body and its examples, in order. None if WhatsApp provides the text (one-time codes).
    pub body: Option<(String, Vec<TextParameter>)>,
    pub footer: Option<String>,
    pub buttons: Vec<Button>,
    /// The cards of a carousel.
    pub cards: Vec<CarouselCard>,
    /// How long WhatsApp tries to deliver a message. None: WhatsApp's default.
    pub message_send_ttl_seconds: Option<i64>,
}

/// The header of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderSubmission {
    /// A text and its examples, in order.
    Text(String, Vec<TextParameter>),
    /// A file.
    File {
        format: HeaderType,
        /// WhatsApp's handle of the uploaded file. Before the upload: its URL.
        handle: String,
    },
    /// A location, which each message gives.
    Location,
}
