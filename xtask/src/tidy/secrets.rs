//! A type with a derived `Debug` holds no secret in plain text: any log line or assertion could print it.
//!
//! The rule reads the names of fields. A secret belongs into `SecretString` or `SecretBox`, or its type gets a
//! `redacted_debug!`.

use super::finding::Finding;

/// Names of fields that hold a secret, alone or after an underscore.
const SECRETS: &[&str] = &[
    "secret",
    "secrets",
    "password",
    "token",
    "access_token",
    "full_key",
    "api_key",
    "credential",
    "credentials",
    "private_key",
    "app_secret",
];

/// Types that show what they hold.
const PLAIN: &[&str] = &[
    "String", "&str", "Vec<u8>", "[u8;", "Bytes", "&[u8]", "&'a str", "&'a [u8]",
];

pub(super) fn check(path: &str, source: &str) -> Vec<Finding> {
    // The simulators and xtask hold the secrets of tests only.
    if !path.starts_with("crates/") || !path.contains("/src/") || path.starts_with("crates/simulators/") {
        return Vec::new();
    }
    let (mut findings, mut shown, mut deriving) = (Vec::new(), false, false);
    for (number, line) in (1..).zip(source.lines()) {
        // A comment must neither hide a secret nor end a type.
        let code = line.split("//").next().unwrap_or_default().trim();
        if code.is_empty() {
            continue;
        }
        if code.starts_with("#[derive(") || deriving {
            shown |= code.contains("Debug");
            deriving = !code.contains(")]");
        } else if code == "}" || code.ends_with(';') {
            shown = false;
        } else if shown && is_plain_secret(code) {
            let message = format!("`{code}` is shown by the derived Debug: use SecretString, or redacted_debug!");
            findings.push(Finding::new(path, number, message));
        }
    }
    findings
}

/// Whether the line declares a field with the name of a secret and a type that shows its value.
fn is_plain_secret(code: &str) -> bool {
    let Some((name, kind)) = code.split_once(": ") else {
        return false;
    };
    let name = name.rsplit(' ').next().unwrap_or_default();
    let is_secret = SECRETS
        .iter()
        .any(|secret| name == *secret || name.strip_suffix(secret).is_some_and(|rest| rest.ends_with('_')));
    is_secret && !kind.contains("Secret") && PLAIN.iter().any(|plain| kind.contains(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/server/src/x.rs";

    fn lines(source: &str) -> Vec<usize> {
        check(PATH, source).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn plain_secret_with_derived_debug_is_found() {
        let source = "#[derive(Clone, Debug)]\npub struct A {\n    pub app_secret: [u8; 32],\n    name: String,\n}\n";
        assert_eq!(lines(source), [3]);
        for comment in ["not a SecretString", "sent once;"] {
            let source = format!(
                "#[derive(Debug)]\nstruct A {{\n    id: u8, // {comment}\n    token: String, // {comment}\n}}\n"
            );
            assert_eq!(lines(&source), [4], "{comment}");
        }
        let wrapped = "#[derive(\n    Clone,\n    Debug,\n)]\nstruct A {\n    smtp_password: Option<String>,\n}\n";
        assert_eq!(lines(wrapped), [6]);
        assert_eq!(check("crates/simulators/src/x.rs", source), []);
    }

    #[test]
    fn hidden_or_other_fields_are_accepted() {
        for field in [
            "token: SecretString",
            "secret: SecretBox<[u8; 32]>",
            "token: Sealed",
            "token_hash: Vec<u8>",
            "secret_hint: String",
            "tokens_left: u32",
        ] {
            let source = format!("#[derive(Debug)]\nstruct A {{\n    {field},\n}}\n");
            assert!(lines(&source).is_empty(), "{field}");
        }
        for source in [
            "#[derive(Clone)]\nstruct A {\n    token: String,\n}\n",
            "#[derive(Debug)]\nstruct A;\nstruct B {\n    token: String,\n}\n",
        ] {
            assert!(lines(source).is_empty(), "{source}");
        }
    }
}
