//! WhatsApp's news about numbers and business accounts: they change what is known of a number, and cause a check.

use std::sync::Arc;

use serde_json::Value;
use time::Duration;

use super::changes::{AccountEvent, change_events};
use super::{NumberFacts, NumberHolder, VerificationStore, VerificationUpdate, messaging_limit};
use crate::shared::{Clock, StoreError, UpdateOutcome, WRITE_ATTEMPTS};
use crate::whatsapp::{Profile, ProfileStore};

/// News cause a check at once, but not within this time after the last one: news may come in great numbers.
const BETWEEN_CHECKS: Duration = Duration::seconds(10);

/// The longest text of news, in characters.
const TEXT_CHARS: usize = 300;

/// The numbers that news concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AffectedNumbers {
    /// Every number of the business account.
    All,
    /// The number with this WhatsApp id.
    WithId(String),
    /// The number with these digits. WhatsApp names some numbers without their id.
    WithDigits(String),
}

/// News of a business account or of one of its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountNews {
    /// WhatsApp's id of the business account.
    pub waba_id: String,
    pub numbers: AffectedNumbers,
    /// The values that are now others.
    pub facts: NumberFacts,
    /// The event of the business account, in lower case.
    pub account_event: Option<String>,
    pub reason: Option<String>,
}

impl AccountNews {
    /// The callback fields with news.
    pub const FIELDS: [&'static str; 5] = [
        "account_update",
        "account_alerts",
        "phone_number_quality_update",
        "phone_number_name_update",
        "business_capability_update",
    ];

    /// The news in a callback's change. None if the field has none, or `value` is no object.
    pub fn read(waba_id: &str, field: &str, value: &Value) -> Option<Self> {
        value.as_object()?;
        let news = Self {
            waba_id: waba_id.to_owned(),
            numbers: AffectedNumbers::All,
            facts: NumberFacts::default(),
            account_event: None,
            reason: None,
        };
        let limit = |name: &str| value.get(name).and_then(messaging_limit);
        let daily_limit = || limit("max_daily_conversations_per_business");
        Some(match field {
            "account_update" => Self {
                numbers: by_digits(value, "phone_number").unwrap_or(AffectedNumbers::All),
                account_event: word(value, "event"),
                reason: restriction(value),
                ..news
            },
            "account_alerts" => Self {
                numbers: alerted(value),
                account_event: word(value, "alert_type"),
                reason: text(value, "alert_description"),
                ..news
            },
            "phone_number_quality_update" => Self {
                numbers: by_digits(value, "display_phone_number")?,
                facts: NumberFacts {
                    throughput: word(value, "event")
                        .filter(|event| event == "throughput_upgrade")
                        .map(|_| "high".to_owned()),
                    messaging_limit: limit("current_limit").or_else(daily_limit),
                    ..NumberFacts::default()
                },
                ..news
            },
            "phone_number_name_update" => Self {
                numbers: by_digits(value, "display_phone_number")?,
                facts: name_decision(value),
                reason: text(value, "rejection_reason").filter(|reason| reason != "NONE"),
                ..news
            },
            "business_capability_update" => Self {
                facts: NumberFacts {
                    messaging_limit: daily_limit(),
                    ..NumberFacts::default()
                },
                ..news
            },
            _ => return None,
        })
    }

