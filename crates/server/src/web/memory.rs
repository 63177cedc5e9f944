//! What all workers of a process remember of those who ask: a verified token until it ends, a membership for a moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use moka::{future, sync};
use recado_domain::accounts::{Account, AccountStore, Membership, Session, Standing};
use recado_domain::shared::{AccountId, StoreError, UserId};
use recado_domain::webhooks::Jitter as _;
use time::OffsetDateTime;

use crate::logging::chain;
use crate::system::SystemJitter;

/// How many tokens, users and memberships are remembered at most.
const REMEMBERED: u64 = 50_000;

/// How long a membership is trusted: a removed member is out within this time, well below the second that is promised.
const STANDING_FOR: Duration = Duration::from_millis(500);

/// After how long it is looked at again, while those who ask go on being answered from memory; a fifth more or less, so
/// that the memberships that were asked for at one moment are not looked at together ever after.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(200);
const SPREAD: f64 = 0.2;

/// How long nothing is remembered of a membership that was changed here: longer than any look that began before the
/// change can take to answer.
const CHANGED_FOR: Duration = Duration::from_secs(30);

/// How long it is remembered that a user was recorded.
const RECORDED_FOR: Duration = Duration::from_secs(600);

type Member = (UserId, AccountId);

/// What is remembered.
#[derive(Clone)]
pub struct Memory {
    sessions: sync::Cache<String, Session>,
    recorded: sync::Cache<UserId, (String, Option<String>)>,
    standings: future::Cache<Member, Known>,
    changed: sync::Cache<Member, ()>,
    changed_accounts: sync::Cache<AccountId, ()>,
}

/// A standing, as it was when somebody looked.
#[derive(Clone)]
struct Known {
    standing: Standing,
    looked_at: Instant,
    look_again_after: Duration,
    /// Whether somebody is looking again.
    looking: Arc<AtomicBool>,
}

impl Known {
    /// As a look found it that began then.
    fn since(looked_at: Instant, standing: Standing) -> Self {
        Self {
            standing,
            looked_at,
            look_again_after: LOOK_AGAIN_AFTER.mul_f64(1.0 + SPREAD * SystemJitter.spread()),
            looking: Arc::default(),
        }
    }

    fn is_trusted(&self) -> bool {
        self.looked_at.elapsed() < STANDING_FOR
    }

    /// Whether the caller is the one to look again.
    fn takes_a_look(&self) -> bool {
        self.looked_at.elapsed() >= self.look_again_after && !self.looking.swap(true, Ordering::Relaxed)
    }
}

impl Memory {
    /// What was changed in this process counts in it at once.
    pub fn forget_standing(&self, user: UserId, account: AccountId) {
        self.changed.insert((user, account), ());
    }

    /// The same for everybody in an account.
    pub fn forget_account(&self, account: AccountId) {
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
        self.changed.contains_key(&(user, account)) || self.changed_accounts.contains_key(&account)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            sessions: remembered_for(RECORDED_FOR),
            recorded: remembered_for(RECORDED_FOR),
            standings: future::Cache::builder()
                .max_capacity(REMEMBERED)
                .time_to_live(STANDING_FOR)
                .build(),
            changed: remembered_for(CHANGED_FOR),
            changed_accounts: remembered_for(CHANGED_FOR),
        }
    }
}

fn remembered_for<K, V>(time: Duration) -> sync::Cache<K, V>
where
    K: Eq + std::hash::Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    sync::Cache::builder()
        .max_capacity(REMEMBERED)
        .time_to_live(time)
        .build()
}

/// A look that brought nothing to remember.
struct Nothing;

/// An account store that trusts a standing for a moment. Only memberships that exist are remembered, so that a new one
/// counts at once.
#[derive(Clone)]
pub struct RememberedStandings {
    /// Where they come from.
    pub store: Arc<dyn AccountStore>,
    /// What is remembered.
    pub memory: Memory,
}

impl RememberedStandings {
    async fn look(&self, (user, account): Member) -> Result<Option<Known>, StoreError> {
        let began = Instant::now();
        let standing = self.store.standing(user, account).await?;
        Ok(standing.map(|standing| Known::since(began, standing)))
    }

