//! A public type name exists once in the workspace, so that one name always means one thing.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::tokens;

/// The words that declare a type.
const KINDS: &[&str] = &["struct", "enum", "trait", "type"];

/// Collects the public types of all files, then reports each name that two files declare.
#[derive(Default)]
pub(super) struct TypeNames(BTreeMap<String, Vec<(String, usize)>>);

impl TypeNames {
    /// Adds the public types that `source` declares. Only `src` of the crates counts: tests and xtask export nothing.
    pub(super) fn add(&mut self, path: &str, source: &str) {
        if !path.starts_with("crates/") || !path.contains("/src/") {
            return;
        }
        for declaration in tokens::tokens(source).windows(3) {
            let [public, kind, name] = declaration else { continue };
            // A macro declares `pub struct $name`.
            if public.text == "pub" && KINDS.contains(&kind.text.as_str()) && name.text != "$" {
                let declarations = self.0.entry(name.text.clone()).or_default();
                declarations.push((path.to_owned(), name.line));
            }
        }
    }

    pub(super) fn check(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (name, declarations) in &self.0 {
            let [(first, _), others @ ..] = declarations.as_slice() else {
                continue;
            };
            findings.extend(others.iter().map(|(path, line)| {
                let message =
                    format!("the public type {name} is declared in {first} too; give one of them another name");
                Finding::new(path, *line, message)
            }));
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_type_names_declared_twice_are_reported() {
        let mut names = TypeNames::default();
        names.add(
            "crates/a/src/lib.rs",
            "pub struct Send;\npub struct $name;\nstruct Private;\n// pub enum Lease\npub enum Kind {}",
        );
        names.add(
            "crates/b/src/lib.rs",
            "\npub trait Send<T> {}\npub struct $name;\npub struct Private;\npub enum Lease {}",
        );
        names.add("crates/b/tests/it/main.rs", "pub struct Kind;");
        names.add("xtask/src/main.rs", "pub struct Kind;");
        let message = "the public type Send is declared in crates/a/src/lib.rs too; give one of them another name";
        assert_eq!(names.check(), [Finding::new("crates/b/src/lib.rs", 2, message)]);
    }
}
