//! The settings, and the bounds of their values.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use time::Time;

use crate::shared::{Amount, FieldErrors, StoreError, ZoneName, clock_time, redacted_debug, string_enum, text};

/// How long a message is held at most, in hours.
pub const DEFAULT_HOLD_HOURS: u16 = 48;
const MAX_HOLD_HOURS: u16 = 168;

const MAX_MARKETING: u16 = 100;
const MAX_MARKETING_DAYS: u16 = 90;

const MAX_OPT_OUT_WORDS: usize = 50;
const OPT_OUT_WORD_CHARS: usize = 40;
const OPT_OUT_REPLY_CHARS: usize = 1024;

/// The limits of the tolerated delay, in seconds.
pub const MIN_DELAY: u32 = 60;
const MAX_DELAY: u32 = 86_400;

const MAX_COST_ALERTS: usize = 20;

/// The settings of one account. An account without stored settings has the defaults.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountSettings {
    pub timezone: ZoneName,
    /// None: messages start at any time.
    pub quiet_hours: Option<QuietHours>,
    /// None: no limit.
    pub max_marketing_per_contact: Option<MarketingCap>,
    /// How long after it was due a message is held at most.
    pub hold_at_most_hours: u16,
    /// Further opt-out words. The built-in ones always count.
    pub opt_out_words: Vec<String>,
    /// The reply to a contact that opts out by a word. None: no reply.
    pub opt_out_reply: Option<String>,
    /// For schedules without their own. None: late campaigns are sent.
    pub late_policy: Option<LatePolicy>,
    pub cost_alerts: Vec<CostAlert>,
}

redacted_debug!(AccountSettings { timezone });

impl Default for AccountSettings {
    fn default() -> Self {
        Self {
            timezone: ZoneName::default(),
            quiet_hours: None,
            max_marketing_per_contact: None,
            hold_at_most_hours: DEFAULT_HOLD_HOURS,
            opt_out_words: Vec::new(),
            opt_out_reply: None,
            late_policy: None,
            cost_alerts: Vec::new(),
        }
    }
}

string_enum! {
    /// Whose clock quiet hours follow.
    QuietZone {
        /// The contact's.
        Contact = "contact",
        /// The account's.
        Account = "account",
    }
}

string_enum! {
    /// A template category that can be held.
    HeldCategory {
        Marketing = "MARKETING",
        Utility = "UTILITY",
    }
}

/// The hours in which no message of the categories starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuietHours {
    /// The begin, as `HH:MM`.
    #[schemars(with = "String", regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"), example = &"21:00")]
    #[serde(with = "clock_time")]
    pub from: Time,
    /// The end, as `HH:MM`; different from `from`. An earlier time is one of the next day.
    #[schemars(with = "String", regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"), example = &"08:00")]
    #[serde(with = "clock_time")]
    pub to: Time,
    /// Whose clock counts.
    #[schemars(example = &"contact")]
    pub zone: QuietZone,
    /// The categories that wait.
    #[schemars(length(min = 1, max = 2), example = &["MARKETING"])]
    #[serde(default = "default_categories")]
    pub categories: Vec<HeldCategory>,
    /// The days of the week on which the hours begin: 0 is Sunday, 6 is Saturday.
    #[schemars(length(min = 1, max = 7), inner(range(min = 0, max = 6)), example = &[0, 1, 2, 3, 4, 5, 6])]
    #[serde(default = "default_days")]
    pub days: Vec<u8>,
}

fn default_categories() -> Vec<HeldCategory> {
    vec![HeldCategory::Marketing]
}

fn default_days() -> Vec<u8> {
    (0..7).collect()
}

impl QuietHours {
    fn check(&self, errors: &mut FieldErrors) {
        if self.from == self.to {
            errors.add("quiet_hours.to", "must differ from quiet_hours.from");
        }
        if self.categories.is_empty() {
            errors.add("quiet_hours.categories", "must not be empty");
        }
        if self.days.is_empty() || self.days.iter().any(|day| *day > 6) {
            errors.add("quiet_hours.days", "must have days from 0 (Sunday) to 6 (Saturday)");
        }
    }

    /// Without repeated categories and days, in their order.
    fn normalized(mut self) -> Self {
        self.categories.sort_by_key(|category| category.as_str());
        self.categories.dedup();
        self.days.sort_unstable();
        self.days.dedup();
        self
    }
}