    fn concern(&self, profile: &Profile) -> bool {
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

/// Applies news to the verified profiles of all accounts.
pub struct NumberNews {
    profiles: Arc<dyn ProfileStore>,
    store: Arc<dyn VerificationStore>,
    clock: Arc<dyn Clock>,
}

impl NumberNews {
    pub fn new(profiles: Arc<dyn ProfileStore>, store: Arc<dyn VerificationStore>, clock: Arc<dyn Clock>) -> Self {
        Self { profiles, store, clock }
    }

    /// Applies news to every verified profile that they concern. Applying them again changes no value again.
    pub async fn apply(&self, news: &AccountNews) -> Result<(), StoreError> {
        for holder in self.store.verified_of_business(&news.waba_id).await? {
            self.apply_to(holder, news).await?;
        }
        Ok(())
    }

    async fn apply_to(&self, holder: NumberHolder, news: &AccountNews) -> Result<(), StoreError> {
        let (account, id) = (holder.account_id, holder.profile_id);
        for _ in 0..WRITE_ATTEMPTS {
            let stored = self.profiles.find(account, id).await?;
            let stored = stored.filter(|stored| stored.profile.verification.is_verified());
            let Some(stored) = stored.filter(|stored| news.concern(&stored.profile)) else {
                return Ok(());
            };
            let profile = &stored.profile;
            let now = self.clock.now();
            let mut record = stored.verification_record();
            let earliest = profile.verification.checked_at.map(|at| at + BETWEEN_CHECKS);
            let due = earliest.map_or(now, |earliest| earliest.max(now));
            let next = record.verification.next_check_at.map_or(due, |next| next.min(due));
            record.verification.next_check_at = Some(next);
            let number = profile.number.clone().updated(news.facts.clone());
            let events = change_events(profile, &record.verification, &number, news.account_event());
            let update = VerificationUpdate {
                credentials_version: stored.credentials_version,
                verification_version: stored.verification_version,
                record,
                number,
            };
            match self.store.record(account, id, &update, &events).await? {
                UpdateOutcome::Done(()) | UpdateOutcome::Missing => return Ok(()),
                UpdateOutcome::Stale => {}
            }
        }
        Err(StoreError::Unavailable("the profile is being changed by others".into()))
    }
}

/// Without NUL and other control characters, which PostgreSQL cannot store or which do not belong in a line.
fn text(value: &Value, field: &str) -> Option<String> {
    let text = value.get(field)?.as_str()?;
    let text: String = text
        .chars()
        .filter(|char| !char.is_control())
        .take(TEXT_CHARS)
        .collect();
    Some(text).filter(|text| !text.is_empty())
}

fn word(value: &Value, field: &str) -> Option<String> {
    text(value, field).map(|word| word.to_lowercase())
}

fn digits_of(number: &str) -> String {
    number.chars().filter(char::is_ascii_digit).collect()
}

fn by_digits(value: &Value, field: &str) -> Option<AffectedNumbers> {
    let digits = match value.get(field)? {
        Value::String(number) => digits_of(number),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    (!digits.is_empty()).then_some(AffectedNumbers::WithDigits(digits))
}

fn alerted(value: &Value) -> AffectedNumbers {
    let is_number = word(value, "entity_type").is_some_and(|kind| kind.starts_with("phone_number"));
    match text(value, "entity_id").filter(|_| is_number) {
        Some(id) => AffectedNumbers::WithId(id),
        None => AffectedNumbers::All,
    }
}

/// The first restriction or violation of an account update.
fn restriction(value: &Value) -> Option<String> {
    let restrictions = value.get("restriction_info");
    let restriction = restrictions.and_then(|info| text(info.get(0).unwrap_or(info), "restriction_type"));
    restriction.or_else(|| text(value.get("violation_info")?, "violation_type"))
}

fn name_decision(value: &Value) -> NumberFacts {
    let decision = word(value, "decision");
    let is_approved = decision.as_deref() == Some("approved");
    NumberFacts {
        verified_name: text(value, "requested_verified_name").filter(|_| is_approved),
        name_status: decision,
        ..NumberFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::OffsetDateTime;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::{MockVerificationStore, VerificationState};
    use super::*;
    use crate::shared::{AccountId, Event, MockClock, ProfileId};
    use crate::whatsapp::{MockProfileStore, StoredProfile};

    const NOW: OffsetDateTime = datetime!(2026-11-26 12:00 UTC);

    fn read(field: &str, value: &Value) -> AccountNews {
        AccountNews::read("1022", field, value).unwrap()
    }

    #[test]
    fn every_field_is_read() {
        let update = read(
            "account_update",
            &json!({ "event": "ACCOUNT_RESTRICTION",
            "restriction_info": [{ "restriction_type": "RESTRICTED_BIZ_INITIATED_MESSAGING" }] }),
        );
        assert_eq!(
            (
                update.account_event.as_deref(),
                update.reason.as_deref(),
                &update.numbers
            ),
            (
                Some("account_restriction"),
                Some("RESTRICTED_BIZ_INITIATED_MESSAGING"),
                &AffectedNumbers::All
            )
        );
        let alert = read(
            "account_alerts",
            &json!({ "entity_type": "PHONE_NUMBER", "entity_id": "1065", "alert_type": "T", "alert_description": "d" }),
        );
        assert_eq!(alert.numbers, AffectedNumbers::WithId("1065".into()));
        let quality = read(
            "phone_number_quality_update",
            &json!({ "display_phone_number": "1 631-555-5555", "event": "THROUGHPUT_UPGRADE",
                     "current_limit": "TIER_10K" }),
        );
        assert_eq!(quality.numbers, AffectedNumbers::WithDigits("16315555555".into()));
        assert_eq!(
            (quality.facts.throughput.as_deref(), quality.facts.messaging_limit),
            (Some("high"), Some(10_000))
        );
        let name = |decision: &str| {
            let value = json!({ "display_phone_number": "1", "decision": decision,
                                "requested_verified_name": "Nova", "rejection_reason": "NONE" });
            read("phone_number_name_update", &value)
        };
        assert_eq!(name("APPROVED").facts.verified_name.as_deref(), Some("Nova"));
        let rejected = name("REJECTED");
        assert_eq!(
            (
                rejected.facts.verified_name,
                rejected.facts.name_status.as_deref(),
                rejected.reason
            ),
            (None, Some("rejected"), None)
        );
        for limit in [json!(2000), json!("TIER_2K")] {
            let value = json!({ "max_daily_conversations_per_business": limit });
            assert_eq!(
                read("business_capability_update", &value).facts.messaging_limit,
                Some(2000)
            );
        }
        assert_eq!(AccountNews::read("1022", "account_update", &json!("x")), None);
        assert_eq!(AccountNews::read("1022", "flows", &json!({})), None);
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

    fn news_service(store: MockVerificationStore) -> NumberNews {
        let mut profiles = MockProfileStore::new();
        profiles.expect_find().returning(|_, _| Ok(Some(stored())));
        let mut clock = MockClock::new();
        clock.expect_now().return_const(NOW);
        NumberNews::new(Arc::new(profiles), Arc::new(store), Arc::new(clock))
    }

    fn holding() -> MockVerificationStore {
        let mut store = MockVerificationStore::new();
        store.expect_verified_of_business().returning(|_| {
            Ok(vec![NumberHolder {
                account_id: AccountId(Uuid::from_u128(9)),
                profile_id: ProfileId(Uuid::from_u128(1)),
                state: VerificationState::Verified,
            }])
        });
        store
    }

    #[tokio::test]
    async fn news_change_the_number_and_make_its_check_due() {
        let mut store = holding();
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
        let value = json!({ "max_daily_conversations_per_business": 2000 });
        let news = read("business_capability_update", &value);
        news_service(store).apply(&news).await.unwrap();
    }

    #[tokio::test]
    async fn news_of_another_number_change_nothing() {
        let value = json!({ "display_phone_number": "16315550000", "current_limit": "TIER_2K" });
        let news = read("phone_number_quality_update", &value);
        news_service(holding()).apply(&news).await.unwrap();
    }
}
