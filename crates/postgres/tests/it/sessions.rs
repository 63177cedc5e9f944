//! The times at which users ended their sessions.

use recado_domain::accounts::{AccountStore, SessionStore};
use recado_domain::administration::SupportStore;
use recado_domain::shared::UserId;
use recado_postgres::{PgAccounts, PgSessions, PgSupport};
use time::{Duration, OffsetDateTime};

use crate::support::{DbFixture, id, platform_entry, session};

/// A time with the precision of the database.
fn now() -> OffsetDateTime {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(now.nanosecond() / 1000 * 1000).unwrap()
}

#[tokio::test]
async fn end_of_sessions_never_moves_backwards() {
    let fixture = DbFixture::new().await;
    let (sessions, user, now) = (PgSessions::new(fixture.owner.clone()), fixture.user, now());
    assert_eq!(sessions.signed_out_at(user).await.unwrap(), None);
    assert_eq!(sessions.end_all(user, now).await.unwrap(), Some(now));
    // Another server's clock is behind.
    let earlier = now - Duration::MINUTE;
    assert_eq!(sessions.end_all(user, earlier).await.unwrap(), Some(now));
    assert_eq!(sessions.signed_out_at(user).await.unwrap(), Some(now));
    // A later sign-in keeps it.
    PgAccounts::new(fixture.owner.clone())
        .record_user(&session(user))
        .await
        .unwrap();
    assert_eq!(sessions.signed_out_at(user).await.unwrap(), Some(now));
    let stranger = UserId(id());
    assert_eq!(sessions.end_all(stranger, now).await.unwrap(), None);
    assert_eq!(sessions.signed_out_at(stranger).await.unwrap(), None);
}

#[tokio::test]
async fn end_of_sessions_ends_the_support_mode_of_that_user_alone() {
    let fixture = DbFixture::new().await;
    let (sessions, accounts) = (
        PgSessions::new(fixture.owner.clone()),
        PgAccounts::new(fixture.owner.clone()),
    );
    let support = PgSupport::new(fixture.owner.clone());
    let (root, other, end) = (UserId(id()), UserId(id()), now() + Duration::HOUR);
    for user in [root, other] {
        accounts.record_user(&session(user)).await.unwrap();
        let admin = crate::administration::admin(user);
        let entry = platform_entry(fixture.account);
        let started = support.start(&admin, fixture.account, None, end, &[], entry).await;
        assert!(started.unwrap().is_some());
    }
    sessions.end_all(root, now()).await.unwrap();
    let access = async |user| accounts.membership_access(user, fixture.account).await.unwrap();
    assert_eq!(access(root).await, None);
    assert!(access(other).await.is_some());
    // A regular membership stays.
    sessions.end_all(fixture.user, now()).await.unwrap();
    assert!(access(fixture.user).await.is_some());
}
