//! The terms of an account, and how a change of them takes effect.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use crate::shared::{FieldErrors, string_enum, timestamp};

/// How long after its change a shorter term takes effect. Until then another change takes it back.
pub const NOTICE: Duration = Duration::DAY;

/// The smallest term of audit entries in days, whatever the operator's minimum is.
const AUDIT_MIN_DAYS: u16 = 365;

string_enum! {
    /// What an account keeps for its own number of days.
    RetentionKind {
        /// The sends of campaigns, from the end of the campaign on. They are archived in a file first.
        CampaignSends = "campaign_sends",
        /// The messages of conversations, and direct messages.
        Messages = "messages",
        /// The files of messages. They never outlive their message.
        Media = "media",
        MetricEvents = "metric_events",
        /// Orders and their items, from their first report on.
        Orders = "orders",
        Notifications = "notifications",
        Audit = "audit",
    }
}

impl RetentionKind {
    /// The field of the settings.
    pub fn field(self) -> &'static str {
        match self {
            Self::CampaignSends => "campaign_sends_days",
            Self::Messages => "messages_days",
            Self::Media => "media_days",
            Self::MetricEvents => "metric_events_days",
            Self::Orders => "orders_days",
            Self::Notifications => "notifications_days",
            Self::Audit => "audit_days",
        }
    }
}

/// The operator's bounds of all terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionBounds {
    pub min_days: u16,
    pub max_days: u16,
    /// The term of accounts without their own. None: they keep everything.
    pub force_days: Option<u16>,
}

impl RetentionBounds {
    /// The terms that a kind may have. Empty if the operator's maximum is below the minimum of audit entries.
    pub fn range(&self, kind: RetentionKind) -> RangeInclusive<u16> {
        match kind {
            RetentionKind::Audit => self.audit_min_days()..=self.max_days,
            _ => self.min_days..=self.max_days,
        }
    }

    pub fn audit_min_days(&self) -> u16 {
        self.min_days.max(AUDIT_MIN_DAYS)
    }

    /// The term of a kind for which the account has none.
    pub fn forced(&self, kind: RetentionKind) -> Option<u16> {
        let days = self.force_days?.max(*self.range(kind).start());
        self.range(kind).contains(&days).then_some(days)
    }
}

/// The term of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// The number of days as it was set last. None: for ever, or as long as the operator forces.
    #[serde(default)]
    pub days: Option<u16>,
    /// The number of days until `effective_at`.
    #[serde(default)]
    before: Option<u16>,
    /// When a shorter term takes effect. None: it was not shorter.
    #[serde(default, with = "timestamp::option")]
    effective_at: Option<OffsetDateTime>,
}

impl Term {
    /// The number of days that holds at `now`.
    pub fn in_force(&self, now: OffsetDateTime) -> Option<u16> {
        match self.takes_effect_at(now) {
            Some(_) => self.before,
            None => self.days,
        }
    }

    /// When the term takes effect. None: it holds at `now`.
    pub fn takes_effect_at(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        self.effective_at.filter(|at| *at > now)
    }

    /// The term after a change. The same number of days changes nothing, also not the time at which they take effect.
    fn changed(self, days: Option<u16>, forced: Option<u16>, now: OffsetDateTime) -> Self {
        if days == self.days {
            return self;
        }
        let in_force = self.in_force(now);
        let is_shorter = match (days.or(forced), in_force.or(forced)) {
            (Some(days), Some(in_force)) => days < in_force,
            (Some(_), None) => true,
            (None, _) => false,
        };
        Self {
            days,
            before: in_force.filter(|_| is_shorter),
            effective_at: is_shorter.then(|| now.saturating_add(NOTICE)),
        }
    }
}

/// The terms of an account by the stored value of their kind. A missing kind stays for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RetentionTerms(BTreeMap<String, Term>);

impl RetentionTerms {
    pub fn of(&self, kind: RetentionKind) -> Term {
        self.0.get(kind.as_str()).copied().unwrap_or_default()
    }

