//! Checks the claims of a token whose signature is valid.

use recado_domain::accounts::Session;
use recado_domain::redacted_debug;
use recado_domain::shared::{UserId, text};
use serde::Deserialize;
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// Accepted difference between the provider's clock and ours.
const LEEWAY: Duration = Duration::seconds(2);

/// Roles of tokens that belong to no user.
const NON_USER_ROLES: [&str; 2] = ["anon", "service_role"];

/// What a token must meet besides its signature and times. `None` disables the check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Must equal `iss`.
    pub issuer: Option<String>,
    /// Must equal `aud`, or be one of its entries.
    pub audience: Option<String>,
    /// The longest time since `iat`. A token without `iat` is refused.
    pub max_age: Option<Duration>,
}

/// The claims that are checked. Times are numbers of seconds since the epoch; a string is rejected.
#[derive(Deserialize)]
pub(super) struct Claims {
    sub: Uuid,
    email: String,
    exp: f64,
    nbf: Option<f64>,
    iat: Option<Value>,
    auth_time: Option<Value>,
    iss: Option<String>,
    aud: Option<Value>,
    name: Option<Value>,
    role: Option<Value>,
    is_anonymous: Option<bool>,
    email_verified: Option<Value>,
    user_metadata: Option<Value>,
}

redacted_debug!(Claims {});

impl Claims {
    /// The session that the token proves; `None` if a claim is invalid.
    pub(super) fn into_session(self, expected: &Expected, now: OffsetDateTime) -> Option<Session> {
        let expires_at = parse_time(self.exp)?;
        let has_started = match self.nbf {
            Some(nbf) => parse_time(nbf)? <= now + LEEWAY,
            None => true,
        };
        let issued_at = optional_time(self.iat.as_ref());
        let too_old_after = match expected.max_age {
            Some(max_age) => Some(issued_at?.checked_add(max_age)?),
            None => None,
        };
        let is_valid = has_started
            && now - LEEWAY < expires_at
            && too_old_after.is_none_or(|last| now <= last)
            && self.matches(expected)
            && self.belongs_to_a_user();
        let email = self.email.trim();
        let has_email = !email.is_empty() && !email.contains(|c: char| c.is_whitespace() || c.is_control());
        (is_valid && has_email).then(|| Session {
            user_id: UserId(self.sub),
            email: email.to_owned(),
            name: self.display_name(),
            email_verified: self.email_verified(),
            issued_at,
            authenticated_at: optional_time(self.auth_time.as_ref()),
            signed_out_at: None,
            expires_at: too_old_after.map_or(expires_at, |last| expires_at.min(last)),
        })
    }

    fn matches(&self, expected: &Expected) -> bool {
        let issuer_matches = expected.issuer.is_none() || self.iss == expected.issuer;
        let audience_matches = expected.audience.as_deref().is_none_or(|required| match &self.aud {
            Some(Value::String(audience)) => audience == required,
            Some(Value::Array(audiences)) => audiences.iter().any(|audience| audience.as_str() == Some(required)),
            _ => false,
        });
        issuer_matches && audience_matches
    }

    fn belongs_to_a_user(&self) -> bool {
        let role = self.role.as_ref().and_then(Value::as_str).unwrap_or_default();
        self.is_anonymous != Some(true) && !NON_USER_ROLES.contains(&role)
    }

    /// What the provider says about the address. `user_metadata` is written by the user and proves nothing.
    fn email_verified(&self) -> Option<bool> {
        match self.email_verified.as_ref()? {
            Value::Bool(verified) => Some(*verified),
            value => Some(value.as_str() == Some("true")),
        }
    }

    fn display_name(&self) -> Option<String> {
        let metadata = |key| self.user_metadata.as_ref().and_then(|metadata| metadata.get(key));
        let names = [self.name.as_ref(), metadata("name"), metadata("full_name")];
        let names = names.into_iter().flatten();
        names
            .filter_map(Value::as_str)
            .map(text::sanitize)
            .find(|name| !name.is_empty())
    }
}

/// Converts a claim that a token may lack. Anything but a time counts as absent.
fn optional_time(claim: Option<&Value>) -> Option<OffsetDateTime> {
    parse_time(claim?.as_f64()?)
}

