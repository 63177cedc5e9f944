//! Decides on the messages of one account that are due, with the settings and starts that one transaction reads.

use std::collections::BTreeMap;

use time::{Duration, OffsetDateTime};

use super::{contact_zone, quiet_until};
use crate::messaging::Category;
use crate::settings::{AccountSettings, HeldCategory, MarketingCap, QuietHours, QuietZone};
use crate::shared::{ContactId, ZoneName, redacted_debug, string_enum};

string_enum! {
    /// The setting that holds a message.
    HoldCause {
        /// It is quiet where the contact is.
        QuietHours = "quiet_hours",
        /// The contact has got as many marketing messages as the account allows.
        Cap = "cap",
    }
}

/// The error message of a message that its setting held for too long.
pub fn held_too_long(cause: HoldCause) -> String {
    format!("held too long: {cause}")
}

/// What a decision on a due message depends on.
#[derive(Clone, PartialEq, Eq)]
pub struct HoldFacts {
    /// None: the message has no template.
    pub category: Option<Category>,
    /// The contact, or the first of the contacts that are the same person.
    pub person: ContactId,
    pub time_zone: Option<ZoneName>,
    /// E.164.
    pub phone: Option<String>,
    /// When the message was due: a campaign's when it was first held.
    pub due_at: OffsetDateTime,
    /// When the message expires, if it does.
    pub expires_at: Option<OffsetDateTime>,
}

redacted_debug!(HoldFacts { category, due_at });

/// What becomes of a due message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldDecision {
    /// It may start. A marketing message counts from now on.
    Free,
    /// It is checked again at `until`.
    Held { cause: HoldCause, until: OffsetDateTime },
    /// It was held for as long as the account allows, or until it expired. It MUST fail.
    TooLong(HoldCause),
}

/// The policy of an account's messages at one time.
#[derive(Clone, Debug)]
pub struct HoldPolicy {
    settings: AccountSettings,
    now: OffsetDateTime,
    /// When marketing messages to each person were started, latest first.
    starts: BTreeMap<ContactId, Vec<OffsetDateTime>>,
}

impl HoldPolicy {
    /// `starts`: for each person, the times of counted messages in any order. They MUST NOT change before the
    /// checked messages are started.
    pub fn new(
        settings: AccountSettings,
        now: OffsetDateTime,
        mut starts: BTreeMap<ContactId, Vec<OffsetDateTime>>,
    ) -> Self {
        for starts in starts.values_mut() {
            starts.sort_unstable_by(|a, b| b.cmp(a));
        }
        Self { settings, now, starts }
    }

    /// A policy that holds nothing.
    pub fn off(now: OffsetDateTime) -> Self {
        Self::new(AccountSettings::default(), now, BTreeMap::new())
    }

    /// Decides on a due message.
    pub fn decide(&mut self, facts: &HoldFacts) -> HoldDecision {
        match self.hold(facts) {
            None => {
                if self.settings.cap_of(facts.category).is_some() {
                    self.starts.entry(facts.person).or_default().insert(0, self.now);
                }
                HoldDecision::Free
            }
            Some((cause, until)) => {
                let latest_end = facts.due_at + Duration::hours(self.settings.hold_at_most_hours.into());
                let end = facts.expires_at.map_or(latest_end, |at| at.min(latest_end));
                if self.now >= end {
                    return HoldDecision::TooLong(cause);
                }
                let until = until.min(end);
                HoldDecision::Held { cause, until }
            }
        }
    }

    /// Why and until when the message waits, whatever the limits of the wait.
    fn hold(&self, facts: &HoldFacts) -> Option<(HoldCause, OffsetDateTime)> {
        let quiet = |at| {
            let hours = self.settings.quiet_hours_of(facts.category)?;
            quiet_until(hours, &self.zone(hours, facts), at)
        };
        if let Some(until) = quiet(self.now) {
            return Some((HoldCause::QuietHours, until));
        }
        let cap = self.settings.cap_of(facts.category)?;
        let fits_at = cap.fits_at(self.starts.get(&facts.person)?, self.now)?;
        // A message that fits at night waits for the morning.
        Some((HoldCause::Cap, quiet(fits_at).unwrap_or(fits_at)))
    }

