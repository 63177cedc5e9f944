//! Cookies: the session, in every form that the libraries of identity providers write, and the active account.

use actix_web::HttpRequest;
use actix_web::cookie::{Cookie, SameSite, time::Duration};
use actix_web::http::header;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use recado_domain::accounts::AccountHint;
use recado_domain::shared::AccountId;
use serde_json::Value;
use uuid::Uuid;

/// The cookie that names the active account.
pub const ACTIVE_ACCOUNT: &str = "svc-active-account-id";

/// The header that names the active account for clients without cookies.
const ACCOUNT_HEADER: &str = "x-account-id";

/// The maximum number of chunks of a session cookie, and their maximum total size in bytes.
const MAX_CHUNKS: usize = 10;
const MAX_SESSION_BYTES: usize = 32 * 1024;

/// Returns the session token of the cookie `name`. Its value is the JWT, or a JSON session (plain or with the prefix
/// `base64-`) that contains it, possibly split into `name.0`, `name.1`, ... None: it is missing or malformed.
pub fn session_token(request: &HttpRequest, name: &str) -> Option<String> {
    let value = match first_value(request, name) {
        Some(value) => value,
        None => join_chunks(request, name)?,
    };
    if value.is_empty() || value.len() > MAX_SESSION_BYTES {
        return None;
    }
    match value.strip_prefix("base64-") {
        Some(encoded) => access_token(&URL_SAFE_NO_PAD.decode(encoded.trim_end_matches('=')).ok()?),
        None if value.starts_with(['{', '[']) => access_token(value.as_bytes()),
        None => Some(value),
    }
}

/// Returns the values of all cookies of this name, in the order of the request. A malformed cookie hides no other. That
/// is why this does not use actix's cookie jar, which rejects all cookies if one pair is malformed.
pub(crate) fn values<'r>(request: &'r HttpRequest, name: &'r str) -> impl Iterator<Item = String> + 'r {
    let lines = request.headers().get_all(header::COOKIE);
    lines.flat_map(move |line| {
        let text = String::from_utf8_lossy(line.as_bytes()).into_owned();
        let found: Vec<String> = text.split(';').filter_map(|pair| value_of(pair, name)).collect();
        found
    })
}

/// Returns the decoded value of a pair of this name, or its raw value if it cannot be decoded.
fn value_of(pair: &str, name: &str) -> Option<String> {
    let (found, value) = pair.split_once('=')?;
    if found.trim() != name {
        return None;
    }
    let decoded = Cookie::parse_encoded(pair.trim()).map(|cookie| cookie.value().to_owned());
    Some(decoded.unwrap_or_else(|_| value.trim().to_owned()))
}

/// Returns the first value, which belongs to the most specific path (RFC 6265, section 5.4).
fn first_value(request: &HttpRequest, name: &str) -> Option<String> {
    values(request, name).next()
}

/// Joins the chunks `name.0`, `name.1`, ...
fn join_chunks(request: &HttpRequest, name: &str) -> Option<String> {
    let mut value = String::new();
    for number in 0..MAX_CHUNKS {
        match first_value(request, &format!("{name}.{number}")) {
            Some(chunk) if value.len() <= MAX_SESSION_BYTES => value.push_str(&chunk),
            _ => break,
        }
    }
    (!value.is_empty()).then_some(value)
}

/// Returns the token of a session object, or of the array that older libraries wrote.
fn access_token(json: &[u8]) -> Option<String> {
    let session: Value = serde_json::from_slice(json).ok()?;
    let token = session.get("access_token").or_else(|| session.get(0))?;
    token.as_str().map(str::to_owned)
}

/// The account of the request: the cookie takes precedence over `X-Account-Id`. Without both it is the one used last.
pub fn account_hint(request: &HttpRequest) -> AccountHint {
    let headers = request.headers().get_all(ACCOUNT_HEADER);
    let headers = headers.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    active_account_of(request)
        .or_else(|| unanimous_hint(headers))
        .unwrap_or(AccountHint::Latest)
}

/// The account of the active-account cookie, if there is one.
pub fn active_account_of(request: &HttpRequest) -> Option<AccountHint> {
    unanimous_hint(values(request, ACTIVE_ACCOUNT).filter(|value| !value.is_empty()))
}

/// Parses all values. If they disagree, another site may have set one of them, so the request names no account.
fn unanimous_hint(values: impl Iterator<Item = String>) -> Option<AccountHint> {
    values
        .map(|text| parse_hint(&text))
        .reduce(|left, right| if left == right { left } else { AccountHint::Unreadable })
}

fn parse_hint(text: &str) -> AccountHint {
    Uuid::parse_str(text.trim()).map_or(AccountHint::Unreadable, |id| AccountHint::Named(id.into()))
}

/// Creates the cookies that name the active account.
pub struct AccountCookies {
    secure: bool,
}

impl AccountCookies {
    /// `secure`: browsers send the cookies over https only (`COOKIE_SECURE`).
    pub fn new(secure: bool) -> Self {
        Self { secure }
    }

