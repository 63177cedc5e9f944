//! In-process authentication cache, shared by all threads: verified tokens until they expire (at most
//! `SESSION_TTL`), memberships for `FRESHNESS.trusted`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use moka::sync;
use recado_domain::accounts::{Account, AccountStore, Membership, MembershipAccess, Session};
use recado_domain::shared::{AccountId, StoreError, UserId};
use time::OffsetDateTime;

use super::refreshing_cache::{Freshness, RefreshingCache};

/// The maximum number of entries of each cache.
pub(super) const MAX_ENTRIES: u64 = 50_000;

/// How long a cached membership or API key is trusted, and when it is refreshed. A removed member loses access within
/// `trusted`. The API documents that this takes at most a second.
pub(super) const FRESHNESS: Freshness = Freshness {
    trusted: Duration::from_millis(500),
    refreshed: Duration::from_millis(200),
};

/// How long requests bypass the cache after this process changed a membership or an account. Longer than a query of
/// them can take: after an eviction, a query that began before the change could insert the old row again.
pub(super) const BYPASS_AFTER_CHANGE: Duration = Duration::from_secs(30);

/// How long verified tokens, and users that `record_user` stored, are cached.
const SESSION_TTL: Duration = Duration::from_secs(600);

/// The key of a membership.
type Member = (UserId, AccountId);

/// The cache. Its clones share their entries.
#[derive(Clone)]
pub struct AuthCache {
    sessions: sync::Cache<String, Session>,
    /// The stored email and name of each user, so that `record_user` writes changes only.
    recorded_users: sync::Cache<UserId, (String, Option<String>)>,
    memberships: RefreshingCache<Member, MembershipAccess>,
    changed_memberships: sync::Cache<Member, ()>,
    changed_accounts: sync::Cache<AccountId, ()>,
}

impl AuthCache {
    /// Makes a change of a membership effective at once in this process: requests bypass the cache for
    /// `BYPASS_AFTER_CHANGE`. The caller MUST call this after the write.
    pub fn mark_membership_changed(&self, user: UserId, account: AccountId) {
        self.changed_memberships.insert((user, account), ());
    }

    /// Does the same for a change of an account, for all its members and API keys.
    pub fn mark_account_changed(&self, account: AccountId) {
        self.changed_accounts.insert(account, ());
    }

    /// The session of a token that was verified before.
    pub(super) fn session(&self, token: &str) -> Option<Session> {
        self.sessions.get(token)
    }

    pub(super) fn insert_session(&self, token: String, session: Session) {
        self.sessions.insert(token, session);
    }

    /// Whether this process changed the membership or its account less than `BYPASS_AFTER_CHANGE` ago.
    fn was_changed(&self, (user, account): Member) -> bool {
        self.changed_memberships.contains_key(&(user, account)) || self.account_was_changed(account)
    }

    /// Whether this process changed the account less than `BYPASS_AFTER_CHANGE` ago.
    pub(super) fn account_was_changed(&self, account: AccountId) -> bool {
        self.changed_accounts.contains_key(&account)
    }
}

impl Default for AuthCache {
    fn default() -> Self {
        Self {
            sessions: cache_with_ttl(SESSION_TTL),
            recorded_users: cache_with_ttl(SESSION_TTL),
            memberships: RefreshingCache::new(MAX_ENTRIES, FRESHNESS),
            changed_memberships: cache_with_ttl(BYPASS_AFTER_CHANGE),
            changed_accounts: cache_with_ttl(BYPASS_AFTER_CHANGE),
        }
    }
}

pub(super) fn cache_with_ttl<K, V>(ttl: Duration) -> sync::Cache<K, V>
where
    K: Eq + std::hash::Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    sync::Cache::builder()
        .max_capacity(MAX_ENTRIES)
        .time_to_live(ttl)
        .build()
}

/// An account store with cached memberships. Only existing memberships are cached, so that a new one is effective at
/// once.
#[derive(Clone)]
pub struct CachedMemberships {
    pub store: Arc<dyn AccountStore>,
    pub auth_cache: AuthCache,
}

impl CachedMemberships {
    /// Single-flight: concurrent misses of one membership share one query.
    async fn cached(&self, (user, account): Member) -> Result<Option<MembershipAccess>, StoreError> {
        let store = self.store.clone();
        let load = move || {
            let store = store.clone();
            async move { store.membership_access(user, account).await }
        };
        self.auth_cache.memberships.get((user, account), load).await
    }
}

