//! User-provided text: sanitized names, e-mail addresses and URL slugs.

use serde::Serialize;
use serde_json::Value;

/// The longest slug.
const SLUG_CHARS: usize = 50;

/// The longest e-mail address.
const EMAIL_CHARS: usize = 254;

/// Whether the value contains a NUL character, which PostgreSQL cannot store.
pub fn holds_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(holds_nul),
        Value::Object(fields) => fields.iter().any(|(key, value)| key.contains('\0') || holds_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns the size of a value as JSON, in bytes.
pub fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}

/// Sanitizes a name: removes HTML tags and control characters, collapses and trims white space.
pub fn sanitize(name: &str) -> String {
    let visible: String = without_tags(name)
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !c.is_control())
        .collect();
    visible.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether the text has only white space and control characters.
pub fn is_blank(text: &str) -> bool {
    text.chars().all(is_separator)
}

/// Replaces every run of white space and control characters by one space, and trims both ends. WhatsApp rejects a
/// parameter with a line break, a tab or more than four consecutive spaces (error 132018).
pub fn single_spaced(text: &str) -> String {
    let words: Vec<&str> = text.split(is_separator).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

/// Removes tags in one pass that also removes a tag which the removal of another one creates (`<<b>i>`).
fn without_tags(text: &str) -> String {
    let mut output = String::with_capacity(text.len());
    let mut openings = Vec::new();
    for c in text.chars() {
        match c {
            '<' => openings.push(output.len()),
            '>' => {
                let opening = openings.last().copied();
                if let Some(at) = opening.filter(|at| output.get(at + 1..).is_some_and(is_tag)) {
                    openings.pop();
                    output.truncate(at);
                    continue;
                }
            }
            _ => {}
        }
        output.push(c);
    }
    output
}

/// Whether the text between `<` and `>` is a tag: that of `<b>`, `</b>` or `<!-- -->` is, that of `1 < 2 > 0` is not.
fn is_tag(inside: &str) -> bool {
    inside.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '!' || c == '?')
}

/// Validates an e-mail address: a local part, an at sign and a domain with a dot, without spaces.
pub fn email(text: &str) -> Option<String> {
    let (local, domain) = text.rsplit_once('@')?;
    let plain =
        |part: &str| !part.is_empty() && part.chars().all(|c| !c.is_whitespace() && !c.is_control() && c != '@');
    let labels = domain
        .split('.')
        .all(|label| plain(label) && !label.starts_with('-') && !label.ends_with('-'));
    let valid = plain(local) && labels && domain.contains('.') && text.chars().count() <= EMAIL_CHARS;
    valid.then(|| text.to_owned())
}

/// Returns the slug of a name: 1 to `SLUG_CHARS` lowercase letters, digits and hyphens. An empty result becomes
/// `account`.
pub fn slug(name: &str) -> String {
    let full = slug::slugify(name);
    let truncated: String = full.chars().take(SLUG_CHARS).collect();
    let truncated = truncated.trim_end_matches('-');
    if truncated.is_empty() {
        "account".to_owned()
    } else {
        truncated.to_owned()
    }
}

/// Returns an endless sequence of alternatives to a used slug: `base`, `base-2`, `base-3`, ... Each has at most
/// `SLUG_CHARS` characters.
pub fn slugs(base: &str) -> impl Iterator<Item = String> {
    (1..).map(move |number| numbered_slug(base, number))
}

fn numbered_slug(base: &str, number: u64) -> String {
    if number == 1 {
        return base.to_owned();
    }
    let suffix = format!("-{number}");
    let room = SLUG_CHARS.saturating_sub(suffix.len());
    let truncated: String = base.chars().take(room).collect();
    format!("{}{suffix}", truncated.trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sanitize_removes_tags_controls_and_extra_spaces() {
        assert_eq!(sanitize("  Black\t Friday \u{7}<b>2026</b>\n"), "Black Friday 2026");
        assert_eq!(sanitize("<script>alert(1)</script>"), "alert(1)");
        assert_eq!(sanitize("1 < 2 > 0 <"), "1 < 2 > 0 <");
        assert_eq!(sanitize("<<b>i>x"), "x");
        assert_eq!(sanitize(" \u{a0}\n "), "");
    }

    #[test]
    fn single_spaced_collapses_separators() {
        let table = [
            ("Rua A\nCasa 2", "Rua A Casa 2"),
            ("\t a \u{a0}\u{2028} \r\n b     c\u{0}d\u{9f}", "a b c d"),
            (" \u{7}\u{85}\u{3000} ", ""),
            ("João  Ávila\u{200b}", "João Ávila\u{200b}"),
        ];
        for (text, expected) in table {
            assert_eq!(single_spaced(text), expected, "{text:?}");
            assert_eq!(is_blank(text), expected.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn slug_matches_expected_names() {
        assert_eq!(slug("Loja da Ana"), "loja-da-ana");
        assert_eq!(slug("Ação & Cia"), "acao-cia");
        assert_eq!(slug("!!!"), "account");
        assert_eq!(slug(&"a".repeat(80)).len(), 50);
    }

    #[test]
    fn slug_alternatives_are_numbered_and_short() {
        let first: Vec<String> = slugs("loja").take(3).collect();
        assert_eq!(first, ["loja", "loja-2", "loja-3"]);
        let second = slugs(&"a".repeat(50)).nth(1).unwrap();
        assert_eq!((second.len(), second.ends_with("-2")), (50, true));
    }

    proptest! {
        #[test]
        fn slug_is_always_valid(name in "\\PC{0,120}") {
            let slug = slug(&name);
            prop_assert!((1..=50).contains(&slug.len()));
            prop_assert!(slug.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
            prop_assert!(!slug.starts_with('-') && !slug.ends_with('-'));
        }

        /// The alternatives are valid slugs, and at most one of them occurs twice.
        #[test]
        fn slug_alternatives_never_end(name in "[a-z0-9 -]{0,60}") {
            let base = slug(&name);
            let mut seen = std::collections::BTreeSet::new();
            for next in slugs(&base).take(30) {
                prop_assert!((1..=50).contains(&next.len()) && !next.starts_with('-') && !next.ends_with('-'));
                seen.insert(next);
            }
            prop_assert!(seen.len() >= 29);
        }

        #[test]
        fn sanitize_is_idempotent(name in "[a-c<>/ \t]{0,40}") {
            let once = sanitize(&name);
            prop_assert_eq!(sanitize(&once), once);
        }
    }
}
