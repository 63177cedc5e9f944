//! Use cases of accounts: list memberships, create an account, switch accounts, build the tenant context.

use std::sync::Arc;

use super::{Account, AccountError, AccountStatus, AccountStore, Administrators, Membership, Session};
use crate::shared::{AccountId, Actor, Clock, FieldErrors, Ids, Tenant, text};

/// Maximum length of an account name, in characters.
const NAME_CHARS: usize = 200;

/// How many accounts that they made a user may own, unless [`Accounts::at_most`] says otherwise.
pub const ACCOUNTS_PER_USER: u32 = 100;

/// The account that a request names, before the membership is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountHint {
    /// The request names no account: the one used last.
    Latest,
    Named(AccountId),
    /// The value is no valid account id, so the user is no member of it.
    Unreadable,
}

/// Use cases of accounts.
pub struct Accounts {
    store: Arc<dyn AccountStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    administrators: Administrators,
    accounts_per_user: u32,
}

impl Accounts {
    pub fn new(
        store: Arc<dyn AccountStore>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        administrators: Administrators,
    ) -> Self {
        Self {
            store,
            clock,
            ids,
            administrators,
            accounts_per_user: ACCOUNTS_PER_USER,
        }
    }

    /// Limits how many accounts that they made a user may own.
    pub fn at_most(mut self, accounts_per_user: u32) -> Self {
        self.accounts_per_user = accounts_per_user;
        self
    }

    /// Whether the user is a platform administrator.
    pub fn is_admin(&self, session: &Session) -> bool {
        self.administrators.contains(session)
    }

    /// Whether the user may have a session. A token with an address that is not verified proves no address, so it is
    /// refused, unless its user is an administrator by id.
    pub fn admits(&self, session: &Session) -> bool {
        session.email_verified != Some(false) || self.administrators.contains_id(session)
    }

    /// Checks that the user is a platform administrator who signed in recently enough to administer.
    pub fn check_admin(&self, session: &Session) -> Result<(), AccountError> {
        if !self.is_admin(session) {
            return Err(AccountError::NotAdministrator);
        }
        match self.administrators.is_recent(session, self.clock.now()) {
            true => Ok(()),
            false => Err(AccountError::SignInTooOld),
        }
    }

    /// Stores the user, so that other tables can reference them.
    pub async fn record_user(&self, session: &Session) -> Result<(), AccountError> {
        Ok(self.store.record_user(session).await?)
    }

    /// Returns the user's memberships, oldest first.
    pub async fn list(&self, session: &Session) -> Result<Vec<Membership>, AccountError> {
        let memberships = self.store.memberships(session.user_id).await?;
        let is_valid = |membership: &Membership| membership.support_until.is_none() || self.is_admin(session);
        Ok(memberships.into_iter().filter(is_valid).collect())
    }

    /// Creates an account on the free plan, owned by the user.
    pub async fn create(&self, session: &Session, name: &str) -> Result<Account, AccountError> {
        let name = text::sanitize(name);
        if name.is_empty() || name.chars().count() > NAME_CHARS {
            return Err(FieldErrors::one("name", "must have 1 to 200 characters").into());
        }
        let account = Account {
            id: self.ids.next().into(),
            slug: text::slug(&name),
            name,
            logo_url: None,
            plan: crate::billing::FREE_PLAN.to_owned(),
            status: AccountStatus::Active,
            created_at: self.clock.now(),
        };
        let at_most = i64::from(self.accounts_per_user);
        let created = self.store.create(&account, session.user_id, at_most).await?;
        created.ok_or_else(|| FieldErrors::one("name", accounts_limit_reached(at_most)).into())
    }

    /// Makes an account the user's last used one. Requires a membership, and an active account unless in support mode.
    pub async fn switch(&self, session: &Session, account: AccountId) -> Result<Membership, AccountError> {
        let switched = self.store.switch(session.user_id, account, self.clock.now()).await?;
        switched
            .filter(|membership| membership.support_until.is_none() || self.is_admin(session))
            .ok_or(AccountError::NotMember)
    }

