//! Who is a platform administrator: users in a list of ids, or with a proven e-mail address in a list of addresses.

use time::{Duration, OffsetDateTime};

use super::Session;
use crate::shared::UserId;

/// The platform administrators that the operator configured.
#[derive(Clone, Default)]
pub struct Administrators {
    ids: Vec<UserId>,
    emails: Vec<String>,
    requires_verified_email: bool,
    max_age: Option<Duration>,
}

impl Administrators {
    /// Users with one of these ids are administrators, whatever their address. Users with one of these addresses are
    /// administrators unless their token says that the address is not verified.
    pub fn new(ids: Vec<UserId>, emails: &[String]) -> Self {
        Self {
            ids,
            emails: emails.iter().map(|email| email.trim().to_owned()).collect(),
            ..Self::default()
        }
    }

    /// An address counts only if the token says that it is verified. For identity providers that let users register an
    /// address without proof.
    #[must_use]
    pub fn requiring_verified_email(self) -> Self {
        Self {
            requires_verified_email: true,
            ..self
        }
    }

    /// Administrators must have signed in at most this long ago.
    #[must_use]
    pub fn signed_in_within(self, max_age: Option<Duration>) -> Self {
        Self { max_age, ..self }
    }

    pub(super) fn contains(&self, session: &Session) -> bool {
        self.contains_id(session) || self.contains_email(session)
    }

    pub(super) fn contains_id(&self, session: &Session) -> bool {
        self.ids.contains(&session.user_id)
    }

    /// ASCII case only: Unicode case folding would make U+212A (Kelvin sign) equal to `k`.
    fn contains_email(&self, session: &Session) -> bool {
        let is_proven = session.email_verified.unwrap_or(!self.requires_verified_email);
        let address = session.email.trim();
        is_proven && self.emails.iter().any(|email| email.eq_ignore_ascii_case(address))
    }

    /// Whether the sign-in is recent enough: by `auth_time`, else by the time at which the token was issued. A token
    /// with neither is too old.
    pub(super) fn is_recent(&self, session: &Session, now: OffsetDateTime) -> bool {
        let signed_in_at = session.authenticated_at.or(session.issued_at);
        self.max_age
            .is_none_or(|max_age| signed_in_at.is_some_and(|signed_in_at| now - signed_in_at <= max_age))
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    fn session(email: &str, email_verified: Option<bool>) -> Session {
        Session {
            email: email.into(),
            email_verified,
            ..Session::for_tests(UserId(Uuid::from_u128(7)), NOW)
        }
    }

    #[test]
    fn listed_address_counts_unless_its_verification_is_denied() {
        let trusting = Administrators::new(vec![], &["root@example.com".into()]);
        let strict = trusting.clone().requiring_verified_email();
        for (verified, by_trusting, by_strict) in [
            (None, true, false),
            (Some(true), true, true),
            (Some(false), false, false),
        ] {
            let session = session("root@example.com", verified);
            assert_eq!(trusting.contains(&session), by_trusting, "{verified:?}");
            assert_eq!(strict.contains(&session), by_strict, "{verified:?}");
        }
    }

    #[test]
    fn listed_id_counts_whatever_its_address() {
        let ids = vec![UserId(Uuid::from_u128(7))];
        let administrators = Administrators::new(ids, &[]).requiring_verified_email();
        for verified in [None, Some(true), Some(false)] {
            assert!(administrators.contains(&session("bia@example.com", verified)));
        }
        let stranger = Session {
            user_id: UserId(Uuid::from_u128(8)),
            ..session("bia@example.com", Some(true))
        };
        assert!(!administrators.contains(&stranger));
    }

    #[test]
    fn addresses_are_compared_by_ascii_case_alone() {
        let administrators = Administrators::new(vec![], &[" Kim@Example.COM ".into()]);
        let is_admin = |email: &str| administrators.contains(&session(email, None));
        assert!(is_admin("kim@example.com") && is_admin(" KIM@EXAMPLE.com "));
        for other in ["\u{212a}im@example.com", "kim@example.com.br", "kim@example.co", ""] {
            assert!(!is_admin(other), "{other}");
        }
    }

    #[test]
    fn age_counts_from_auth_time_before_iat() {
        let administrators = Administrators::default().signed_in_within(Some(Duration::HOUR));
        let (recent, old) = (NOW - Duration::HOUR, NOW - Duration::HOUR - Duration::SECOND);
        for (authenticated_at, issued_at, expected) in [
            (Some(recent), None, true),
            (Some(recent), Some(old), true),
            (Some(old), Some(recent), false),
            (None, Some(recent), true),
            (None, Some(old), false),
            (None, None, false),
        ] {
            let session = Session {
                authenticated_at,
                issued_at,
                ..session("a@example.com", None)
            };
            assert_eq!(administrators.is_recent(&session, NOW), expected);
            assert!(Administrators::default().is_recent(&session, NOW));
        }
    }
}
