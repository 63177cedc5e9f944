//! The fields that a validation concerns.

use crate::templates::TemplateInput;

/// Which fields are validated. A stored template may have content that no caller could write, such as missing examples
/// after a synchronization. Its other fields can still be changed.
pub(in crate::templates) enum Checked {
    /// All fields: the template is new.
    All,
    /// The fields of the input, and the fields that must be consistent with them.
    Only(Vec<&'static str>),
}

impl Checked {
    pub(in crate::templates) fn from_input(input: &TemplateInput) -> Self {
        let fields = [
            ("name", input.name.is_some()),
            ("category", input.category.is_some()),
            ("language", input.language.is_some()),
            ("template_type", input.template_type.is_some()),
            ("parameter_format", input.parameter_format.is_some()),
            ("header_type", input.header_type.is_some()),
            ("header_text", input.header_text.is_some()),
            ("header_media_url", input.header_media_url.is_some()),
            ("body_text", input.body_text.is_some()),
            ("footer_text", input.footer_text.is_some()),
            ("buttons", input.buttons.is_some()),
            ("limited_time_offer", input.limited_time_offer.is_some()),
            ("message_send_ttl_seconds", input.message_send_ttl_seconds.is_some()),
            ("example_values", input.example_values.is_some()),
            ("carousel_cards", input.carousel_cards.is_some()),
        ];
        let present = fields.into_iter().filter(|(_, is_present)| *is_present);
        Self::Only(present.map(|(field, _)| field).collect())
    }

    pub(super) fn any(&self, fields: &[&str]) -> bool {
        match self {
            Self::All => true,
            Self::Only(fields_given) => fields_given.iter().any(|field| fields.contains(field)),
        }
    }
}