    /// What is remembered, or what one look for all who wait for it brings.
    async fn known(&self, member: Member) -> Result<Option<Standing>, StoreError> {
        let in_vain = OnceLock::new();
        let look = async {
            match self.look(member).await {
                Ok(Some(known)) => Ok(known),
                other => {
                    in_vain.set(other).ok();
                    Err(Nothing)
                }
            }
        };
        match self.memory.standings.try_get_with(member, look).await {
            Ok(known) if known.is_trusted() => {
                if known.takes_a_look() {
                    tokio::spawn(self.clone().look_again(member));
                }
                Ok(Some(known.standing))
            }
            Ok(_) => self.store.standing(member.0, member.1).await,
            Err(_) => match in_vain.into_inner() {
                Some(found) => found.map(|_| None),
                // The look was somebody else's: it may not have seen what made this caller come.
                None => self.store.standing(member.0, member.1).await,
            },
        }
    }

    /// So that nobody has to wait for it. Where that fails, what is known ends, and whoever asks then is told why.
    async fn look_again(self, member: Member) {
        match self.look(member).await {
            Ok(Some(known)) => self.memory.standings.insert(member, known).await,
            Ok(None) => self.memory.standings.invalidate(&member).await,
            Err(error) => tracing::debug!(cause = %chain(&error), "a membership cannot be read again"),
        }
    }
}

#[async_trait]
impl AccountStore for RememberedStandings {
    async fn record_user(&self, session: &Session) -> Result<(), StoreError> {
        let seen = (session.email.clone(), session.name.clone());
        if self.memory.recorded.get(&session.user_id).as_ref() == Some(&seen) {
            return Ok(());
        }
        self.store.record_user(session).await?;
        self.memory.recorded.insert(session.user_id, seen);
        Ok(())
    }

    async fn memberships(&self, user: UserId) -> Result<Vec<Membership>, StoreError> {
        self.store.memberships(user).await
    }

    async fn standing(&self, user: UserId, account: AccountId) -> Result<Option<Standing>, StoreError> {
        if self.memory.was_changed((user, account)) {
            return self.store.standing(user, account).await;
        }
        self.known((user, account)).await
    }

    async fn latest_standing(&self, user: UserId) -> Result<Option<Standing>, StoreError> {
        self.store.latest_standing(user).await
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
    use std::sync::atomic::AtomicUsize;

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

    fn standing(role: Role) -> Standing {
        Standing {
            account_id: MEMBER.1,
            role,
            status: AccountStatus::Active,
            support_until: None,
        }
    }

    #[async_trait]
    impl AccountStore for Looks {
        async fn standing(&self, _: UserId, _: AccountId) -> Result<Option<Standing>, StoreError> {
            self.count.fetch_add(1, Ordering::Relaxed);
            self.may_answer.acquire().await.unwrap().forget();
            Ok(self.found.lock().unwrap().map(standing))
        }

        async fn record_user(&self, _: &Session) -> Result<(), StoreError> {
            unreachable!()
        }

        async fn memberships(&self, _: UserId) -> Result<Vec<Membership>, StoreError> {
            unreachable!()
        }

        async fn latest_standing(&self, _: UserId) -> Result<Option<Standing>, StoreError> {
            unreachable!()
        }

        async fn create(&self, _: &Account, _: UserId) -> Result<Account, StoreError> {
            unreachable!()
        }

        async fn switch(&self, _: UserId, _: AccountId, _: OffsetDateTime) -> Result<Option<Membership>, StoreError> {
            unreachable!()
        }
    }

    fn remembering(looks: &Arc<Looks>) -> RememberedStandings {
        RememberedStandings {
            store: looks.clone(),
            memory: Memory::default(),
        }
    }

    async fn role(remembered: &RememberedStandings) -> Option<Role> {
        let standing = remembered.standing(MEMBER.0, MEMBER.1).await.unwrap();
        standing.map(|standing| standing.role)
    }

    /// As if somebody had looked so long ago, and found an owner.
    async fn looked(remembered: &RememberedStandings, ago: Duration) {
        let known = Known::since(Instant::now().checked_sub(ago).unwrap(), standing(Role::Owner));
        remembered.memory.standings.insert(MEMBER, known).await;
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
        looked(&remembered, LOOK_AGAIN_AFTER.mul_f64(1.0 + 2.0 * SPREAD)).await;
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
        looked(&remembered, STANDING_FOR).await;
        assert_eq!(role(&remembered).await, Some(Role::Viewer));
        looked(&remembered, Duration::ZERO).await;
        assert_eq!(role(&remembered).await, Some(Role::Owner));
        remembered.memory.forget_account(MEMBER.1);
        assert_eq!(role(&remembered).await, Some(Role::Viewer));
        assert_eq!(looks.count(), 2);
    }
}
