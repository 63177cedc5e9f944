//! Placeholders in a template's texts: `{{1}}`, `{{2}}`, ..., or `{{first_name}}` in a template with named ones.

use std::collections::BTreeSet;

use super::Template;
use crate::messaging::{HeaderType, ParameterFormat, TextParameter};

const NAME_CHARS: usize = 64;

/// A placeholder of header or body. Both share their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placeholder {
    /// The number or name between the braces.
    pub key: String,
    /// The template's example. Empty if there is none.
    pub example: String,
}

impl Placeholder {
    /// The placeholders `{{1}}`, `{{2}}`, ... with these examples.
    pub fn numbered(examples: &[String]) -> Vec<Self> {
        let numbered = (1_usize..).zip(examples).map(|(number, example)| Self {
            key: number.to_string(),
            example: example.clone(),
        });
        numbered.collect()
    }
}

impl Template {
    /// The placeholders of header and body without duplicates, by number or by the first appearance of their names.
    pub fn placeholders(&self) -> Vec<Placeholder> {
        match self.parameter_format {
            ParameterFormat::Positional => Placeholder::numbered(&self.variables),
            ParameterFormat::Named => {
                let mut examples = self.variables.iter().cloned();
                let named = self.names().into_iter().map(|name| Placeholder {
                    key: name.to_owned(),
                    example: examples.next().unwrap_or_default(),
                });
                named.collect()
            }
        }
    }

    /// The distinct names in header and body, in the order of first appearance.
    pub(super) fn names(&self) -> Vec<&str> {
        let texts = [self.header_placeholder_text(), self.body_text.as_deref()];
        let mut found = Vec::new();
        for name in texts.into_iter().flatten().flat_map(names) {
            if !found.contains(&name) {
                found.push(name);
            }
        }
        found
    }

    /// The values that a text uses. `values` has one value per placeholder of the template.
    pub(crate) fn parameters_of(&self, text: &str, values: &[String]) -> Vec<TextParameter> {
        let placeholders = self.placeholders().into_iter().zip(values);
        let used = placeholders.filter(|(placeholder, _)| text.contains(&format!("{{{{{}}}}}", placeholder.key)));
        let named = self.parameter_format == ParameterFormat::Named;
        let parameters = used.map(|(Placeholder { key, .. }, value)| TextParameter {
            name: named.then_some(key),
            text: value.clone(),
        });
        parameters.collect()
    }

    /// The text with each placeholder replaced by its value. A placeholder without a value stays.
    pub(super) fn with_values(&self, text: &str, values: &[String]) -> String {
        let placeholders = self.placeholders();
        let position = |key: &str| placeholders.iter().position(|placeholder| placeholder.key == key);
        fill(text, |key| Some(values.get(position(key)?)?.as_str()))
    }

    /// The text of a text header.
    pub(crate) fn header_placeholder_text(&self) -> Option<&str> {
        self.header_text
            .as_deref()
            .filter(|_| self.header_type == HeaderType::Text)
    }
}

/// The distinct numbers of the placeholders in a text, in order. Anything else in double braces is plain text, for
/// WhatsApp too.
pub fn placeholders(text: &str) -> BTreeSet<usize> {
    scan(text, number).into_iter().collect()
}

/// Numbers the placeholders of a text from 1 without gaps and keeps their order. Recado numbers header and body
/// together, WhatsApp each component. In ascending order a new number is never an old one that is still to be replaced.
pub fn numbered_from_one(text: &str) -> String {
    let mut renumbered = text.to_owned();
    for (new, old) in (1_usize..).zip(placeholders(text)) {
        renumbered = renumbered.replace(&format!("{{{{{old}}}}}"), &format!("{{{{{new}}}}}"));
    }
    renumbered
}

/// Whether a number appears first after a larger one.
pub(super) fn has_unordered_placeholders(text: &str) -> bool {
    let mut seen = Vec::new();
    for number in scan(text, number) {
        if !seen.contains(&number) {
            seen.push(number);
        }
    }
    !seen.is_sorted()
}

/// The names of the placeholders in a text, with repetitions.
pub(super) fn names(text: &str) -> Vec<&str> {
    scan(text, |inside| is_placeholder_name(inside).then_some(inside))
}

/// The number of distinct placeholders of this format in a text.
pub(super) fn count(text: &str, format: ParameterFormat) -> usize {
    match format {
        ParameterFormat::Positional => placeholders(text).len(),
        ParameterFormat::Named => names(text).into_iter().collect::<BTreeSet<_>>().len(),
    }
}

