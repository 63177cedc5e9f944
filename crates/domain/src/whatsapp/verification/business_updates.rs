//! WhatsApp's updates of numbers and business accounts. They change what is known of a number, and cause a check.

use std::sync::Arc;

use time::Duration;

use super::changes::{AccountEvent, change_events};
use super::{NumberFacts, NumberHolder, NumberHolderStore, VerificationStore, VerificationUpdate};
use crate::shared::{Clock, StoreError, UpdateOutcome, retry_on_conflict};
use crate::whatsapp::{Profile, ProfileStore};

/// An update causes a check at once, but not within this time after the last one: many may come together.
const BETWEEN_CHECKS: Duration = Duration::seconds(10);

/// The numbers that an update concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AffectedNumbers {
    /// Every number of the business account.
    All,
    /// The number with this WhatsApp id.
    WithId(String),
    /// The number with these digits. WhatsApp names some numbers without their id.
    WithDigits(String),
}

/// An update of a business account or of one of its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusinessUpdate {
    /// WhatsApp's id of the business account.
    pub waba_id: String,
    pub numbers: AffectedNumbers,
    /// The values that are now others.
    pub facts: NumberFacts,
    /// The event of the business account, in lower case.
    pub account_event: Option<String>,
    pub reason: Option<String>,
}

impl BusinessUpdate {
    fn concerns(&self, profile: &Profile) -> bool {
        match &self.numbers {
            AffectedNumbers::All => true,
            AffectedNumbers::WithId(id) => *id == profile.phone_number_id,
            AffectedNumbers::WithDigits(digits) => {
                let shown = profile.number.display_phone_number.as_deref();
                shown.is_some_and(|shown| digits_of(shown) == *digits)
            }
        }
    }

    fn account_event(&self) -> Option<AccountEvent<'_>> {
        let reason = self.reason.as_deref();
        (self.account_event.is_some() || reason.is_some()).then(|| AccountEvent {
            event: self.account_event.as_deref().unwrap_or_default(),
            reason,
        })
    }
}

/// Applies updates to the verified profiles of all accounts.
pub struct BusinessUpdates {
    profiles: Arc<dyn ProfileStore>,
    holders: Arc<dyn NumberHolderStore>,
    store: Arc<dyn VerificationStore>,
    clock: Arc<dyn Clock>,
}

impl BusinessUpdates {
    pub fn new(
        profiles: Arc<dyn ProfileStore>,
        holders: Arc<dyn NumberHolderStore>,
        store: Arc<dyn VerificationStore>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            profiles,
            holders,
            store,
            clock,
        }
    }

    /// Applies an update to every verified profile that it concerns. Applying it again changes no value again.
    pub async fn apply(&self, update: &BusinessUpdate) -> Result<(), StoreError> {
        for holder in self.holders.verified_of_business(&update.waba_id).await? {
            self.apply_to(holder, update).await?;
        }
        Ok(())
    }

    async fn apply_to(&self, holder: NumberHolder, update: &BusinessUpdate) -> Result<(), StoreError> {
        let (account, id) = (holder.account_id, holder.profile_id);
        retry_on_conflict(async || {
            let stored = self.profiles.find(account, id).await?;
            let stored = stored.filter(|stored| stored.profile.verification.is_verified());
            let Some(stored) = stored.filter(|stored| update.concerns(&stored.profile)) else {
                return Ok(Some(()));
            };
            let profile = &stored.profile;
            let now = self.clock.now();
            let mut record = stored.verification_record();
            let earliest = profile.verification.checked_at.map(|at| at + BETWEEN_CHECKS);
            let due = earliest.map_or(now, |earliest| earliest.max(now));
            let next = record.verification.next_check_at.map_or(due, |next| next.min(due));
            record.verification.next_check_at = Some(next);
            let number = profile.number.clone().updated(update.facts.clone());
            let events = change_events(profile, &record.verification, &number, update.account_event());
            let verification = VerificationUpdate {
                credentials_version: stored.credentials_version,
                verification_version: stored.verification_version,
                record,
                number,
            };
            let outcome = self.store.record(account, id, &verification, &events).await?;
            Ok((outcome != UpdateOutcome::Stale).then_some(()))
        })
        .await
    }
}

fn digits_of(number: &str) -> String {
    number.chars().filter(char::is_ascii_digit).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::OffsetDateTime;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::{MockNumberHolderStore, MockVerificationStore, VerificationState};
    use super::*;
    use crate::shared::{AccountId, Event, MockClock, ProfileId};
    use crate::whatsapp::{MockProfileStore, StoredProfile};

    const NOW: OffsetDateTime = datetime!(2026-11-26 12:00 UTC);

    fn limit_of(numbers: AffectedNumbers) -> BusinessUpdate {
        BusinessUpdate {
            waba_id: "1022".into(),
            numbers,
            facts: NumberFacts {
                messaging_limit: Some(2000),
                ..NumberFacts::default()
            },
            account_event: None,
            reason: None,
        }
    }

    fn stored() -> StoredProfile {
        let mut stored = StoredProfile::for_tests(ProfileId(Uuid::from_u128(1)), NOW - Duration::HOUR);
        stored.profile.number = NumberFacts {
            display_phone_number: Some("+1 631-555-5555".into()),
            messaging_limit: Some(250),
            ..NumberFacts::default()
        };
        stored
    }

    fn updates_service(store: MockVerificationStore) -> BusinessUpdates {
        let mut profiles = MockProfileStore::new();
        profiles.expect_find().returning(|_, _| Ok(Some(stored())));
        let mut holders = MockNumberHolderStore::new();
        holders.expect_verified_of_business().returning(|_| {
            Ok(vec![NumberHolder {
                account_id: AccountId(Uuid::from_u128(9)),
                profile_id: ProfileId(Uuid::from_u128(1)),
                state: VerificationState::Verified,
            }])
        });
        let mut clock = MockClock::new();
        clock.expect_now().return_const(NOW);
        BusinessUpdates::new(Arc::new(profiles), Arc::new(holders), Arc::new(store), Arc::new(clock))
    }

    #[tokio::test]
    async fn update_changes_the_number_and_makes_its_check_due() {
        let mut store = MockVerificationStore::new();
        store
            .expect_record()
            .withf(|_, _, update, events| {
                let [Event::Webhook(batch)] = events else {
                    panic!("{events:?}")
                };
                assert_eq!(batch.items.len(), 1);
                let item = &batch.items[0];
                assert_eq!(
                    (&item["change"], &item["previous"], &item["current"]),
                    (&json!("messaging_limit"), &json!(250), &json!(2000))
                );
                update.record.verification.next_check_at == Some(NOW) && update.number.messaging_limit == Some(2000)
            })
            .times(1)
            .returning(|_, _, _, _| Ok(UpdateOutcome::Done(())));
        let update = limit_of(AffectedNumbers::All);
        updates_service(store).apply(&update).await.unwrap();
    }

    #[tokio::test]
    async fn update_of_another_number_changes_nothing() {
        let update = limit_of(AffectedNumbers::WithDigits("16315550000".into()));
        updates_service(MockVerificationStore::new())
            .apply(&update)
            .await
            .unwrap();
    }
}