    fn zone(&self, hours: &QuietHours, facts: &HoldFacts) -> crate::shared::Zone {
        let account = &self.settings.timezone;
        match hours.zone {
            QuietZone::Account => account.zone(),
            QuietZone::Contact => contact_zone(facts.time_zone.as_ref(), facts.phone.as_deref(), account),
        }
    }
}

impl AccountSettings {
    /// Whether a message of the category can be held.
    pub fn may_hold(&self, category: Category) -> bool {
        self.quiet_hours_of(Some(category)).is_some() || self.cap_of(Some(category)).is_some()
    }

    /// The limit of messages of the category.
    pub fn cap_of(&self, category: Option<Category>) -> Option<MarketingCap> {
        self.max_marketing_per_contact
            .filter(|_| category == Some(Category::Marketing))
    }

    fn quiet_hours_of(&self, category: Option<Category>) -> Option<&QuietHours> {
        let held = match category? {
            Category::Marketing => HeldCategory::Marketing,
            Category::Utility => HeldCategory::Utility,
            Category::Authentication => return None,
        };
        self.quiet_hours
            .as_ref()
            .filter(|hours| hours.categories.contains(&held))
    }
}

impl MarketingCap {
    /// How long a started message counts.
    pub fn window(self) -> Duration {
        Duration::days(self.days.into())
    }

    /// When one more message fits. None: it fits at `now`. `starts`: when messages were started, latest first.
    fn fits_at(self, starts: &[OffsetDateTime], now: OffsetDateTime) -> Option<OffsetDateTime> {
        let last = usize::from(self.n).checked_sub(1)?;
        let leaves_at = *starts.get(last)? + self.window();
        (leaves_at > now).then_some(leaves_at)
    }
}