/// The most marketing messages to one contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MarketingCap {
    /// The number of messages: 1 to 100.
    #[schemars(range(min = 1, max = 100), example = 4)]
    pub n: u16,
    /// The days of 24 hours in which they count: 1 to 90.
    #[schemars(range(min = 1, max = 90), example = 7)]
    pub days: u16,
}

impl MarketingCap {
    fn check(self, errors: &mut FieldErrors) {
        for (field, value, max) in [("n", self.n, MAX_MARKETING), ("days", self.days, MAX_MARKETING_DAYS)] {
            if !(1..=max).contains(&value) {
                let path = format!("max_marketing_per_contact.{field}");
                errors.add(path, format!("must be from 1 to {max}"));
            }
        }
    }
}

string_enum! {
    /// What happens to a campaign that would start too late.
    LateAction {
        /// It becomes a draft again, and sends nothing.
        Skip = "skip",
        /// It is sent.
        Send = "send",
    }
}

/// What happens to a scheduled campaign that starts late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LatePolicy {
    /// The tolerated delay in seconds: 60 to 86,400.
    #[schemars(range(min = 60, max = 86_400), example = 3600)]
    pub within: u32,
    /// What happens after that. If absent, it is sent.
    #[schemars(example = &"skip")]
    #[serde(rename = "else", default = "send")]
    pub otherwise: LateAction,
}

fn send() -> LateAction {
    LateAction::Send
}

impl LatePolicy {
    /// Adds the errors of a policy in the field `path`.
    pub fn check(self, path: &str, errors: &mut FieldErrors) {
        if !(MIN_DELAY..=MAX_DELAY).contains(&self.within) {
            let message = format!("must be from {MIN_DELAY} to {MAX_DELAY}");
            errors.add(format!("{path}.within"), message);
        }
    }
}

/// An amount of message costs in a month that the account is warned about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CostAlert {
    /// The amount: above 0 and below 100 billion, with at most 4 decimals.
    #[schemars(example = 100)]
    pub amount: Amount,
    /// The currency as an ISO 4217 code.
    #[schemars(regex(pattern = r"^[A-Z]{3}$"), example = &"USD")]
    pub currency: String,
}

impl CostAlert {
    fn check(&self, index: usize, errors: &mut FieldErrors) -> Option<Self> {
        let amount = self.amount.validated().filter(|amount| *amount > Amount::ZERO);
        if amount.is_none() {
            let message = "must be above 0 and below 100000000000 with at most 4 decimals";
            errors.add(format!("cost_alerts[{index}].amount"), message);
        }
        if self.currency.len() != 3 || !self.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            let message = "must be three capital letters, such as USD";
            errors.add(format!("cost_alerts[{index}].currency"), message);
        }
        amount.map(|amount| Self {
            amount,
            currency: self.currency.clone(),
        })
    }
}

/// Unchecked input. An absent field is unchanged, and `Some(None)` restores its default.
#[derive(Clone, Default)]
pub struct SettingsInput {
    pub timezone: Option<Option<String>>,
    pub quiet_hours: Option<Option<QuietHours>>,
    pub max_marketing_per_contact: Option<Option<MarketingCap>>,
    pub hold_at_most_hours: Option<Option<i64>>,
    pub opt_out_words: Option<Option<Vec<String>>>,
    pub opt_out_reply: Option<Option<String>>,
    pub late_policy: Option<Option<LatePolicy>>,
    pub cost_alerts: Option<Option<Vec<CostAlert>>>,
}

redacted_debug!(SettingsInput {});

/// The validated fields of a change, by the rules of [`SettingsInput`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SettingsChange {
    pub timezone: Option<Option<ZoneName>>,
    pub quiet_hours: Option<Option<QuietHours>>,
    pub max_marketing_per_contact: Option<Option<MarketingCap>>,
    pub hold_at_most_hours: Option<Option<u16>>,
    pub opt_out_words: Option<Option<Vec<String>>>,
    pub opt_out_reply: Option<Option<String>>,
    pub late_policy: Option<Option<LatePolicy>>,
    pub cost_alerts: Option<Option<Vec<CostAlert>>>,
}

redacted_debug!(SettingsChange {});

