//! The use cases of ingestion. Routes submit whole batches, inbound webhooks submit single items.

use std::sync::Arc;

use super::{
    AdSpendInput, CartInput, EventInput, IngestionError, IngestionOutcome, IngestionResult, IngestionStore, OrderInput,
    check, validate_batch,
};
use crate::shared::{AccountId, Clock, FieldErrors, Ids};

pub struct Ingestion {
    store: Arc<dyn IngestionStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl Ingestion {
    pub fn new(store: Arc<dyn IngestionStore>, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Self {
        Self { store, clock, ids }
    }

    fn ids<T: From<uuid::Uuid>>(&self, count: usize) -> Vec<T> {
        (0..count).map(|_| self.ids.next().into()).collect()
    }

    /// Records all orders or none.
    pub async fn orders(&self, account: AccountId, inputs: Vec<OrderInput>) -> Result<IngestionResult, IngestionError> {
        let drafts = validate_batch("orders", inputs, check::order)?;
        let ids = self.ids(drafts.len());
        let outcome = self.store.orders(account, &ids, &drafts, self.clock.now()).await?;
        to_result("orders", outcome)
    }

    /// Records all carts or none.
    pub async fn carts(&self, account: AccountId, inputs: Vec<CartInput>) -> Result<IngestionResult, IngestionError> {
        let drafts = validate_batch("carts", inputs, check::cart)?;
        let ids = self.ids(drafts.len());
        Ok(self.store.carts(account, &ids, &drafts, self.clock.now()).await?)
    }

    /// Records all ad spend or none.
    pub async fn ad_spend(
        &self,
        account: AccountId,
        inputs: Vec<AdSpendInput>,
    ) -> Result<IngestionResult, IngestionError> {
        let entries = validate_batch("entries", inputs, check::ad_spend)?;
        Ok(self.store.ad_spend(account, &entries, self.clock.now()).await?)
    }

    /// Records all metric events or none.
    pub async fn events(&self, account: AccountId, inputs: Vec<EventInput>) -> Result<IngestionResult, IngestionError> {
        let now = self.clock.now();
        let drafts = validate_batch("events", inputs, |input, item| {
            let id = input.id.unwrap_or_else(|| self.ids.next().into());
            check::event(input, item, id, now)
        })?;
        let outcome = self.store.events(account, &drafts, now).await?;
        to_result("events", outcome)
    }
}

fn to_result(list: &str, outcome: IngestionOutcome) -> Result<IngestionResult, IngestionError> {
    let unknown_references = match outcome {
        IngestionOutcome::Done(recorded) => return Ok(recorded),
        IngestionOutcome::UnknownReferences(unknown_references) => unknown_references,
    };
    let mut errors = FieldErrors::default();
    for reference in unknown_references {
        errors.add(
            format!("{list}[{}].{}", reference.index, reference.field),
            "does not exist",
        );
    }
    Err(errors.into())
}
