//! What PostgreSQL chose where the ports leave the choice open.

use std::collections::BTreeSet;

use async_trait::async_trait;
use recado_domain::shared::{AccountId, StoreError, WebhookId};
use recado_domain::webhooks::in_memory::InMemoryWebhooks;
use recado_domain::webhooks::{Attempt, ClaimRequest, ClaimedDelivery, DeliveryKey, DeliveryQueue, HealthUpdate};
use time::Duration;

/// The queue of the in-memory store. With a choice it claims or purges exactly these deliveries, and checks that the
/// port allows it.
pub(super) struct ChoosingQueue<'a> {
    pub(super) store: &'a InMemoryWebhooks,
    pub(super) choice: Option<&'a BTreeSet<DeliveryKey>>,
}

/// A claim or purge handles as many deliveries as its limit allows.
fn check_count(chosen: usize, available: usize, limit: i64) {
    let expected = available.min(usize::try_from(limit).unwrap());
    assert_eq!(chosen, expected, "of {available} deliveries, with a limit of {limit}");
}

#[async_trait]
impl DeliveryQueue for ChoosingQueue<'_> {
    async fn claim(&self, request: &ClaimRequest, lease: Duration) -> Result<Vec<ClaimedDelivery>, StoreError> {
        let mut tables = self.store.tables();
        let Some(choice) = self.choice else {
            return Ok(tables.claim(request, lease));
        };
        let claimable = tables.claimable(request);
        let mut chosen = Vec::new();
        for queue in claimable.values() {
            let is_chosen = |key: &&DeliveryKey| choice.contains(key);
            let first: Vec<DeliveryKey> = queue.iter().take_while(is_chosen).copied().collect();
            assert_eq!(
                first.len(),
                queue.iter().filter(is_chosen).count(),
                "the first of {queue:?}"
            );
            chosen.extend(first);
        }
        assert_eq!(chosen.len(), choice.len(), "only {chosen:?} can be claimed");
        check_count(chosen.len(), claimable.values().map(Vec::len).sum(), request.limit);
        Ok(tables.lease(&chosen, lease))
    }

    async fn finish(
        &self,
        attempts: &[Attempt],
        health_updates: &[(AccountId, WebhookId, HealthUpdate)],
    ) -> Result<(), StoreError> {
        self.store.finish(attempts, health_updates).await
    }

    async fn release(&self, claims: &[(DeliveryKey, i64)]) -> Result<(), StoreError> {
        self.store.release(claims).await
    }

    async fn sweep(&self, older_than: Duration, limit: i64) -> Result<usize, StoreError> {
        let Some(choice) = self.choice else {
            return self.store.sweep(older_than, limit).await;
        };
        let mut tables = self.store.tables();
        let purgeable: BTreeSet<DeliveryKey> = tables.purgeable(older_than).into_iter().collect();
        assert!(choice.is_subset(&purgeable), "only {purgeable:?} may be purged");
        check_count(choice.len(), purgeable.len(), limit);
        tables.deliveries.retain(|key, _| !choice.contains(key));
        Ok(choice.len())
    }
}
