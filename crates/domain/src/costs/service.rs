//! The use cases of rate cards.

use std::sync::Arc;

use thiserror::Error;

use super::rate_card::rate_card;
use super::{CardDeletion, RateCard, RateCardStore, parse_rates, rates_csv};
use crate::administration::{Admin, PlatformEntity};
use crate::contacts::LineError;
use crate::shared::{AuditAction, Clock, CursorPage, CursorQuery, FieldErrors, Ids, RateCardId, StoreError};

/// Why an operation on rate cards failed.
#[derive(Debug, Error)]
pub enum RateCardError {
    #[error("the rate card does not exist")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The file has invalid lines.
    #[error("the file has invalid lines")]
    InvalidLines(Vec<LineError>),
    #[error("the rate card cannot be deleted: it was used to price messages")]
    InUse,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The use cases of rate cards.
pub struct RateCards {
    store: Arc<dyn RateCardStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl RateCards {
    pub fn new(store: Arc<dyn RateCardStore>, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Self {
        Self { store, clock, ids }
    }

    /// Stores the card of a CSV file. It changes no amount that is stored already.
    pub async fn create(&self, admin: &Admin, name: Option<&str>, file: &[u8]) -> Result<RateCard, RateCardError> {
        if file.is_empty() {
            return Err(FieldErrors::one("body", "must be a CSV file with a header line").into());
        }
        let rows = parse_rates(file).map_err(RateCardError::InvalidLines)?;
        let draft = rate_card(self.ids.next().into(), name, rows, self.clock.now())?;
        let entry = admin.entry_without_account(AuditAction::Create, PlatformEntity::RateCard, draft.card.id.0);
        let changes = serde_json::json!({ "name": draft.card.name, "rows": draft.card.rows });
        self.store.insert(&draft, entry.with_changes(changes)).await?;
        Ok(draft.card)
    }

    pub async fn list(&self, query: &CursorQuery) -> Result<CursorPage<RateCard>, RateCardError> {
        Ok(self.store.list(query).await?)
    }

    pub async fn get(&self, id: RateCardId) -> Result<RateCard, RateCardError> {
        self.store.find(id).await?.ok_or(RateCardError::NotFound)
    }

    /// The rows of a card as CSV.
    pub async fn csv(&self, id: RateCardId) -> Result<String, RateCardError> {
        let rows = self.store.rows(id).await?.ok_or(RateCardError::NotFound)?;
        Ok(rates_csv(&rows))
    }

    pub async fn delete(&self, admin: &Admin, id: RateCardId) -> Result<(), RateCardError> {
        let entry = admin.entry_without_account(AuditAction::Delete, PlatformEntity::RateCard, id.0);
        match self.store.delete(id, entry).await? {
            CardDeletion::Done => Ok(()),
            CardDeletion::Missing => Err(RateCardError::NotFound),
            CardDeletion::InUse => Err(RateCardError::InUse),
        }
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::MockRateCardStore;
    use super::*;
    use crate::shared::{AuditLogId, MockClock, MockIds, UserId};

    fn admin() -> Admin {
        Admin {
            user_id: UserId(Uuid::from_u128(8)),
            email: "root@example.com".into(),
            ip_address: None,
            request_id: None,
            entry_id: AuditLogId(Uuid::from_u128(9)),
            in_support: false,
        }
    }

    fn rate_cards(store: MockRateCardStore) -> RateCards {
        let mut clock = MockClock::new();
        clock.expect_now().return_const(datetime!(2026-03-01 12:00 UTC));
        let mut ids = MockIds::new();
        ids.expect_next().returning(|| Uuid::from_u128(1));
        RateCards::new(Arc::new(store), Arc::new(clock), Arc::new(ids))
    }

    const FILE: &[u8] =
        b"market,currency,category,rate,effective_from\nBR,USD,utility,1,2026-02-01\nBR,BRL,utility,5,2026-01-01\n";

    #[tokio::test]
    async fn create_stores_an_audited_card() {
        let mut store = MockRateCardStore::new();
        store
            .expect_insert()
            .withf(|draft, entry| {
                (entry.entity, entry.entity_id) == (PlatformEntity::RateCard, draft.card.id.0) && draft.rows.len() == 2
            })
            .returning(|_, _| Ok(()));
        let card = rate_cards(store).create(&admin(), Some(" Rates "), FILE).await.unwrap();
        assert_eq!((card.name.as_str(), card.rows), ("Rates", 2));
        assert_eq!(card.currencies, ["BRL", "USD"]);
        assert_eq!(card.effective_from, time::macros::date!(2026 - 01 - 01));
    }

    #[tokio::test]
    async fn create_needs_a_name_and_valid_lines() {
        let long = "x".repeat(101);
        for name in [None, Some(""), Some(long.as_str())] {
            let refused = rate_cards(MockRateCardStore::new()).create(&admin(), name, FILE).await;
            assert!(matches!(refused, Err(RateCardError::Invalid(_))), "{name:?}");
        }
        let refused = rate_cards(MockRateCardStore::new())
            .create(&admin(), Some("x"), b"x\n")
            .await;
        assert!(matches!(refused, Err(RateCardError::InvalidLines(lines)) if lines.len() == 1));
    }

    #[tokio::test]
    async fn delete_refuses_a_card_in_use() {
        for (outcome, is_refused) in [(CardDeletion::Done, false), (CardDeletion::InUse, true)] {
            let mut store = MockRateCardStore::new();
            store.expect_delete().returning(move |_, _| Ok(outcome));
            let deleted = rate_cards(store).delete(&admin(), RateCardId(Uuid::nil())).await;
            assert_eq!(matches!(deleted, Err(RateCardError::InUse)), is_refused);
        }
    }
}