/// The number of placeholders of this format in a text, with repetitions.
pub(super) fn count_all(text: &str, format: ParameterFormat) -> usize {
    match format {
        ParameterFormat::Positional => scan(text, number).len(),
        ParameterFormat::Named => names(text).len(),
    }
}

pub(super) fn has_placeholder(text: &str, format: ParameterFormat) -> bool {
    count_all(text, format) > 0
}

/// The first text in double braces that is neither a number nor a name. WhatsApp may read it as a placeholder.
pub(super) fn invalid_placeholder(text: &str) -> Option<&str> {
    in_braces(text).find(|inside| number(inside).is_none() && !is_placeholder_name(inside))
}

/// Whether two placeholders have only white space between them.
pub(super) fn has_adjacent_placeholders(text: &str) -> bool {
    let mut is_open = false;
    for part in text.split("}}") {
        if is_open && part.trim_start().starts_with("{{") {
            return true;
        }
        is_open = part.contains("{{");
    }
    false
}

/// Lowercase letters, digits and underscores, at most `NAME_CHARS`, not starting with a digit.
pub(crate) fn is_placeholder_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    !name.is_empty()
        && name.len() <= NAME_CHARS
        && name.bytes().all(fits)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// The first text in double braces that is not a valid name.
pub(super) fn invalid_name(text: &str) -> Option<&str> {
    in_braces(text).find(|inside| !is_placeholder_name(inside))
}

/// The texts in double braces.
pub(super) fn in_braces(text: &str) -> impl Iterator<Item = &str> {
    let rests = text.split("{{").skip(1);
    rests.filter_map(|rest| rest.split_once("}}")).map(|(inside, _)| inside)
}

/// Applies `key` to every text in double braces, in order, and collects the results.
fn scan<'a, T>(text: &'a str, key: impl Fn(&'a str) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("{{") {
        // Of more than two braces, the last two count.
        let after = after.trim_start_matches('{');
        let Some((inside, beyond)) = after.split_once("}}") else {
            break;
        };
        match key(inside) {
            Some(key) => {
                found.push(key);
                rest = beyond;
            }
            None => rest = after,
        }
    }
    found
}

/// Replaces every text in double braces by its `value`. Where `value` returns none, the text stays.
pub(super) fn fill<'v>(text: &str, value: impl Fn(&str) -> Option<&'v str>) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        filled.push_str(before);
        let opened = after.trim_start_matches('{');
        filled.extend(std::iter::repeat_n('{', after.len().saturating_sub(opened.len())));
        let closed = opened.split_once("}}");
        match closed.and_then(|(inside, beyond)| Some((value(inside)?, beyond))) {
            Some((value, beyond)) => {
                filled.push_str(value);
                rest = beyond;
            }
            None => {
                filled.push_str("{{");
                rest = opened;
            }
        }
    }
    filled.push_str(rest);
    filled
}

