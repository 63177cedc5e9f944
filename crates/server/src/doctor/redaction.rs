//! Removes the secrets of the environment from texts: the errors of drivers may quote what they were given.

/// Endings of the names of variables that are secrets.
const SECRET_NAMES: &[&str] = &["SECRET", "SECRETS", "KEY", "KEY_ID", "TOKEN", "PASSWORD", "PREVIOUS"];

/// Shorter values are not replaced: they occur in ordinary words.
const MIN_SECRET_BYTES: usize = 4;

const REDACTED: &str = "[redacted]";

/// The secrets of an environment, longest first.
pub(super) struct Redactor(Vec<String>);

impl Redactor {
    /// Collects the values of secret variables, each part of a comma-separated one, and the passwords in URLs.
    pub(super) fn new(environment: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut secrets = Vec::new();
        for (name, value) in environment {
            if SECRET_NAMES.iter().any(|ending| name.ends_with(ending)) {
                secrets.extend(value.split(',').map(|part| part.trim().to_owned()));
                secrets.push(value.trim().to_owned());
            }
            for password in passwords(&value) {
                secrets.push(decoded(password));
                secrets.push(password.to_owned());
            }
        }
        secrets.retain(|secret| secret.len() >= MIN_SECRET_BYTES);
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self(secrets)
    }

    pub(super) fn redact(&self, text: &str) -> String {
        let replace = |text: String, secret: &String| text.replace(secret.as_str(), REDACTED);
        self.0.iter().fold(text.to_owned(), replace)
    }
}

/// The passwords of a URL: in its user information and in its query.
fn passwords(value: &str) -> Vec<&str> {
    let Some((_, rest)) = value.split_once("://") else {
        return Vec::new();
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    // A password may hold a slash that is not encoded: then it ends at the last `@` of the value.
    let user = authority.rsplit_once('@').or_else(|| rest.rsplit_once('@'));
    let in_user = user.and_then(|(user, _)| Some(user.split_once(':')?.1));
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let in_query = query.split('&').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        (name == "password" || name == "sslpassword").then_some(value)
    });
    in_user.into_iter().chain(in_query).collect()
}

/// Decodes `%40` and the like. Malformed sequences stay as they are.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = (first == b'%').then(|| after.get(..2)).flatten();
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() {
            after.get(2..).unwrap_or_default()
        } else {
            after
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_the_environment_are_replaced() {
        let environment = [
            ("WHATSAPP_APP_SECRET", "first-secret, second-secret"),
            ("AI_API_KEY", "sk-123456"),
            ("DATABASE_URL", "postgres://owner:p%40ss/word@db.example:5432/recado"),
            ("SMTP_URL", "smtp://mailer:hunter2@mail.example?tls=required"),
            (
                "TENANT_DATABASE_URL",
                "postgres://tenant@db.example/recado?password=in-the-query",
            ),
            ("PUBLIC_URL", "https://recado.example"),
            ("LOG_FORMAT", "json"),
            ("SHORT_TOKEN", "ok"),
        ];
        let redactor = Redactor::new(environment.map(|(name, value)| (name.to_owned(), value.to_owned())));
        for secret in [
            "first-secret",
            "second-secret",
            "sk-123456",
            "p%40ss/word",
            "p@ss/word",
            "hunter2",
            "in-the-query",
        ] {
            let text = redactor.redact(&format!("before {secret} after"));
            assert_eq!(text, "before [redacted] after", "{secret}");
        }
        for text in ["https://recado.example is ok", "json", "owner", "mail.example"] {
            assert_eq!(redactor.redact(text), text);
        }
    }
}