impl SettingsInput {
    /// Checks every given field.
    pub fn check(self) -> Result<SettingsChange, FieldErrors> {
        let mut errors = FieldErrors::default();
        let timezone = self.timezone.map(|name| check_zone(name, &mut errors));
        let hold_at_most_hours = self.hold_at_most_hours.map(|hours| check_hold(hours, &mut errors));
        let opt_out_words = self.opt_out_words.map(|words| check_words(words, &mut errors));
        if let Some(Some(quiet_hours)) = &self.quiet_hours {
            quiet_hours.check(&mut errors);
        }
        if let Some(Some(cap)) = self.max_marketing_per_contact {
            cap.check(&mut errors);
        }
        if let Some(Some(reply)) = &self.opt_out_reply
            && (text::is_blank(reply) || reply.chars().count() > OPT_OUT_REPLY_CHARS)
        {
            errors.add(
                "opt_out_reply",
                format!("must have 1 to {OPT_OUT_REPLY_CHARS} characters"),
            );
        }
        if let Some(Some(policy)) = self.late_policy {
            policy.check("late_policy", &mut errors);
        }
        let cost_alerts = self.cost_alerts.map(|alerts| check_alerts(alerts, &mut errors));
        errors.into_result()?;
        Ok(SettingsChange {
            timezone,
            quiet_hours: self.quiet_hours.map(|hours| hours.map(QuietHours::normalized)),
            max_marketing_per_contact: self.max_marketing_per_contact,
            hold_at_most_hours,
            opt_out_words,
            opt_out_reply: self.opt_out_reply,
            late_policy: self.late_policy,
            cost_alerts,
        })
    }
}

fn check_zone(name: Option<String>, errors: &mut FieldErrors) -> Option<ZoneName> {
    let zone = name?.parse();
    zone.map_err(|message: String| errors.add("timezone", message)).ok()
}

fn check_hold(hours: Option<i64>, errors: &mut FieldErrors) -> Option<u16> {
    let hours = u16::try_from(hours?)
        .ok()
        .filter(|hours| (1..=MAX_HOLD_HOURS).contains(hours));
    if hours.is_none() {
        errors.add("hold_at_most_hours", format!("must be from 1 to {MAX_HOLD_HOURS}"));
    }
    hours
}

/// The words without spaces around them, which do not count in messages either.
fn check_words(words: Option<Vec<String>>, errors: &mut FieldErrors) -> Option<Vec<String>> {
    let words = words?;
    if words.len() > MAX_OPT_OUT_WORDS {
        errors.add("opt_out_words", format!("must have at most {MAX_OPT_OUT_WORDS} items"));
        return None;
    }
    let words: Vec<String> = words.iter().map(|word| word.trim().to_owned()).collect();
    for (index, word) in words.iter().enumerate() {
        if word.is_empty() || word.chars().count() > OPT_OUT_WORD_CHARS {
            let message = format!("must have 1 to {OPT_OUT_WORD_CHARS} characters");
            errors.add(format!("opt_out_words[{index}]"), message);
        }
    }
    Some(words)
}

fn check_alerts(alerts: Option<Vec<CostAlert>>, errors: &mut FieldErrors) -> Option<Vec<CostAlert>> {
    let alerts = alerts?;
    if alerts.len() > MAX_COST_ALERTS {
        errors.add("cost_alerts", format!("must have at most {MAX_COST_ALERTS} items"));
        return None;
    }
    let checked = alerts
        .iter()
        .enumerate()
        .map(|(index, alert)| alert.check(index, errors));
    Some(checked.flatten().collect())
}

impl SettingsChange {
    /// Whether messages may be held otherwise than before.
    pub fn changes_holds(&self) -> bool {
        self.timezone.is_some()
            || self.quiet_hours.is_some()
            || self.max_marketing_per_contact.is_some()
            || self.hold_at_most_hours.is_some()
    }

    /// The names of the changed fields.
    pub fn names(&self) -> Vec<&'static str> {
        let given = [
            ("timezone", self.timezone.is_some()),
            ("quiet_hours", self.quiet_hours.is_some()),
            ("max_marketing_per_contact", self.max_marketing_per_contact.is_some()),
            ("hold_at_most_hours", self.hold_at_most_hours.is_some()),
            ("opt_out_words", self.opt_out_words.is_some()),
            ("opt_out_reply", self.opt_out_reply.is_some()),
            ("late_policy", self.late_policy.is_some()),
            ("cost_alerts", self.cost_alerts.is_some()),
        ];
        given
            .into_iter()
            .filter_map(|(name, is_given)| is_given.then_some(name))
            .collect()
    }
}

#[derive(Debug, Error)]
pub enum SettingsError {
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error(transparent)]
    Store(#[from] StoreError),
}