fn number(inside: &str) -> Option<usize> {
    let digits = !inside.is_empty() && inside.bytes().all(|b| b.is_ascii_digit()) && !inside.starts_with('0');
    if digits { inside.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::messaging::TextParameter;
    use crate::templates::tests::approved_template;

    fn texts(parameters: Vec<TextParameter>) -> Vec<String> {
        parameters.into_iter().map(|parameter| parameter.text).collect()
    }

    fn with_examples(body: &str, examples: &[String]) -> Template {
        let examples: Vec<&str> = examples.iter().map(String::as_str).collect();
        approved_template(body, &examples)
    }

    #[test]
    fn placeholders_are_numbers_in_double_braces() {
        let found = |text| placeholders(text).into_iter().collect::<Vec<_>>();
        assert_eq!(found("Oi {{2}}, {{1}} e {{2}}"), [1, 2]);
        assert_eq!(found("{{name}} {{ 1 }} {{01}} {{}} {1} {{3"), Vec::<usize>::new());
        assert_eq!((found("{{{{1}}}}"), found("{{{1}}}")), (vec![1], vec![1]));
    }

    #[test]
    fn placeholder_names_are_lowercase_without_leading_digit() {
        assert_eq!(names("{{nome}} {{a_1}} {{_}} {{nome}}"), ["nome", "a_1", "_", "nome"]);
        assert_eq!(names("{{Nome}} {{1}} {{ a }} {{}} {{a-b}} {{é}}"), Vec::<&str>::new());
        assert_eq!(names(&format!("{{{{{}}}}}", "a".repeat(65))), Vec::<&str>::new());
        assert_eq!(invalid_name("{{nome}} e {{Cupom}}"), Some("Cupom"));
        assert_eq!(invalid_name("{{nome}} e {cupom}"), None);
    }

    #[test]
    fn braces_that_whatsapp_may_misread_are_found() {
        assert_eq!(invalid_placeholder("Oi {{1}} e {{nome}}, {{ 2 }}"), Some(" 2 "));
        assert_eq!(invalid_placeholder("Oi {{1}} e {nome} {{"), None);
        for text in ["{{1}}{{2}}", "a {{1}} \n{{2}} b", "{{a}} {{a}}"] {
            assert!(has_adjacent_placeholders(text), "{text}");
        }
        for text in ["{{1}}, {{2}}", "{{1}} e {{2}}", "}} {{1}}", "{{1}}"] {
            assert!(!has_adjacent_placeholders(text), "{text}");
        }
        assert_eq!(count_all("{{1}} {{1}} {{a}}", ParameterFormat::Positional), 2);
        assert_eq!(count_all("{{1}} {{a}} {{a}}", ParameterFormat::Named), 2);
    }

    #[test]
    fn named_value_fills_every_text_that_uses_it() {
        let template = Template {
            parameter_format: ParameterFormat::Named,
            header_type: HeaderType::Text,
            header_text: Some("Para {{nome}}".into()),
            ..approved_template("Use {{cupom}}, {{nome}}! {{1}}", &["Ana", "X5"])
        };
        let keys: Vec<String> = template.placeholders().into_iter().map(|p| p.key).collect();
        assert_eq!(keys, ["nome", "cupom"]);
        let values = ["Bia".to_owned(), "Y7".to_owned()];
        let named = |name: &str, text: &str| TextParameter {
            name: Some(name.into()),
            text: text.into(),
        };
        assert_eq!(template.parameters_of("Para {{nome}}", &values), [named("nome", "Bia")]);
        assert_eq!(
            template.parameters_of(template.body_text.as_deref().unwrap(), &values),
            [named("nome", "Bia"), named("cupom", "Y7")]
        );
        assert_eq!(
            template.with_values("Use {{cupom}}, {{nome}}! {{1}}", &values),
            "Use Y7, Bia! {{1}}"
        );
    }

    proptest! {
        #[test]
        fn placeholder_number_is_found_only_in_double_braces(text in "([{}]{1,3}|[0-3]|a| ){0,16}|\\PC{0,40}") {
            let found = placeholders(&text);
            for number in 0..40 {
                prop_assert_eq!(found.contains(&number), number > 0 && text.contains(&format!("{{{{{number}}}}}")));
            }
        }

        #[test]
        fn placeholder_name_is_found_only_in_double_braces(text in "([{}]{1,3}|[ab_]|1| ){0,16}|\\PC{0,40}") {
            let found = names(&text);
            for name in ["a", "b", "_", "ab", "a1", "1"] {
                prop_assert_eq!(found.contains(&name), name != "1" && text.contains(&format!("{{{{{name}}}}}")));
            }
        }

        #[test]
        fn filled_text_has_the_values_of_its_placeholders(text in "([{}]{1,3}|[0-3]|a| ){0,16}|\\PC{0,40}", value_count in 0_usize..4) {
            let values: Vec<String> = (1..=value_count).map(|number| format!("<{number}>")).collect();
            let expected = values.iter().zip(1..).fold(text.clone(), |text, (value, number)| {
                text.replace(&format!("{{{{{number}}}}}"), value)
            });
            prop_assert_eq!(with_examples("", &values).with_values(&text, &values), expected);
        }

        #[test]
        fn each_placeholder_gets_its_own_value(text in "(\\{\\{[1-9]\\}\\}|a){0,9}", value_count in 0_usize..12) {
            let values: Vec<String> = (1..=value_count).map(|number| format!("value {number}")).collect();
            let used = placeholders(&text).into_iter().filter(|number| *number <= value_count);
            let expected: Vec<String> = used.map(|number| format!("value {number}")).collect();
            prop_assert_eq!(texts(with_examples("", &values).parameters_of(&text, &values)), expected);
        }
    }
}