    /// Builds the tenant context of a request. `supported` is the account in the support-mode cookie: there a platform
    /// administrator is named in audit entries and may use a suspended account. A membership of support mode works only
    /// for platform administrators and until it expires.
    pub async fn context(
        &self,
        session: &Session,
        hint: AccountHint,
        supported: Option<AccountId>,
        ip_address: Option<String>,
    ) -> Result<Tenant, AccountError> {
        let membership_access = match hint {
            AccountHint::Latest => self
                .store
                .latest_membership_access(session.user_id)
                .await?
                .ok_or(AccountError::NoAccount)?,
            AccountHint::Named(account) => self
                .store
                .membership_access(session.user_id, account)
                .await?
                .ok_or(AccountError::NotMember)?,
            AccountHint::Unreadable => return Err(AccountError::NotMember),
        };
        let is_admin = || self.is_admin(session);
        let is_temporary = membership_access.support_until.is_some();
        if membership_access
            .support_until
            .is_some_and(|end| end <= self.clock.now())
            || (is_temporary && !is_admin())
        {
            return Err(AccountError::NotMember);
        }
        let in_support = is_temporary || (supported == Some(membership_access.account_id) && is_admin());
        if membership_access.status == AccountStatus::Suspended && !in_support {
            return Err(AccountError::Suspended);
        }
        let actor = Actor {
            user_id: session.user_id,
            ip_address,
            support_admin: in_support.then(|| session.email.clone()),
        };
        Ok(Tenant::new(
            membership_access.account_id,
            actor,
            membership_access.role,
            session.display_name(),
            None,
        ))
    }

    /// Returns the account that a request means if the user has a regular membership in it.
    pub async fn own_account(&self, session: &Session, hint: AccountHint) -> Result<Option<AccountId>, AccountError> {
        let membership_access = match hint {
            AccountHint::Latest => self.store.latest_membership_access(session.user_id).await?,
            AccountHint::Named(account) => self.store.membership_access(session.user_id, account).await?,
            AccountHint::Unreadable => None,
        };
        let regular = membership_access.filter(|access| access.support_until.is_none());
        Ok(regular.map(|access| access.account_id))
    }
}

