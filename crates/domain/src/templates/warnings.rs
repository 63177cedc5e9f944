//! What WhatsApp often dislikes in a template. A warning refuses nothing.

use super::Template;
use super::findings::{FindingCode, Findings};
use super::placeholders::{count_all, has_placeholder};
use crate::messaging::Category;

/// A text of this many words is long enough to have too many placeholders or capital letters.
const MIN_WORDS: usize = 2;

/// The most placeholders of a text: one in this many words.
const WORDS_FOR_PLACEHOLDER: usize = 3;

/// Words of an offer in Portuguese, English and Spanish, in lower case.
const OFFER_WORDS: [&str; 28] = [
    "cashback",
    "coupon",
    "coupons",
    "cupom",
    "cupons",
    "cupón",
    "deal",
    "descontão",
    "desconto",
    "descontos",
    "descuento",
    "descuentos",
    "discount",
    "discounts",
    "free",
    "gratis",
    "grátis",
    "imperdível",
    "liquidação",
    "oferta",
    "ofertas",
    "offer",
    "promo",
    "promoción",
    "promoção",
    "promoções",
    "rebajas",
    "sale",
];

/// Hosts that shorten links.
const SHORTENERS: [&str; 12] = [
    "bit.ly",
    "tinyurl.com",
    "goo.gl",
    "t.co",
    "ow.ly",
    "is.gd",
    "buff.ly",
    "cutt.ly",
    "rebrand.ly",
    "encurtador.com.br",
    "shorturl.at",
    "rb.gy",
];

/// The warnings of a template, by field.
pub(super) fn warnings(template: &Template) -> Findings {
    let mut findings = Findings::default();
    let texts = [
        ("header_text", template.header_placeholder_text()),
        ("body_text", template.body_text.as_deref()),
        ("footer_text", template.footer_text.as_deref()),
    ];
    for (field, text) in texts.into_iter().filter_map(|(field, text)| Some((field, text?))) {
        check_text(template, field, text, &mut findings);
    }
    for (position, button) in template.buttons.iter().enumerate() {
        check_link(&format!("buttons[{position}].url"), &button.url, &mut findings);
    }
    for (position, card) in template.carousel_cards.iter().enumerate() {
        for (component, content) in card.components.iter().enumerate() {
            let field = format!("carousel_cards[{position}].components[{component}]");
            check_text(template, &format!("{field}.text"), &content.text, &mut findings);
            for (position, button) in content.buttons.iter().enumerate() {
                let field = format!("{field}.buttons[{position}].url");
                check_link(&field, &button.url, &mut findings);
            }
        }
    }
    findings
}

fn check_text(template: &Template, field: &str, text: &str, findings: &mut Findings) {
    let words: Vec<&str> = text.split_whitespace().collect();
    let placeholders = count_all(text, template.parameter_format);
    if words.len() >= MIN_WORDS && placeholders.saturating_mul(WORDS_FOR_PLACEHOLDER) > words.len() {
        let message = "has more than one placeholder in three words";
        findings.add(field, FindingCode::ManyPlaceholders, message);
    }
    let plain = || {
        words
            .iter()
            .filter(|word| !has_placeholder(word, template.parameter_format))
    };
    if template.category == Category::Utility && plain().any(|word| is_offer_word(word)) {
        let message = "has words of an offer, which WhatsApp expects in category MARKETING";
        findings.add(field, FindingCode::OfferWords, message);
    }
    let with_letters = plain().filter(|word| word.chars().any(char::is_alphabetic));
    if with_letters.clone().count() >= MIN_WORDS && with_letters.clone().all(|word| is_in_capitals(word)) {
        findings.add(field, FindingCode::AllCapitals, "has only capital letters");
    }
    check_link(field, text, findings);
}

fn check_link(field: &str, text: &str, findings: &mut Findings) {
    if text.split_whitespace().any(is_shortened_link) {
        let message = "has a shortened link; write the address of its target";
        findings.add(field, FindingCode::ShortenedLink, message);
    }
}

