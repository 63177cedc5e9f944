//! What all workers of a process remember of those who ask: a verified token until it ends, a membership for a moment.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use moka::sync;
use recado_domain::accounts::{Account, AccountStore, Membership, MembershipAccess, Session};
use recado_domain::shared::{AccountId, StoreError, UserId};
use time::OffsetDateTime;

use super::refreshing_cache::{Freshness, RefreshingCache};

/// How many tokens, users and memberships are remembered at most.
pub(super) const REMEMBERED: u64 = 50_000;

/// How long a membership, or an API key, is trusted: a removed member is out within this time, well below the second that
/// is promised.
pub(super) const FRESHNESS: Freshness = Freshness {
    trusted: Duration::from_millis(500),
    refreshed: Duration::from_millis(200),
};

/// How long nothing is remembered of a membership that was changed here: longer than any look that began before the
/// change can take to answer.
pub(super) const CHANGED_FOR: Duration = Duration::from_secs(30);

/// How long it is remembered that a user was recorded.
const RECORDED_FOR: Duration = Duration::from_secs(600);

type Member = (UserId, AccountId);

/// What is remembered.
#[derive(Clone)]
pub struct AuthCache {
    sessions: sync::Cache<String, Session>,
    recorded: sync::Cache<UserId, (String, Option<String>)>,
    memberships: RefreshingCache<Member, MembershipAccess>,
    changed: sync::Cache<Member, ()>,
    changed_accounts: sync::Cache<AccountId, ()>,
}

impl AuthCache {
    /// What was changed in this process counts in it at once.
    pub fn evict_membership(&self, user: UserId, account: AccountId) {
        self.changed.insert((user, account), ());
    }

    /// The same for everybody in an account.
    pub fn evict_account(&self, account: AccountId) {
        self.changed_accounts.insert(account, ());
    }

    /// The session that a token proved before.
    pub(super) fn session(&self, token: &str) -> Option<Session> {
        self.sessions.get(token)
    }

    pub(super) fn keep_session(&self, token: String, session: Session) {
        self.sessions.insert(token, session);
    }

    fn was_changed(&self, (user, account): Member) -> bool {
        self.changed.contains_key(&(user, account)) || self.account_was_changed(account)
    }

    /// Whether nothing that is remembered of an account counts.
    pub(super) fn account_was_changed(&self, account: AccountId) -> bool {
        self.changed_accounts.contains_key(&account)
    }
}

impl Default for AuthCache {
    fn default() -> Self {
        Self {
            sessions: remembered_for(RECORDED_FOR),
            recorded: remembered_for(RECORDED_FOR),
            memberships: RefreshingCache::new(REMEMBERED, FRESHNESS),
            changed: remembered_for(CHANGED_FOR),
            changed_accounts: remembered_for(CHANGED_FOR),
        }
    }
}

pub(super) fn remembered_for<K, V>(time: Duration) -> sync::Cache<K, V>
where
    K: Eq + std::hash::Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    sync::Cache::builder()
        .max_capacity(REMEMBERED)
        .time_to_live(time)
        .build()
}

/// An account store that trusts a membership access for a moment. Only memberships that exist are remembered, so that a
/// new one counts at once.
#[derive(Clone)]
pub struct CachedMemberships {
    /// Where they come from.
    pub store: Arc<dyn AccountStore>,
    /// What is remembered.
    pub auth_cache: AuthCache,
}

impl CachedMemberships {
    /// What is remembered, or what one look for all who wait for it brings.
    async fn cached(&self, (user, account): Member) -> Result<Option<MembershipAccess>, StoreError> {
        let store = self.store.clone();
        let look = move || {
            let store = store.clone();
            async move { store.membership_access(user, account).await }
        };
        self.auth_cache.memberships.get((user, account), look).await
    }
}

#[async_trait]
impl AccountStore for CachedMemberships {
    async fn record_user(&self, session: &Session) -> Result<(), StoreError> {
        let seen = (session.email.clone(), session.name.clone());
        if self.auth_cache.recorded.get(&session.user_id).as_ref() == Some(&seen) {
            return Ok(());
        }
        self.store.record_user(session).await?;
        self.auth_cache.recorded.insert(session.user_id, seen);
        Ok(())
    }

    async fn memberships(&self, user: UserId) -> Result<Vec<Membership>, StoreError> {
        self.store.memberships(user).await
    }

    async fn membership_access(
        &self,
        user: UserId,
        account: AccountId,
    ) -> Result<Option<MembershipAccess>, StoreError> {
        if self.auth_cache.was_changed((user, account)) {
            return self.store.membership_access(user, account).await;
        }
        self.cached((user, account)).await
    }

    async fn latest_membership_access(&self, user: UserId) -> Result<Option<MembershipAccess>, StoreError> {
        self.store.latest_membership_access(user).await
    }

    async fn create(&self, account: &Account, owner: UserId) -> Result<Account, StoreError> {
        self.store.create(account, owner).await
    }