    /// Makes an account the active one, for a year.
    pub fn activate(&self, account: AccountId) -> Cookie<'static> {
        let mut cookie = self.cookie(account.to_string());
        cookie.set_max_age(Duration::days(365));
        cookie
    }

    /// Removes the active account.
    pub fn remove(&self) -> Cookie<'static> {
        let mut cookie = self.cookie(String::new());
        cookie.make_removal();
        cookie
    }

    fn cookie(&self, value: String) -> Cookie<'static> {
        Cookie::build(ACTIVE_ACCOUNT, value)
            .path("/")
            .http_only(true)
            .same_site(SameSite::Lax)
            .secure(self.secure)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn token(cookies: &[(&'static str, &str)]) -> Option<String> {
        let mut request = TestRequest::default();
        for (name, value) in cookies {
            request = request.cookie(Cookie::new(*name, (*value).to_owned()));
        }
        session_token(&request.to_http_request(), "svc-session")
    }

    #[test]
    fn session_token_parses_in_every_written_form() {
        let found = Some("a.b.c".to_owned());
        assert_eq!(token(&[("svc-session", "a.b.c")]), found);
        assert_eq!(
            token(&[("svc-session", "base64-eyJhY2Nlc3NfdG9rZW4iOiJhLmIuYyJ9")]),
            found
        );
        assert_eq!(token(&[("svc-session", r#"{"access_token":"a.b.c"}"#)]), found);
        assert_eq!(token(&[("svc-session", r#"["a.b.c","refresh"]"#)]), found);
        let chunks = [
            ("svc-session.0", "base64-eyJhY2Nlc3NfdG9r"),
            ("svc-session.1", "ZW4iOiJhLmIuYyJ9"),
        ];
        assert_eq!(token(&chunks), found);
        let gap = [("svc-session.0", "a.b"), ("svc-session.2", ".c")];
        assert_eq!(token(&gap), Some("a.b".to_owned()));
    }

    #[test]
    fn malformed_session_cookie_is_no_session() {
        assert_eq!(token(&[]), None);
        assert_eq!(token(&[("svc-session", "")]), None);
        assert_eq!(token(&[("svc-session", "base64-%%%")]), None);
        assert_eq!(token(&[("svc-session", "base64-e30")]), None);
        assert_eq!(token(&[("svc-session", "{\"access_token\":3}")]), None);
        assert_eq!(token(&[("svc-session", &"x".repeat(MAX_SESSION_BYTES + 1))]), None);
    }

    #[test]
    fn account_cookie_precedes_header_even_if_malformed() {
        let id = Uuid::from_u128(5);
        let request = |cookie: Option<&str>, header: Option<&str>| {
            let mut request = TestRequest::default();
            if let Some(value) = cookie {
                request = request.cookie(Cookie::new(ACTIVE_ACCOUNT, value.to_owned()));
            }
            if let Some(value) = header {
                request = request.insert_header(("X-Account-Id", value));
            }
            account_hint(&request.to_http_request())
        };
        let named = AccountHint::Named(id.into());
        assert_eq!(request(Some(&id.to_string()), Some("junk")), named);
        assert_eq!(request(None, Some(&id.to_string())), named);
        assert_eq!(request(Some("junk"), Some(&id.to_string())), AccountHint::Unreadable);
        assert_eq!(request(None, None), AccountHint::Latest);
    }

    #[test]
    fn account_values_that_disagree_name_no_account() {
        let (one, two) = (Uuid::from_u128(5), Uuid::from_u128(6));
        let hint = |cookies: &[String], headers: &[Uuid]| {
            let mut request = TestRequest::default();
            for line in cookies {
                request = request.append_header(("Cookie", line.as_str()));
            }
            for id in headers {
                request = request.append_header(("X-Account-Id", id.to_string()));
            }
            account_hint(&request.to_http_request())
        };
        let cookie = |id: &dyn std::fmt::Display| format!("{ACTIVE_ACCOUNT}={id}");
        let named = AccountHint::Named(one.into());
        let both = |a: String, b: String| [format!("{a}; {b}"), format!("x=1; {b};{a}")];
        for line in both(cookie(&one), cookie(&two)) {
            assert_eq!(hint(std::slice::from_ref(&line), &[]), AccountHint::Unreadable);
            assert_eq!(hint(&[line], &[one]), AccountHint::Unreadable);
        }
        assert_eq!(hint(&[cookie(&one), cookie(&two)], &[]), AccountHint::Unreadable);
        assert_eq!(hint(&[cookie(&one), cookie(&"junk")], &[]), AccountHint::Unreadable);
        assert_eq!(hint(&[cookie(&one), cookie(&one)], &[]), named);
        assert_eq!(hint(&[], &[one, one]), named);
        assert_eq!(hint(&[], &[one, two]), AccountHint::Unreadable);
        assert_eq!(hint(&[cookie(&"")], &[one]), named, "an empty cookie is ignored");
    }

    #[test]
    fn malformed_cookie_hides_no_other() {
        let id = Uuid::from_u128(5);
        for broken in ["junk", "=", "a=%ff", "%ff=1", "\"", "a=b=c", ";;"] {
            let line = format!("{broken}; {ACTIVE_ACCOUNT}={id}; svc-session=a.b.c");
            let request = TestRequest::default().insert_header(("Cookie", line)).to_http_request();
            assert_eq!(account_hint(&request), AccountHint::Named(id.into()), "{broken}");
            assert_eq!(
                session_token(&request, "svc-session").as_deref(),
                Some("a.b.c"),
                "{broken}"
            );
        }
        for junk in ["%ff", "%00", "\u{fffd}", "x"] {
            let line = format!("{ACTIVE_ACCOUNT}={junk}");
            let request = TestRequest::default().insert_header(("Cookie", line)).to_http_request();
            assert_eq!(account_hint(&request), AccountHint::Unreadable, "{junk}");
        }
    }

    #[test]
    fn account_cookie_has_the_documented_flags() {
        let cookie = AccountCookies::new(true)
            .activate(Uuid::from_u128(5).into())
            .to_string();
        for flag in ["HttpOnly", "SameSite=Lax", "Secure", "Path=/", "Max-Age=31536000"] {
            assert!(cookie.contains(flag), "{cookie}");
        }
        assert!(
            !AccountCookies::new(false)
                .activate(Uuid::from_u128(5).into())
                .to_string()
                .contains("Secure")
        );
    }
}
