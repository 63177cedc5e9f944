//! The verification of a number and its checks.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::shared::string_enum;

/// The longest `found` and `remedy` of a check, in characters.
const TEXT_CHARS: usize = 300;

string_enum! {
    /// Whether WhatsApp has confirmed that the number belongs to the owner of the token.
    VerificationState {
        /// Not known yet.
        Pending = "pending",
        /// Every check passed.
        Verified = "verified",
        /// A check failed.
        Failed = "failed",
    }
}

impl VerificationState {
    /// The state that follows from finished checks alone.
    pub fn of(checks: &[Check]) -> Self {
        let any = |state: CheckState| checks.iter().any(|check| check.state == state);
        if any(CheckState::Failed) {
            Self::Failed
        } else if checks.is_empty() || any(CheckState::Unknown) {
            Self::Pending
        } else {
            Self::Verified
        }
    }
}

string_enum! {
    /// The checks, in the order in which they run.
    CheckName {
        /// The token is accepted.
        Token = "token",
        /// The number's id is the profile's.
        Number = "number",
        /// The business account has the number.
        BusinessAccount = "business_account",
        /// The app receives the business account's callbacks.
        Subscription = "subscription",
        /// The number is registered.
        Registration = "registration",
        /// The quality of the number is not red.
        Quality = "quality",
        /// The profile's rate fits the number.
        Pace = "pace",
    }
}

impl CheckName {
    /// Whether the checks after it are skipped unless it passes.
    pub fn is_required_by_later(self) -> bool {
        matches!(self, Self::Token | Self::Number | Self::BusinessAccount)
    }

    /// Whether a failure of this check alone takes a verified profile's verification away at once: the number is not
    /// the profile's.
    pub fn disproves(self) -> bool {
        matches!(self, Self::Number | Self::BusinessAccount)
    }
}

string_enum! {
    /// The outcome of a check.
    CheckState {
        Passed = "passed",
        Failed = "failed",
        /// Nothing fails, but the remedy should be read.
        Warning = "warning",
        /// WhatsApp could not be asked.
        Unknown = "unknown",
        /// An earlier check did not pass.
        Skipped = "skipped",
    }
}

/// A check of a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked.
    pub name: CheckName,
    /// The outcome.
    pub state: CheckState,
    /// What was found: at most 300 characters. Null if there is nothing to say.
    pub found: Option<String>,
    /// What to do: at most 300 characters. Null if there is nothing to do.
    pub remedy: Option<String>,
}

impl Check {
    pub fn passed(name: CheckName) -> Self {
        Self::of(name, CheckState::Passed)
    }

    pub fn skipped(name: CheckName) -> Self {
        Self::of(name, CheckState::Skipped)
    }

    fn of(name: CheckName, state: CheckState) -> Self {
        Self {
            name,
            state,
            found: None,
            remedy: None,
        }
    }

    /// A check that did not pass.
    pub fn with_remedy(name: CheckName, state: CheckState, found: &str, remedy: &str) -> Self {
        Self {
            found: Some(shortened(found)),
            remedy: Some(shortened(remedy)),
            ..Self::of(name, state)
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(TEXT_CHARS).collect()
}

/// The verification of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// `pending` until WhatsApp was asked, then `verified` or `failed`. Only verified numbers send and receive.
    pub state: VerificationState,
    /// When the checks were last finished. Null before the first time.
    pub checked_at: Option<OffsetDateTime>,
    /// When the checks run again. Null if they do not run again by themselves.
    pub next_check_at: Option<OffsetDateTime>,
    /// The checks in their order. Empty before the first time.
    pub checks: Vec<Check>,
}

impl Verification {
    /// Whether the number may send and receive.
    pub fn is_verified(&self) -> bool {
        self.state == VerificationState::Verified
    }

    /// The first check that failed.
    pub fn failed_check(&self) -> Option<&Check> {
        self.checks.iter().find(|check| check.state == CheckState::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_of_a_check_are_cut() {
        let check = Check::with_remedy(CheckName::Token, CheckState::Failed, &"é".repeat(301), "x");
        assert_eq!(check.found.map(|found| found.chars().count()), Some(300));
        assert_eq!(check.remedy.as_deref(), Some("x"));
    }
}