    async fn switch(
        &self,
        user: UserId,
        account: AccountId,
        now: OffsetDateTime,
    ) -> Result<Option<Membership>, StoreError> {
        self.store.switch(user, account, now).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use recado_domain::accounts::AccountStatus;
    use recado_domain::shared::Role;
    use tokio::sync::Semaphore;
    use uuid::Uuid;

    use super::*;

    const MEMBER: Member = (UserId(Uuid::from_u128(1)), AccountId(Uuid::from_u128(2)));

    /// Answers a look with what it holds, once it may.
    struct Looks {
        found: Mutex<Option<Role>>,
        may_answer: Semaphore,
        count: AtomicUsize,
    }

    impl Looks {
        fn new(found: Option<Role>, answers: usize) -> Arc<Self> {
            Arc::new(Self {
                found: Mutex::new(found),
                may_answer: Semaphore::new(answers),
                count: AtomicUsize::default(),
            })
        }

        fn count(&self) -> usize {
            self.count.load(Ordering::Relaxed)
        }
    }

    fn membership_access(role: Role) -> MembershipAccess {
        MembershipAccess {
            account_id: MEMBER.1,
            role,
            status: AccountStatus::Active,
            support_until: None,
        }
    }

    #[async_trait]
    impl AccountStore for Looks {
        async fn membership_access(&self, _: UserId, _: AccountId) -> Result<Option<MembershipAccess>, StoreError> {
            self.count.fetch_add(1, Ordering::Relaxed);
            self.may_answer.acquire().await.unwrap().forget();
            Ok(self.found.lock().unwrap().map(membership_access))
        }

        async fn record_user(&self, _: &Session) -> Result<(), StoreError> {
            unreachable!()
        }

        async fn memberships(&self, _: UserId) -> Result<Vec<Membership>, StoreError> {
            unreachable!()
        }

        async fn latest_membership_access(&self, _: UserId) -> Result<Option<MembershipAccess>, StoreError> {
            unreachable!()
        }

        async fn create(&self, _: &Account, _: UserId) -> Result<Account, StoreError> {
            unreachable!()
        }

        async fn switch(&self, _: UserId, _: AccountId, _: OffsetDateTime) -> Result<Option<Membership>, StoreError> {
            unreachable!()
        }
    }

    fn remembering(looks: &Arc<Looks>) -> CachedMemberships {
        CachedMemberships {
            store: looks.clone(),
            auth_cache: AuthCache::default(),
        }
    }

    async fn role(remembered: &CachedMemberships) -> Option<Role> {
        let membership_access = remembered.membership_access(MEMBER.0, MEMBER.1).await.unwrap();
        membership_access.map(|membership_access| membership_access.role)
    }

    /// As if somebody had looked so long ago, and found an owner.
    async fn looked(remembered: &CachedMemberships, ago: Duration) {
        let memberships = &remembered.auth_cache.memberships;
        memberships
            .insert_aged(MEMBER, membership_access(Role::Owner), ago)
            .await;
    }

    #[tokio::test]
    async fn all_who_wait_for_one_membership_wait_for_one_look() {
        let looks = Looks::new(Some(Role::Member), 0);
        let remembered = remembering(&looks);
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let remembered = remembered.clone();
                tokio::spawn(async move { role(&remembered).await })
            })
            .collect();
        tokio::task::yield_now().await;
        looks.may_answer.add_permits(1);
        for one in waiting {
            assert_eq!(one.await.unwrap(), Some(Role::Member));
        }
        assert_eq!(looks.count(), 1);
    }

    #[tokio::test]
    async fn a_membership_that_is_missing_is_looked_for_every_time() {
        let looks = Looks::new(None, 1);
        let remembered = remembering(&looks);
        assert_eq!(role(&remembered).await, None);
        *looks.found.lock().unwrap() = Some(Role::Viewer);
        looks.may_answer.add_permits(1);
        assert_eq!(role(&remembered).await, Some(Role::Viewer));
        assert_eq!(looks.count(), 2);
    }

    #[tokio::test]
    async fn nobody_waits_while_a_membership_is_looked_at_again() {
        let looks = Looks::new(None, 0);
        let remembered = remembering(&looks);
        looked(&remembered, FRESHNESS.refreshed.mul_f64(1.4)).await;
        for _ in 0..3 {
            assert_eq!(role(&remembered).await, Some(Role::Owner));
            tokio::task::yield_now().await;
        }
        assert_eq!(looks.count(), 1);
        looks.may_answer.add_permits(Semaphore::MAX_PERMITS / 2);
        while role(&remembered).await.is_some() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn nothing_old_and_nothing_that_was_changed_here_is_trusted() {
        let looks = Looks::new(Some(Role::Viewer), 2);
        let remembered = remembering(&looks);
        looked(&remembered, FRESHNESS.trusted).await;
        assert_eq!(role(&remembered).await, Some(Role::Viewer));
        looked(&remembered, Duration::ZERO).await;
        assert_eq!(role(&remembered).await, Some(Role::Owner));
        remembered.auth_cache.evict_account(MEMBER.1);
        assert_eq!(role(&remembered).await, Some(Role::Viewer));
        assert_eq!(looks.count(), 2);
    }
}
