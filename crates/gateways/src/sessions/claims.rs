//! What a token whose signature is right has to say.

use recado_domain::accounts::Session;
use recado_domain::redacted_debug;
use recado_domain::shared::{UserId, text};
use serde::Deserialize;
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// How far the provider's clock may be from ours.
const LEEWAY: Duration = Duration::seconds(2);

/// Roles of a token that is no person's.
const NOBODY: [&str; 2] = ["anon", "service_role"];

/// For whom and by whom a token has to be made; what is none is not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The exact `iss`.
    pub issuer: Option<String>,
    /// What `aud` is or holds.
    pub audience: Option<String>,
}

/// The claims looked at. Times are seconds since the epoch, and numbers: text is refused.
#[derive(Deserialize)]
pub(super) struct Claims {
    sub: Uuid,
    email: String,
    exp: f64,
    nbf: Option<f64>,
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
    /// The session proved; none when a claim speaks against it.
    pub(super) fn session(self, expected: &Expected, now: OffsetDateTime) -> Option<Session> {
        let expires_at = moment(self.exp)?;
        let begun = match self.nbf {
            Some(nbf) => moment(nbf)? <= now + LEEWAY,
            None => true,
        };
        let valid = begun && now - LEEWAY < expires_at && self.is_for(expected) && self.is_somebody();
        let email = self.email.trim();
        let known = !email.is_empty() && !email.contains(|c: char| c.is_whitespace() || c.is_control());
        (valid && known).then(|| Session {
            user_id: UserId(self.sub),
            email: email.to_owned(),
            name: self.shown_name(),
            expires_at,
        })
    }

    fn is_for(&self, expected: &Expected) -> bool {
        let by = expected.issuer.is_none() || self.iss == expected.issuer;
        let to = expected.audience.as_deref().is_none_or(|wanted| match &self.aud {
            Some(Value::String(audience)) => audience == wanted,
            Some(Value::Array(audiences)) => audiences.iter().any(|audience| audience.as_str() == Some(wanted)),
            _ => false,
        });
        by && to
    }

    /// A person, with an address that the provider does not doubt. Where it says nothing of that kind it vouches for
    /// the address; `user_metadata` is the user's own word and proves nothing.
    fn is_somebody(&self) -> bool {
        let role = self.role.as_ref().and_then(Value::as_str).unwrap_or_default();
        let verified = match &self.email_verified {
            None => true,
            Some(Value::Bool(verified)) => *verified,
            Some(other) => other.as_str() == Some("true"),
        };
        self.is_anonymous != Some(true) && !NOBODY.contains(&role) && verified
    }

    fn shown_name(&self) -> Option<String> {
        let own = |key| self.user_metadata.as_ref().and_then(|metadata| metadata.get(key));
        let given = [self.name.as_ref(), own("name"), own("full_name")]
            .into_iter()
            .flatten();
        given
            .filter_map(Value::as_str)
            .map(text::sanitize)
            .find(|name| !name.is_empty())
    }
}

/// A number of seconds as a moment; none beyond the calendar, as for milliseconds taken for seconds.
fn moment(seconds: f64) -> Option<OffsetDateTime> {
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

    fn expected() -> Expected {
        Expected {
            issuer: Some("https://id.example/auth/v1".into()),
            audience: Some("authenticated".into()),
        }
    }

    fn read(claims: Value, expected: &Expected) -> Option<Session> {
        let now = OffsetDateTime::from_unix_timestamp(NOW).unwrap();
        serde_json::from_value::<Claims>(claims).ok()?.session(expected, now)
    }

    fn with(changes: Value) -> Value {
        let mut changed = claims();
        for (key, value) in changes.as_object().unwrap() {
            changed[key] = value.clone();
        }
        changed
    }

    #[test]
    fn a_good_token_names_the_user() {
        let session = read(claims(), &expected()).unwrap();
        assert_eq!(session.user_id.to_string(), "0334744a-f2a2-4aba-8c8a-6e748f62a172");
        assert_eq!((session.email.as_str(), session.name), ("ana@example.com", None));
        assert_eq!(session.expires_at.unix_timestamp(), NOW + 3600);
    }

    #[test]
    fn what_speaks_for_a_token_may_have_several_forms() {
        for good in [
            json!({ "aud": ["other", "authenticated"] }),
            json!({ "exp": NOW - 1 }),
            json!({ "exp": 1_767_326_645.5 }),
            json!({ "exp": 253_402_300_799_i64 }),
            json!({ "nbf": NOW + 2 }),
            json!({ "nbf": null, "role": null, "is_anonymous": null, "email_verified": null, "name": null }),
            json!({ "email_verified": true }),
            json!({ "email_verified": "true" }),
            json!({ "user_metadata": { "email_verified": false } }),
            json!({ "role": "admin" }),
        ] {
            assert!(read(with(good.clone()), &expected()).is_some(), "{good}");
        }
    }

    #[test]
    fn what_speaks_against_a_token_refuses_it() {
        for bad in [
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
            json!({ "email_verified": false }),
            json!({ "email_verified": "false" }),
            json!({ "is_anonymous": true }),
            json!({ "is_anonymous": "true" }),
            json!({ "role": "anon" }),
            json!({ "role": "service_role" }),
        ] {
            assert!(read(with(bad.clone()), &expected()).is_none(), "{bad}");
        }
    }

    #[test]
    fn issuer_and_audience_are_checked_where_they_are_configured() {
        let foreign = with(json!({ "iss": "https://other.example", "aud": ["x"] }));
        assert!(read(foreign.clone(), &Expected::default()).is_some());
        assert!(read(foreign, &expected()).is_none());
    }

    #[test]
    fn the_name_is_the_providers_else_the_users_own() {
        let name = |changes| read(with(changes), &expected()).unwrap().name;
        let own = json!({ "full_name": "Ana <b>Lima</b>" });
        assert_eq!(
            name(json!({ "name": " Ana\u{0} ", "user_metadata": own })).as_deref(),
            Some("Ana")
        );
        assert_eq!(
            name(json!({ "name": "", "user_metadata": own })).as_deref(),
            Some("Ana Lima")
        );
        assert_eq!(name(json!({ "name": 7, "user_metadata": "x" })), None);
    }
}