/// Converts seconds since the epoch; `None` beyond the calendar, for example for milliseconds.
fn parse_time(seconds: f64) -> Option<OffsetDateTime> {
    OffsetDateTime::UNIX_EPOCH.checked_add(Duration::checked_seconds_f64(seconds)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_767_323_045;

    fn claims() -> Value {
        json!({ "iss": "https://id.example/auth/v1", "aud": "authenticated", "exp": NOW + 3600, "iat": NOW,
            "sub": "0334744a-f2a2-4aba-8c8a-6e748f62a172", "email": "ana@example.com", "role": "authenticated",
            "is_anonymous": false, "app_metadata": { "provider": "email" }, "user_metadata": {} })
    }

    fn expected_claims() -> Expected {
        Expected {
            issuer: Some("https://id.example/auth/v1".into()),
            audience: Some("authenticated".into()),
            max_age: None,
        }
    }

    fn read(claims: Value, expected: &Expected) -> Option<Session> {
        let now = OffsetDateTime::from_unix_timestamp(NOW).unwrap();
        serde_json::from_value::<Claims>(claims)
            .ok()?
            .into_session(expected, now)
    }

    fn claims_with(changes: Value) -> Value {
        let mut changed = claims();
        for (key, value) in changes.as_object().unwrap() {
            changed[key] = value.clone();
        }
        changed
    }

    #[test]
    fn valid_token_gives_the_user() {
        let session = read(claims(), &expected_claims()).unwrap();
        assert_eq!(session.user_id.to_string(), "0334744a-f2a2-4aba-8c8a-6e748f62a172");
        assert_eq!((session.email.as_str(), session.name), ("ana@example.com", None));
        assert_eq!(session.expires_at.unix_timestamp(), NOW + 3600);
    }

    #[test]
    fn valid_claims_are_accepted_in_every_form() {
        for valid in [
            json!({ "aud": ["other", "authenticated"] }),
            json!({ "exp": NOW - 1 }),
            json!({ "exp": 1_767_326_645.5 }),
            json!({ "exp": 253_402_300_799_i64 }),
            json!({ "nbf": NOW + 2 }),
            json!({ "nbf": null, "role": null, "is_anonymous": null, "email_verified": null, "name": null }),
            json!({ "email_verified": true }),
            json!({ "email_verified": "true" }),
            json!({ "user_metadata": { "email_verified": false } }),
            json!({ "email_verified": false }),
            json!({ "iat": null, "auth_time": null }),
            json!({ "iat": "yesterday", "auth_time": [] }),
            json!({ "role": "admin" }),
        ] {
            assert!(
                read(claims_with(valid.clone()), &expected_claims()).is_some(),
                "{valid}"
            );
        }
    }

    #[test]
    fn invalid_claim_rejects_the_token() {
        for invalid in [
            json!({ "exp": NOW - 2 }),
            json!({ "exp": (NOW + 3600).to_string() }),
            json!({ "exp": null }),
            json!({ "exp": -1 }),
            json!({ "exp": NOW * 1000 }),
            json!({ "exp": 1e300 }),
            json!({ "nbf": NOW + 3 }),
            json!({ "nbf": NOW.to_string() }),
            json!({ "iss": "https://id.example/auth/v1/" }),
            json!({ "iss": null }),
            json!({ "iss": ["https://id.example/auth/v1"] }),
            json!({ "aud": "anon" }),
            json!({ "aud": ["anon"] }),
            json!({ "aud": null }),
            json!({ "sub": "" }),
            json!({ "sub": "ana" }),
            json!({ "sub": null }),
            json!({ "email": " " }),
            json!({ "email": null }),
            json!({ "email": "ana@example.com\u{0}" }),
            json!({ "is_anonymous": true }),
            json!({ "is_anonymous": "true" }),
            json!({ "role": "anon" }),
            json!({ "role": "service_role" }),
        ] {
            assert!(
                read(claims_with(invalid.clone()), &expected_claims()).is_none(),
                "{invalid}"
            );
        }
    }

    #[test]
    fn session_reports_what_the_token_says_about_its_user() {
        for (claim, expected) in [
            (json!(null), None),
            (json!(true), Some(true)),
            (json!("true"), Some(true)),
            (json!(false), Some(false)),
            (json!("false"), Some(false)),
            (json!(1), Some(false)),
        ] {
            let session = read(claims_with(json!({ "email_verified": claim })), &expected_claims()).unwrap();
            assert_eq!(session.email_verified, expected, "{claim}");
        }
        let seconds = |changes| {
            let session = read(claims_with(changes), &expected_claims()).unwrap();
            let second = |at: Option<OffsetDateTime>| at.map(OffsetDateTime::unix_timestamp);
            (second(session.issued_at), second(session.authenticated_at))
        };
        assert_eq!(seconds(json!({})), (Some(NOW), None));
        assert_eq!(
            seconds(json!({ "iat": NOW - 5, "auth_time": NOW - 60 })),
            (Some(NOW - 5), Some(NOW - 60))
        );
        assert_eq!(
            seconds(json!({ "iat": NOW * 1000, "auth_time": NOW.to_string() })),
            (None, None)
        );
    }

    #[test]
    fn token_older_than_the_maximum_age_is_refused() {
        let hour = Expected {
            max_age: Some(Duration::HOUR),
            ..expected_claims()
        };
        let expiry = |changes| read(claims_with(changes), &hour).map(|session| session.expires_at.unix_timestamp());
        assert_eq!(expiry(json!({ "exp": NOW + 60 })), Some(NOW + 60));
        assert_eq!(expiry(json!({ "exp": NOW + 86_400 })), Some(NOW + 3600));
        assert_eq!(expiry(json!({ "iat": NOW - 3600 })), Some(NOW));
        assert_eq!(expiry(json!({ "iat": NOW - 3601 })), None);
        assert_eq!(expiry(json!({ "iat": null })), None);
        assert!(read(claims_with(json!({ "iat": NOW - 3601 })), &expected_claims()).is_some());
    }

    #[test]
    fn issuer_and_audience_are_checked_if_configured() {
        let foreign = claims_with(json!({ "iss": "https://other.example", "aud": ["x"] }));
        assert!(read(foreign.clone(), &Expected::default()).is_some());
        assert!(read(foreign, &expected_claims()).is_none());
    }

    #[test]
    fn name_falls_back_from_claim_to_user_metadata() {
        let name = |changes| read(claims_with(changes), &expected_claims()).unwrap().name;
        let metadata = json!({ "full_name": "Ana <b>Lima</b>" });
        assert_eq!(
            name(json!({ "name": " Ana\u{0} ", "user_metadata": metadata })).as_deref(),
            Some("Ana")
        );
        assert_eq!(
            name(json!({ "name": "", "user_metadata": metadata })).as_deref(),
            Some("Ana Lima")
        );
        assert_eq!(name(json!({ "name": 7, "user_metadata": "x" })), None);
    }
}
