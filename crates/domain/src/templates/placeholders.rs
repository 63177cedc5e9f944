//! `{{1}}`, `{{2}}`, ... in a template's texts.

use std::collections::BTreeSet;

/// The numbers of the placeholders in a text, each once, in order. What is not a plain number in double braces is
/// text to the platform, and to us.
pub fn placeholders(text: &str) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("{{") {
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

fn number(inside: &str) -> Option<usize> {
    let digits = !inside.is_empty() && inside.bytes().all(|b| b.is_ascii_digit()) && !inside.starts_with('0');
    if digits { inside.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_in_double_braces_count() {
        let found = |text| placeholders(text).into_iter().collect::<Vec<_>>();
        assert_eq!(found("Oi {{2}}, {{1}} e {{2}}"), [1, 2]);
        assert_eq!(found("{{name}} {{ 1 }} {{01}} {{}} {1} {{3"), Vec::<usize>::new());
        assert_eq!(found("{{{{1}}}}"), [1]);
    }
}
