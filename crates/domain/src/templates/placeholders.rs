//! `{{1}}`, `{{2}}`, ... in a template's texts.

use std::collections::BTreeSet;

/// The numbers of the placeholders in a text, each once, in order. What is not a plain number in double braces is
/// text to the platform, and to us.
pub fn placeholders(text: &str) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("{{") {
        // Of more than two braces, the last two count.
        let after = after.trim_start_matches('{');
        let Some((inside, beyond)) = after.split_once("}}") else {
            break;
        };
        match number(inside) {
            Some(number) => {
                found.insert(number);
                rest = beyond;
            }
            None => rest = after,
        }
    }
    found
}

/// The text with the value of each placeholder in its place; one without a value stays as it is written.
pub(crate) fn fill(text: &str, values: &[String]) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        filled.push_str(before);
        let opened = after.trim_start_matches('{');
        filled.extend(std::iter::repeat_n('{', after.len().saturating_sub(opened.len())));
        let closed = opened.split_once("}}");
        let found = closed.and_then(|(inside, beyond)| {
            let value = values.get(number(inside)?.checked_sub(1)?)?;
            Some((value, beyond))
        });
        match found {
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
    use crate::templates::values_of;

    #[test]
    fn only_numbers_in_double_braces_count() {
        let found = |text| placeholders(text).into_iter().collect::<Vec<_>>();
        assert_eq!(found("Oi {{2}}, {{1}} e {{2}}"), [1, 2]);
        assert_eq!(found("{{name}} {{ 1 }} {{01}} {{}} {1} {{3"), Vec::<usize>::new());
        assert_eq!((found("{{{{1}}}}"), found("{{{1}}}")), (vec![1], vec![1]));
    }

    proptest! {
        #[test]
        fn a_number_is_found_just_where_it_stands_in_double_braces(text in "([{}]{1,3}|[0-3]|a| ){0,16}|\\PC{0,40}") {
            let found = placeholders(&text);
            for number in 0..40 {
                prop_assert_eq!(found.contains(&number), number > 0 && text.contains(&format!("{{{{{number}}}}}")));
            }
        }

        #[test]
        fn a_filled_text_has_the_values_of_its_placeholders(text in "([{}]{1,3}|[0-3]|a| ){0,16}|\\PC{0,40}", known in 0_usize..4) {
            let values: Vec<String> = (1..=known).map(|number| format!("<{number}>")).collect();
            let expected = values.iter().zip(1..).fold(text.clone(), |text, (value, number)| {
                text.replace(&format!("{{{{{number}}}}}"), value)
            });
            prop_assert_eq!(fill(&text, &values), expected);
        }

        #[test]
        fn each_placeholder_gets_its_own_value(text in "(\\{\\{[1-9]\\}\\}|a){0,9}", known in 0_usize..12) {
            let values: Vec<String> = (1..=known).map(|number| format!("value {number}")).collect();
            let used = placeholders(&text).into_iter().filter(|number| *number <= known);
            let expected: Vec<String> = used.map(|number| format!("value {number}")).collect();
            prop_assert_eq!(values_of(&text, &values), expected);
        }
    }
}
