//! The rules of location headers, limited-time offers and delivery times: which categories and parts they allow.

use std::ops::RangeInclusive;

use super::checked::Checked;
use crate::messaging::{ButtonType, Category, HeaderType, LimitedTimeOffer};
use crate::shared::text::is_blank;
use crate::templates::Template;
use crate::templates::findings::{FindingCode, Findings};

const OFFER_CHARS: usize = 16;
const OFFER_BODY_CHARS: usize = 600;
const OFFER_CODE_CHARS: usize = 15;

/// The shortest and the longest delivery time of any category.
const TTL_SECONDS: RangeInclusive<i64> = 30..=2_592_000;

/// The rules of single fields.
pub(super) fn check_alone(template: &Template, checked: &Checked, errors: &mut Findings) {
    let text = template.limited_time_offer.as_ref().map(|offer| &offer.text);
    let fits = |text: &str| !is_blank(text) && text.chars().count() <= OFFER_CHARS && !text.contains("{{");
    if checked.any(&["limited_time_offer"]) && text.is_some_and(|text| !fits(text)) {
        let message = format!("must have 1 to {OFFER_CHARS} characters and no placeholder");
        errors.add("limited_time_offer.text", FindingCode::Length, message);
    }
    let ttl = template.message_send_ttl_seconds;
    if checked.any(&["message_send_ttl_seconds"]) && ttl.is_some_and(|ttl| !TTL_SECONDS.contains(&ttl)) {
        add_ttl_error(&TTL_SECONDS, errors);
    }
}

/// The rules between fields.
pub(super) fn check_together(template: &Template, checked: &Checked, errors: &mut Findings) {
    if checked.any(&["header_type", "category"])
        && template.header_type == HeaderType::Location
        && template.category == Category::Authentication
    {
        let message = "may be location only in category UTILITY or MARKETING";
        errors.add("header_type", FindingCode::NotAllowed, message);
    }
    let range = ttl_seconds(template.category);
    let ttl = template
        .message_send_ttl_seconds
        .filter(|ttl| TTL_SECONDS.contains(ttl));
    if checked.any(&["message_send_ttl_seconds", "category"]) && ttl.is_some_and(|ttl| !range.contains(&ttl)) {
        add_ttl_error(&range, errors);
    }
    if let Some(offer) = &template.limited_time_offer {
        check_offer(template, offer, checked, errors);
    }
}

fn ttl_seconds(category: Category) -> RangeInclusive<i64> {
    match category {
        Category::Authentication => 30..=900,
        Category::Utility => 30..=43_200,
        Category::Marketing => 43_200..=2_592_000,
    }
}

fn add_ttl_error(range: &RangeInclusive<i64>, errors: &mut Findings) {
    let message = format!("must be {} to {} in this category, or null", range.start(), range.end());
    errors.add("message_send_ttl_seconds", FindingCode::NotAllowed, message);
}

fn check_offer(template: &Template, offer: &LimitedTimeOffer, checked: &Checked, errors: &mut Findings) {
    let is_checked = |field: &str| checked.any(&["limited_time_offer", field]);
    let mut add = |field: &str, message: &str| errors.add(field, FindingCode::NotAllowed, message);
    if is_checked("category") && template.category != Category::Marketing {
        add("category", "must be MARKETING for a limited-time offer");
    }
    if is_checked("footer_text") && template.footer_text.as_deref().is_some_and(|text| !is_blank(text)) {
        add("footer_text", "must be absent with a limited-time offer");
    }
    let body = template.body_text.as_deref().unwrap_or_default();
    if is_checked("body_text") && body.chars().count() > OFFER_BODY_CHARS {
        add(
            "body_text",
            &format!("must have at most {OFFER_BODY_CHARS} characters with a limited-time offer"),
        );
    }
    let header_fits = matches!(
        template.header_type,
        HeaderType::None | HeaderType::Image | HeaderType::Video
    );
    if is_checked("header_type") && !header_fits {
        add("header_type", "must be none, image or video with a limited-time offer");
    }
    if is_checked("buttons") {
        check_offer_buttons(template, offer, errors);
    }
}

fn check_offer_buttons(template: &Template, offer: &LimitedTimeOffer, errors: &mut Findings) {
    let buttons = &template.buttons;
    if !buttons.iter().any(|button| button.kind == ButtonType::Url) {
        let message = "must have a URL button with a limited-time offer";
        errors.add("buttons", FindingCode::Required, message);
    }
    let first = buttons.first().map(|button| &button.kind);
    if offer.has_expiration && first != Some(&ButtonType::CopyCode) {
        let message = "must begin with a COPY_CODE button if the limited-time offer expires";
        errors.add("buttons", FindingCode::Required, message);
    }
    for (position, button) in buttons.iter().enumerate() {
        let code = button.example.as_deref().unwrap_or_default();
        if button.kind == ButtonType::CopyCode && code.chars().count() > OFFER_CODE_CHARS {
            let message = format!("must have at most {OFFER_CODE_CHARS} characters with a limited-time offer");
            errors.add(format!("buttons[{position}].example"), FindingCode::Length, message);
        }
    }
}