fn accounts_limit_reached(at_most: i64) -> String {
    format!("cannot be given to another account: you own {at_most} accounts, which is the limit")
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::{MembershipAccess, MockAccountStore};
    use super::*;
    use crate::shared::{MockClock, MockIds, Role, UserId};

    const NOW: time::OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    fn session() -> Session {
        Session {
            email: "Ana@Example.com".into(),
            ..Session::for_tests(UserId(Uuid::from_u128(7)), NOW)
        }
    }

    fn accounts(store: MockAccountStore) -> Accounts {
        let mut clock = MockClock::new();
        clock.expect_now().return_const(NOW);
        let mut ids = MockIds::new();
        ids.expect_next().returning(|| Uuid::from_u128(1));
        Accounts::new(
            Arc::new(store),
            Arc::new(clock),
            Arc::new(ids),
            Administrators::new(vec![], &["ana@example.COM ".into()]).signed_in_within(Some(time::Duration::HOUR)),
        )
    }

    fn membership_access(status: AccountStatus) -> MembershipAccess {
        MembershipAccess {
            account_id: AccountId(Uuid::from_u128(9)),
            role: Role::Viewer,
            status,
            support_until: None,
        }
    }

    #[test]
    fn administrator_must_be_listed_and_signed_in_recently() {
        let accounts = accounts(MockAccountStore::new());
        let issued = |ago| Session {
            issued_at: Some(NOW - ago),
            ..session()
        };
        assert!(accounts.is_admin(&session()));
        assert!(accounts.check_admin(&issued(time::Duration::HOUR)).is_ok());
        let stranger = Session {
            email: "ana@example.co".into(),
            ..issued(time::Duration::ZERO)
        };
        for (session, expected) in [
            (stranger, "requires a platform administrator"),
            (issued(time::Duration::hours(2)), "sign in again"),
            (session(), "sign in again"),
        ] {
            let refused = accounts.check_admin(&session).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn unverified_address_has_a_session_only_by_administrator_id() {
        let unverified = Session {
            email_verified: Some(false),
            ..session()
        };
        let accounts = |administrators| {
            let (clock, ids) = (Arc::new(MockClock::new()), Arc::new(MockIds::new()));
            Accounts::new(Arc::new(MockAccountStore::new()), clock, ids, administrators)
        };
        let by_email = accounts(Administrators::new(vec![], &["ana@example.com".into()]));
        assert!(by_email.admits(&session()) && !by_email.admits(&unverified));
        let by_id = accounts(Administrators::new(vec![unverified.user_id], &[]));
        assert!(by_id.admits(&unverified) && by_id.is_admin(&unverified));
    }

    #[tokio::test]
    async fn new_account_is_free_active_and_has_a_slug() {
        let mut store = MockAccountStore::new();
        store
            .expect_create()
            .withf(|_, owner, at_most| *owner == session().user_id && *at_most == 100)
            .returning(|account, _, _| Ok(Some(account.clone())));
        let account = accounts(store)
            .create(&session(), "  Loja <b>da</b> Ana ")
            .await
            .unwrap();
        assert_eq!(
            (account.name.as_str(), account.slug.as_str()),
            ("Loja da Ana", "loja-da-ana")
        );
        assert_eq!((account.plan.as_str(), account.status), ("free", AccountStatus::Active));
    }

    #[tokio::test]
    async fn account_beyond_the_limit_of_its_owner_is_refused() {
        let mut store = MockAccountStore::new();
        store
            .expect_create()
            .withf(|_, _, at_most| *at_most == 3)
            .returning(|_, _, _| Ok(None));
        let refused = accounts(store).at_most(3).create(&session(), "Loja").await;
        let Err(AccountError::Invalid(errors)) = refused else {
            panic!("{refused:?}");
        };
        assert!(errors.0["name"][0].contains("you own 3 accounts"), "{errors:?}");
    }

    #[tokio::test]
    async fn account_name_empty_or_too_long_is_refused() {
        for name in ["", "   ", "<b></b>", &"a".repeat(201)] {
            let refused = accounts(MockAccountStore::new()).create(&session(), name).await;
            assert!(matches!(refused, Err(AccountError::Invalid(_))), "{name}");
        }
    }

    #[tokio::test]
    async fn tenant_context_requires_membership_in_active_account() {
        let mut store = MockAccountStore::new();
        store.expect_membership_access().returning(|_, account| {
            Ok(match account.0.as_u128() {
                9 => Some(membership_access(AccountStatus::Active)),
                8 => Some(membership_access(AccountStatus::Suspended)),
                _ => None,
            })
        });
        store.expect_latest_membership_access().returning(|_| Ok(None));
        let accounts = accounts(store);
        let context = async |hint| accounts.context(&session(), hint, None, Some("10.0.0.1".into())).await;
        let named = |id| AccountHint::Named(AccountId(Uuid::from_u128(id)));
        let tenant = context(named(9)).await.unwrap();
        assert_eq!(
            (tenant.role, tenant.actor.ip_address.as_deref()),
            (Role::Viewer, Some("10.0.0.1"))
        );
        assert!(matches!(context(named(8)).await, Err(AccountError::Suspended)));
        assert!(matches!(context(named(5)).await, Err(AccountError::NotMember)));
        assert!(matches!(
            context(AccountHint::Unreadable).await,
            Err(AccountError::NotMember)
        ));
        assert!(matches!(
            context(AccountHint::Latest).await,
            Err(AccountError::NoAccount)
        ));
    }

    /// The effect of a temporary membership and of the support-mode cookie, for administrators and other users.
    #[tokio::test]
    async fn support_mode_requires_an_administrator_and_expires() {
        let (here, elsewhere) = (AccountId(Uuid::from_u128(9)), AccountId(Uuid::from_u128(8)));
        let (later, before) = (NOW + time::Duration::SECOND, NOW - time::Duration::SECOND);
        let outsider = || Session {
            email: "bia@example.com".into(),
            ..session()
        };
        let address = "Ana@Example.com";
        use AccountStatus::{Active, Suspended};
        for (until, status, cookie, admin, expected) in [
            (Some(later), Active, None, true, Ok(Some(address))),
            (Some(later), Suspended, None, true, Ok(Some(address))),
            (Some(later), Suspended, Some(here), true, Ok(Some(address))),
            (Some(NOW), Active, Some(here), true, Err("member")),
            (Some(before), Active, None, true, Err("member")),
            (Some(later), Active, Some(here), false, Err("member")),
            (None, Active, None, true, Ok(None)),
            (None, Active, Some(here), true, Ok(Some(address))),
            (None, Suspended, Some(here), true, Ok(Some(address))),
            (None, Suspended, None, true, Err("suspended")),
            (None, Suspended, Some(elsewhere), true, Err("suspended")),
            (None, Active, Some(elsewhere), true, Ok(None)),
            (None, Active, Some(here), false, Ok(None)),
            (None, Suspended, Some(here), false, Err("suspended")),
        ] {
            let mut store = MockAccountStore::new();
            store.expect_membership_access().returning(move |_, _| {
                Ok(Some(MembershipAccess {
                    support_until: until,
                    ..membership_access(status)
                }))
            });
            let session = if admin { session() } else { outsider() };
            let hint = AccountHint::Named(here);
            let context = accounts(store).context(&session, hint, cookie, None).await;
            let support_admin = match context {
                Ok(tenant) => Ok(tenant.actor.support_admin),
                Err(AccountError::NotMember) => Err("member"),
                Err(AccountError::Suspended) => Err("suspended"),
                Err(other) => panic!("{other:?}"),
            };
            let expected = expected.map(|admin: Option<&str>| admin.map(str::to_owned));
            assert_eq!(support_admin, expected, "{until:?} {status:?} {cookie:?} {admin}");
        }
    }

    #[tokio::test]
    async fn switch_to_unknown_account_is_refused() {
        let mut store = MockAccountStore::new();
        store.expect_switch().returning(|_, _, _| Ok(None));
        let refused = accounts(store).switch(&session(), AccountId(Uuid::from_u128(5))).await;
        assert!(matches!(refused, Err(AccountError::NotMember)));
    }
}