#[async_trait]
impl AccountStore for CachedMemberships {
    async fn record_user(&self, session: &Session) -> Result<(), StoreError> {
        let details = (session.email.clone(), session.name.clone());
        if self.auth_cache.recorded_users.get(&session.user_id).as_ref() == Some(&details) {
            return Ok(());
        }
        self.store.record_user(session).await?;
        self.auth_cache.recorded_users.insert(session.user_id, details);
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

    async fn create(&self, account: &Account, owner: UserId, at_most: i64) -> Result<Option<Account>, StoreError> {
        self.store.create(account, owner, at_most).await
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

    /// A store with at most one membership. Every query waits for a permit.
    struct FakeStore {
        role: Mutex<Option<Role>>,
        permits: Semaphore,
        queries: AtomicUsize,
    }

    impl FakeStore {
        fn new(role: Option<Role>, permits: usize) -> Arc<Self> {
            Arc::new(Self {
                role: Mutex::new(role),
                permits: Semaphore::new(permits),
                queries: AtomicUsize::default(),
            })
        }

        fn queries(&self) -> usize {
            self.queries.load(Ordering::Relaxed)
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
    impl AccountStore for FakeStore {
        async fn membership_access(&self, _: UserId, _: AccountId) -> Result<Option<MembershipAccess>, StoreError> {
            self.queries.fetch_add(1, Ordering::Relaxed);
            self.permits.acquire().await.unwrap().forget();
            Ok(self.role.lock().unwrap().map(membership_access))
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

        async fn create(&self, _: &Account, _: UserId, _: i64) -> Result<Option<Account>, StoreError> {
            unreachable!()
        }

        async fn switch(&self, _: UserId, _: AccountId, _: OffsetDateTime) -> Result<Option<Membership>, StoreError> {
            unreachable!()
        }
    }

    fn cached(store: &Arc<FakeStore>) -> CachedMemberships {
        CachedMemberships {
            store: store.clone(),
            auth_cache: AuthCache::default(),
        }
    }

    async fn role(memberships: &CachedMemberships) -> Option<Role> {
        let membership_access = memberships.membership_access(MEMBER.0, MEMBER.1).await.unwrap();
        membership_access.map(|membership_access| membership_access.role)
    }

    /// Inserts the membership of an owner as if it had been loaded `age` ago.
    async fn insert_owner(memberships: &CachedMemberships, age: Duration) {
        let cache = &memberships.auth_cache.memberships;
        cache.insert_aged(MEMBER, membership_access(Role::Owner), age).await;
    }

    #[tokio::test]
    async fn concurrent_misses_of_a_membership_share_one_query() {
        let store = FakeStore::new(Some(Role::Member), 0);
        let memberships = cached(&store);
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let memberships = memberships.clone();
                tokio::spawn(async move { role(&memberships).await })
            })
            .collect();
        tokio::task::yield_now().await;
        // Every request waits by now. On a stalled machine a later one would also refresh the result.
        assert_eq!(store.queries(), 1);
        store.permits.add_permits(1);
        for request in waiting {
            assert_eq!(request.await.unwrap(), Some(Role::Member));
        }
    }

    #[tokio::test]
    async fn missing_membership_is_not_cached() {
        let store = FakeStore::new(None, 1);
        let memberships = cached(&store);
        assert_eq!(role(&memberships).await, None);
        *store.role.lock().unwrap() = Some(Role::Viewer);
        store.permits.add_permits(1);
        assert_eq!(role(&memberships).await, Some(Role::Viewer));
        assert_eq!(store.queries(), 2);
    }

    #[tokio::test]
    async fn membership_is_refreshed_in_the_background() {
        let store = FakeStore::new(None, 0);
        let memberships = cached(&store);
        insert_owner(&memberships, FRESHNESS.refreshed.mul_f64(1.4)).await;
        for _ in 0..3 {
            assert_eq!(role(&memberships).await, Some(Role::Owner));
            tokio::task::yield_now().await;
        }
        assert_eq!(store.queries(), 1);
        store.permits.add_permits(Semaphore::MAX_PERMITS / 2);
        while role(&memberships).await.is_some() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn old_or_locally_changed_membership_is_queried_again() {
        let store = FakeStore::new(Some(Role::Viewer), 2);
        let memberships = cached(&store);
        insert_owner(&memberships, FRESHNESS.trusted).await;
        assert_eq!(role(&memberships).await, Some(Role::Viewer));
        insert_owner(&memberships, Duration::ZERO).await;
        assert_eq!(role(&memberships).await, Some(Role::Owner));
        memberships.auth_cache.mark_account_changed(MEMBER.1);
        assert_eq!(role(&memberships).await, Some(Role::Viewer));
        assert_eq!(store.queries(), 2);
    }
}
