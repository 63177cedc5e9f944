//! Use cases of sessions: refuse a session that its user has ended, and end all sessions of a user.

use std::sync::Arc;

use time::OffsetDateTime;

use super::{AccountError, Session, SessionStore};
use crate::shared::{Clock, FieldErrors};

/// Use cases of sessions.
pub struct Sessions {
    store: Arc<dyn SessionStore>,
    clock: Arc<dyn Clock>,
}

impl Sessions {
    pub fn new(store: Arc<dyn SessionStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    /// Returns the session with the time at which the user last ended all sessions. Refuses it if it began before.
    pub async fn check(&self, session: Session) -> Result<Session, AccountError> {
        let signed_out_at = self.store.signed_out_at(session.user_id).await?;
        match signed_out_at {
            Some(signed_out_at) if !began_after(&session, signed_out_at) => Err(AccountError::SessionEnded),
            _ => Ok(Session {
                signed_out_at,
                ..session
            }),
        }
    }

    /// Ends all sessions and the support mode of the user, and returns the time. Refuses a token without the time at
    /// which it was issued: every later token of its provider would be refused, too.
    pub async fn sign_out_everywhere(&self, session: &Session) -> Result<OffsetDateTime, AccountError> {
        if session.issued_at.is_none() {
            let message = "is missing in the session token; an identity provider that omits it cannot end sessions";
            return Err(FieldErrors::one("iat", message).into());
        }
        let ended = self.store.end_all(session.user_id, self.clock.now()).await?;
        // The access check stored the user.
        ended.ok_or(AccountError::SessionEnded)
    }
}

/// Whether the session began after this time. Tokens have whole seconds, so a token of the same second does not count
/// as later. A token without the time at which it was issued does not either.
fn began_after(session: &Session, at: OffsetDateTime) -> bool {
    session
        .issued_at
        .is_some_and(|issued_at| issued_at.unix_timestamp() > at.unix_timestamp())
}

#[cfg(test)]
mod tests {
    use time::Duration;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::MockSessionStore;
    use super::*;
    use crate::shared::{MockClock, UserId};

    const NOW: OffsetDateTime = datetime!(2026-03-01 12:00:00.7 UTC);

    fn sessions(store: MockSessionStore) -> Sessions {
        let mut clock = MockClock::new();
        clock.expect_now().return_const(NOW);
        Sessions::new(Arc::new(store), Arc::new(clock))
    }

    fn issued(at: Option<OffsetDateTime>) -> Session {
        Session {
            issued_at: at,
            ..Session::for_tests(UserId(Uuid::from_u128(7)), NOW)
        }
    }

    fn signed_out(at: Option<OffsetDateTime>) -> Sessions {
        let mut store = MockSessionStore::new();
        store.expect_signed_out_at().returning(move |_| Ok(at));
        sessions(store)
    }

    #[tokio::test]
    async fn session_of_the_second_of_sign_out_has_ended() {
        for (issued_at, is_valid) in [
            (Some(datetime!(2026-03-01 11:59:59 UTC)), false),
            (Some(datetime!(2026-03-01 12:00:00 UTC)), false),
            (Some(datetime!(2026-03-01 12:00:00.9 UTC)), false),
            (Some(datetime!(2026-03-01 12:00:01 UTC)), true),
            (None, false),
        ] {
            let checked = signed_out(Some(NOW)).check(issued(issued_at)).await;
            match checked {
                Ok(session) => assert!(is_valid && session.signed_out_at == Some(NOW), "{issued_at:?}"),
                Err(error) => assert!(
                    !is_valid && matches!(error, AccountError::SessionEnded),
                    "{issued_at:?}"
                ),
            }
        }
    }

    #[tokio::test]
    async fn session_is_valid_if_the_user_never_signed_out() {
        for issued_at in [None, Some(NOW - Duration::days(365))] {
            assert!(signed_out(None).check(issued(issued_at)).await.is_ok());
        }
    }

    #[tokio::test]
    async fn sign_out_everywhere_requires_the_time_of_issue() {
        let refused = sessions(MockSessionStore::new())
            .sign_out_everywhere(&issued(None))
            .await;
        assert!(matches!(refused, Err(AccountError::Invalid(errors)) if errors.0.contains_key("iat")));
        let mut store = MockSessionStore::new();
        store
            .expect_end_all()
            .withf(|user, at| *user == UserId(Uuid::from_u128(7)) && *at == NOW)
            .times(1)
            .returning(|_, at| Ok(Some(at)));
        let ended = sessions(store).sign_out_everywhere(&issued(Some(NOW))).await;
        assert_eq!(ended.unwrap(), NOW);
    }
}