fn is_offer_word(word: &str) -> bool {
    let word = word.to_lowercase();
    let plain = word.trim_matches(|c: char| !c.is_alphanumeric());
    word.contains('%') || OFFER_WORDS.contains(&plain)
}

fn is_in_capitals(word: &str) -> bool {
    !word.chars().any(char::is_lowercase)
}

/// Whether a word has a link to a shortener, with or without a scheme.
fn is_shortened_link(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let word = word.trim_start_matches(|c: char| !c.is_alphanumeric());
    let address = word.strip_prefix("https://").or_else(|| word.strip_prefix("http://"));
    let host = address.unwrap_or(word);
    let host = host.split(['/', '?', '#', ':']).next().unwrap_or_default();
    let host = host.strip_prefix("www.").unwrap_or(host);
    SHORTENERS.contains(&host)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::messaging::ParameterFormat;
    use crate::templates::tests::approved_template;

    fn found(template: &Template) -> Vec<(String, &'static str)> {
        let found = warnings(template).into_vec().into_iter();
        found.map(|finding| (finding.field, finding.code.as_str())).collect()
    }

    fn of_body(category: Category, body: &str) -> Vec<&'static str> {
        let template = Template {
            category,
            ..approved_template(body, &["a", "b"])
        };
        found(&template).into_iter().map(|(_, code)| code).collect()
    }

    #[test]
    fn texts_are_warned_of_placeholders_offers_links_and_capitals() {
        for (category, body, codes) in [
            (Category::Marketing, "Oi {{1}}, seu pedido chegou.", &[][..]),
            (Category::Marketing, "Oi {{1}} e {{2}}, chegou hoje.", &[]),
            (Category::Marketing, "Oi {{1}} e {{2}}, chegou.", &["many_placeholders"]),
            (Category::Marketing, "Oi {{1}}, ganhe 10% de desconto hoje.", &[]),
            (
                Category::Utility,
                "Oi {{1}}, ganhe 10 de Desconto hoje.",
                &["offer_words"],
            ),
            (Category::Utility, "Oi {{1}}, ganhe 10% hoje na loja.", &["offer_words"]),
            (Category::Utility, "Oi {{1}}, seu pedido saiu.", &[]),
            (
                Category::Marketing,
                "Veja em https://bit.ly/abc agora.",
                &["shortened_link"],
            ),
            (Category::Marketing, "Veja em bit.ly/abc agora.", &["shortened_link"]),
            (Category::Marketing, "Veja em https://loja.example/bit.ly agora.", &[]),
            (Category::Marketing, "COMPRE HOJE, {{1}}, NA LOJA!", &["all_capitals"]),
            (Category::Marketing, "OI", &[]),
        ] {
            assert_eq!(of_body(category, body), codes, "{category} {body}");
        }
    }

    #[test]
    fn named_placeholders_buttons_and_cards_are_warned_too() {
        let named = Template {
            parameter_format: ParameterFormat::Named,
            ..approved_template("Oi {{nome}}, use {{cupom}} hoje.", &["Ana", "X5"])
        };
        assert_eq!(found(&named), [("body_text".to_owned(), "many_placeholders")]);
        let button = json!({ "type": "URL", "text": "Ver", "url": "https://tinyurl.com/{{1}}" });
        let card = json!({ "components": [{ "type": "BODY", "text": "COMPRE JÁ" },
            { "type": "BUTTONS", "buttons": [button] }] });
        let template = Template {
            buttons: vec![button.into()],
            carousel_cards: vec![card.into()],
            ..approved_template("Oi!", &[])
        };
        assert_eq!(
            found(&template),
            [
                ("buttons[0].url".to_owned(), "shortened_link"),
                ("carousel_cards[0].components[0].text".to_owned(), "all_capitals"),
                (
                    "carousel_cards[0].components[1].buttons[0].url".to_owned(),
                    "shortened_link"
                ),
            ]
        );
    }
}