    /// The days of a kind as they were set last.
    pub fn days(&self, kind: RetentionKind) -> Option<u16> {
        self.of(kind).days
    }

    /// When the last of the shorter terms takes effect. None: all terms hold at `now`.
    pub fn take_effect_at(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        self.pending(now).max()
    }

    /// When the next of the shorter terms takes effect.
    pub fn next_effect_at(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        self.pending(now).min()
    }

    fn pending(&self, now: OffsetDateTime) -> impl Iterator<Item = OffsetDateTime> {
        self.0.values().filter_map(move |term| term.takes_effect_at(now))
    }

    /// Whether anything is removed, now or later.
    pub fn remove_any(&self, bounds: &RetentionBounds) -> bool {
        let is_limited = |kind: &RetentionKind| self.days(*kind).or(bounds.forced(*kind)).is_some();
        RetentionKind::ALL.iter().any(is_limited)
    }

    /// Rows of the kind from before this time are over their term. None: none are.
    pub fn horizon(
        &self,
        kind: RetentionKind,
        bounds: &RetentionBounds,
        now: OffsetDateTime,
    ) -> Option<OffsetDateTime> {
        horizon(self.of(kind).in_force(now).or(bounds.forced(kind)), now)
    }

    /// The same for the terms as they were set last, which may take effect later.
    pub fn set_horizon(
        &self,
        kind: RetentionKind,
        bounds: &RetentionBounds,
        now: OffsetDateTime,
    ) -> Option<OffsetDateTime> {
        horizon(self.days(kind).or(bounds.forced(kind)), now)
    }

    /// The terms after a change, and the shortened ones with their days.
    pub fn changed(&self, input: &RetentionInput, bounds: &RetentionBounds, now: OffsetDateTime) -> (Self, Shortened) {
        let (mut terms, mut shortened) = (self.clone(), Shortened::new());
        for (&kind, &days) in &input.0 {
            let (before, after) = (self.of(kind), self.of(kind).changed(days, bounds.forced(kind), now));
            if after != before
                && let (Some(_), Some(days)) = (after.effective_at, days.or(bounds.forced(kind)))
            {
                shortened.insert(kind.field(), days);
            }
            terms.0.insert(kind.as_str().to_owned(), after);
        }
        (terms, shortened)
    }
}

/// The days of shortened terms, by their field.
pub(super) type Shortened = BTreeMap<&'static str, u16>;

/// Rollups have days of UTC, so rows leave by whole days.
fn horizon(days: Option<u16>, now: OffsetDateTime) -> Option<OffsetDateTime> {
    let at = now.checked_sub(Duration::days(days?.into()))?;
    Some(at.to_offset(time::UtcOffset::UTC).date().midnight().assume_utc())
}

/// The terms that a change sets. An absent kind keeps its term.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionInput(HashMap<RetentionKind, Option<u16>>);

impl RetentionInput {
    /// Checks the given terms.
    pub fn parse(
        given: impl IntoIterator<Item = (RetentionKind, Option<i64>)>,
        bounds: &RetentionBounds,
    ) -> Result<Self, FieldErrors> {
        let (mut terms, mut errors) = (HashMap::new(), FieldErrors::default());
        for (kind, days) in given {
            let range = bounds.range(kind);
            let is_accepted = |days: &u16| range.contains(days);
            match days.map(|days| u16::try_from(days).ok().filter(is_accepted)) {
                None => drop(terms.insert(kind, None)),
                Some(Some(days)) => drop(terms.insert(kind, Some(days))),
                Some(None) => errors.add(
                    kind.field(),
                    format!(
                        "must be {} to {} days, or null to keep them for ever",
                        range.start(),
                        range.end()
                    ),
                ),
            }
        }
        errors.into_result().map(|()| Self(terms))
    }

    /// The given days by their field, for the audit log.
    pub(super) fn changes(&self) -> BTreeMap<&'static str, Option<u16>> {
        self.0.iter().map(|(kind, days)| (kind.field(), *days)).collect()
    }
}
