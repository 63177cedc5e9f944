//! Concurrency limits: how many streams, imports and uploads one account or user may have open at a time in this
//! process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use recado_domain::shared::{AccountId, ApiKeyId, Tenant, UserId};
use tokio::sync::Notify;

use crate::error::{ApiError, ErrorCode, ReachedLimit};

/// A write reveals a stream whose client has disconnected. At the limit, the holder's streams are probed with writes up
/// to `PROBES` times before a new stream is refused, so that reloading a page does not count as another stream.
const PROBES: usize = 10;
const PROBE_PAUSE: Duration = Duration::from_millis(50);

/// A limited resource and its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holder {
    StreamsOfAccount(AccountId),
    StreamsOfUser(UserId),
    StreamsOfKey(ApiKeyId),
    Imports(AccountId),
    Uploads(AccountId),
}

impl Holder {
    fn limit(self) -> usize {
        match self {
            Self::StreamsOfAccount(_) => 20,
            Self::StreamsOfUser(_) | Self::StreamsOfKey(_) | Self::Uploads(_) => 5,
            Self::Imports(_) => 3,
        }
    }

    fn refusal(self) -> ApiError {
        let limit = self.limit();
        let held = match self {
            Self::StreamsOfAccount(_) => "This account has {} streams open",
            Self::StreamsOfUser(_) => "You have {} streams open",
            Self::StreamsOfKey(_) => "This API key has {} streams open",
            Self::Imports(_) => "This account has {} imports under way",
            Self::Uploads(_) => "This account has {} uploads under way",
        };
        let message = format!("{}, which is the limit", held.replace("{}", &limit.to_string()));
        ApiError::limit_reached(ErrorCode::TooManyAtOnce, ReachedLimit::concurrency(limit, message))
    }

    /// Streams of a person, or of an API key: a key does not count against its creator.
    fn streams_of_caller(tenant: &Tenant) -> Self {
        match &tenant.api_key {
            Some(key) => Self::StreamsOfKey(key.id),
            None => Self::StreamsOfUser(tenant.actor.user_id),
        }
    }
}

/// The permits of all holders.
#[derive(Clone, Default)]
pub struct Shares(Arc<Mutex<HashMap<Holder, Held>>>);

#[derive(Default)]
struct Held {
    count: usize,
    probe: Arc<Notify>,
}

/// A permit. Dropping it releases it.
pub struct Share {
    shares: Shares,
    holder: Holder,
    probe: Arc<Notify>,
}

/// The two permits of a stream.
pub struct StreamShare {
    account_share: Share,
    caller_share: Share,
}

impl StreamShare {
    /// Waits until the stream has to write, to reveal whether its client is still connected.
    pub async fn probed(&self) {
        tokio::select! {
            () = self.account_share.probe.notified() => {}
            () = self.caller_share.probe.notified() => {}
        }
    }
}

impl Shares {
    /// Acquires the permits of a notification stream.
    pub async fn stream(&self, tenant: &Tenant) -> Result<StreamShare, ApiError> {
        let caller_share = self.acquire_with_probes(Holder::streams_of_caller(tenant)).await?;
        let account_share = self
            .acquire_with_probes(Holder::StreamsOfAccount(tenant.account_id))
            .await?;
        Ok(StreamShare {
            account_share,
            caller_share,
        })
    }

    async fn acquire_with_probes(&self, holder: Holder) -> Result<Share, ApiError> {
        for _ in 0..PROBES {
            if let Ok(share) = self.acquire(holder) {
                return Ok(share);
            }
            let probe = self.held().get(&holder).map(|held| held.probe.clone());
            probe.iter().for_each(|probe| probe.notify_waiters());
            tokio::time::sleep(PROBE_PAUSE).await;
        }
        self.acquire(holder)
    }

    /// Acquires the permit of a contact import.
    pub fn import(&self, tenant: &Tenant) -> Result<Share, ApiError> {
        self.acquire(Holder::Imports(tenant.account_id))
    }

    /// Acquires the permit of a file upload.
    pub fn upload(&self, tenant: &Tenant) -> Result<Share, ApiError> {
        self.acquire(Holder::Uploads(tenant.account_id))
    }

    fn acquire(&self, holder: Holder) -> Result<Share, ApiError> {
        let mut held = self.held();
        let entry = held.entry(holder).or_default();
        if entry.count >= holder.limit() {
            return Err(holder.refusal());
        }
        entry.count += 1;
        Ok(Share {
            shares: self.clone(),
            holder,
            probe: entry.probe.clone(),
        })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Holder, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.shares.held();
        let Some(entry) = held.get_mut(&self.holder) else {
            return;
        };
        entry.count = entry.count.saturating_sub(1);
        if entry.count == 0 {
            held.remove(&self.holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use recado_domain::shared::Role;
    use uuid::Uuid;

    use super::*;

    fn tenant(account: u128, user: u128) -> Tenant {
        let (account, user) = (Uuid::from_u128(account), Uuid::from_u128(user));
        Tenant::for_tests(AccountId(account), UserId(user), Role::Member)
    }

    #[test]
    fn share_is_released_and_leaves_no_entry() {
        let shares = Shares::default();
        let held: Vec<_> = (0..3).map(|_| shares.import(&tenant(1, 1)).ok().unwrap()).collect();
        assert!(matches!(shares.import(&tenant(1, 2)), Err(error) if error.code() == ErrorCode::TooManyAtOnce));
        assert!(shares.import(&tenant(2, 1)).is_ok() && shares.upload(&tenant(1, 1)).is_ok());
        drop(held);
        assert!(shares.import(&tenant(1, 2)).is_ok());
        assert!(shares.held().is_empty());
    }

    async fn streams(shares: &Shares, users: impl IntoIterator<Item = u128>) -> Vec<StreamShare> {
        let mut streams = Vec::new();
        for user in users {
            streams.push(shares.stream(&tenant(1, user)).await.ok().unwrap());
        }
        streams
    }

    #[tokio::test(start_paused = true)]
    async fn refused_stream_holds_no_permit() {
        let shares = Shares::default();
        let of_first_user = streams(&shares, [1; 5]).await;
        for _ in 0..20 {
            assert!(shares.stream(&tenant(1, 1)).await.is_err());
        }
        let others = streams(&shares, 2..17).await;
        assert!(shares.stream(&tenant(1, 17)).await.is_err() && shares.stream(&tenant(2, 17)).await.is_ok());
        drop((of_first_user, others));
        assert!(shares.held().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn stream_of_a_disconnected_client_is_replaced() {
        let shares = Shares::default();
        let mut open = streams(&shares, [1; 5]).await;
        let gone = open.pop().unwrap();
        tokio::spawn(async move { gone.probed().await });
        assert!(shares.stream(&tenant(1, 1)).await.is_ok());
    }
}