#[cfg(test)]
mod tests {
    use time::macros::{datetime, time};
    use uuid::Uuid;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-02 12:00 UTC);
    const PERSON: ContactId = ContactId(Uuid::nil());

    fn settings() -> AccountSettings {
        AccountSettings {
            quiet_hours: Some(QuietHours {
                from: time!(20:00),
                to: time!(8:00),
                zone: QuietZone::Contact,
                categories: vec![HeldCategory::Marketing],
                days: (0..7).collect(),
            }),
            max_marketing_per_contact: Some(MarketingCap { n: 2, days: 1 }),
            ..AccountSettings::default()
        }
    }

    fn facts(category: Category) -> HoldFacts {
        HoldFacts {
            category: Some(category),
            person: PERSON,
            time_zone: None,
            phone: None,
            due_at: NOW,
            expires_at: None,
        }
    }

    fn policy_at(now: OffsetDateTime, starts: &[OffsetDateTime]) -> HoldPolicy {
        HoldPolicy::new(settings(), now, [(PERSON, starts.to_vec())].into())
    }

    fn held(cause: HoldCause, until: OffsetDateTime) -> HoldDecision {
        HoldDecision::Held { cause, until }
    }

    #[test]
    fn only_messages_of_held_categories_are_held() {
        let night = datetime!(2026-03-02 23:00 UTC);
        let starts = [night - Duration::HOUR, night - Duration::HOUR];
        let checked = |category| {
            let facts = HoldFacts {
                category,
                ..facts(Category::Marketing)
            };
            policy_at(night, &starts).decide(&facts)
        };
        let morning = datetime!(2026-03-03 08:00 UTC);
        assert_eq!(checked(Some(Category::Marketing)), held(HoldCause::QuietHours, morning));
        for category in [Some(Category::Utility), Some(Category::Authentication), None] {
            assert_eq!(checked(category), HoldDecision::Free, "{category:?}");
        }
        let mut both = settings();
        both.quiet_hours
            .as_mut()
            .unwrap()
            .categories
            .push(HeldCategory::Utility);
        let mut policy = HoldPolicy::new(both, night, BTreeMap::new());
        assert_eq!(
            policy.decide(&facts(Category::Utility)),
            held(HoldCause::QuietHours, morning)
        );
        assert_eq!(policy.decide(&facts(Category::Authentication)), HoldDecision::Free);
        assert_eq!(
            HoldPolicy::off(night).decide(&facts(Category::Marketing)),
            HoldDecision::Free
        );
    }

    #[test]
    fn quiet_hours_follow_the_contact_or_the_account() {
        // 22:00 UTC is 19:00 in Sao Paulo.
        let at = datetime!(2026-03-02 22:00 UTC);
        let brazilian = HoldFacts {
            phone: Some("+5511961234567".into()),
            ..facts(Category::Marketing)
        };
        assert_eq!(policy_at(at, &[]).decide(&brazilian), HoldDecision::Free);
        let mut account = settings();
        account.quiet_hours.as_mut().unwrap().zone = QuietZone::Account;
        let until = datetime!(2026-03-03 08:00 UTC);
        let checked = HoldPolicy::new(account, at, BTreeMap::new()).decide(&brazilian);
        assert_eq!(checked, held(HoldCause::QuietHours, until));
    }

    #[test]
    fn cap_holds_until_the_oldest_counted_message_leaves_the_window() {
        let marketing = facts(Category::Marketing);
        let (older, newer) = (NOW - Duration::hours(23), NOW - Duration::hours(1));
        assert_eq!(policy_at(NOW, &[newer]).decide(&marketing), HoldDecision::Free);
        assert_eq!(
            policy_at(NOW, &[newer, older]).decide(&marketing),
            held(HoldCause::Cap, NOW + Duration::HOUR)
        );
        let window = Duration::DAY;
        assert_eq!(
            policy_at(NOW, &[NOW - window, newer]).decide(&marketing),
            HoldDecision::Free
        );
        // It fits at 22:00, when it is quiet.
        let at = datetime!(2026-03-02 23:00 UTC) - window;
        assert_eq!(
            policy_at(NOW, &[at, newer]).decide(&marketing),
            held(HoldCause::Cap, datetime!(2026-03-03 08:00 UTC))
        );
    }

    #[test]
    fn messages_that_are_checked_together_count_each_other() {
        let mut policy = policy_at(NOW, &[]);
        let checked: Vec<HoldDecision> = (0..3).map(|_| policy.decide(&facts(Category::Marketing))).collect();
        let third = held(HoldCause::Cap, NOW + Duration::DAY);
        assert_eq!(checked, [HoldDecision::Free, HoldDecision::Free, third]);
        assert_eq!(policy.decide(&facts(Category::Utility)), HoldDecision::Free);
        let other = HoldFacts {
            person: ContactId(Uuid::max()),
            ..facts(Category::Marketing)
        };
        assert_eq!(policy.decide(&other), HoldDecision::Free);
    }

    #[test]
    fn hold_ends_after_the_hours_of_the_account_or_at_the_expiry() {
        let starts = [NOW - Duration::HOUR, NOW - Duration::HOUR];
        let settings = AccountSettings {
            hold_at_most_hours: 2,
            max_marketing_per_contact: Some(MarketingCap { n: 2, days: 90 }),
            ..AccountSettings::default()
        };
        let checked = |due_at, expires_at| {
            let facts = HoldFacts {
                due_at,
                expires_at,
                ..facts(Category::Marketing)
            };
            HoldPolicy::new(settings.clone(), NOW, [(PERSON, starts.to_vec())].into()).decide(&facts)
        };
        assert_eq!(checked(NOW, None), held(HoldCause::Cap, NOW + Duration::hours(2)));
        let soon = Some(NOW + Duration::MINUTE);
        assert_eq!(checked(NOW, soon), held(HoldCause::Cap, NOW + Duration::MINUTE));
        let too_long = HoldDecision::TooLong(HoldCause::Cap);
        assert_eq!(checked(NOW - Duration::hours(2), None), too_long);
        assert_eq!(checked(NOW, Some(NOW)), too_long);
        assert_eq!(held_too_long(HoldCause::Cap), "held too long: cap");
        assert_eq!(held_too_long(HoldCause::QuietHours), "held too long: quiet_hours");
        // A message that may leave leaves, however late.
        let late = HoldFacts {
            due_at: NOW - Duration::WEEK,
            ..facts(Category::Marketing)
        };
        assert_eq!(
            HoldPolicy::new(settings, NOW, BTreeMap::new()).decide(&late),
            HoldDecision::Free
        );
    }
}
