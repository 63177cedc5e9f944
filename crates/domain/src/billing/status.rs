//! State machine of a subscription, as a total pure function. The golden table in the tests shows every transition.

use crate::shared::string_enum;

string_enum! {
    /// Status of a subscription.
    SubscriptionStatus {
        /// The current period is paid.
        Active = "active",
        /// Waits for the first payment.
        Pending = "pending",
        /// A payment is overdue.
        PastDue = "past_due",
        /// The gateway ended it.
        Inactive = "inactive",
        /// The account cancelled it.
        Cancelled = "cancelled",
    }
}

impl SubscriptionStatus {
    /// Whether the subscription has not ended. An account has at most one live subscription.
    pub fn is_live(self) -> bool {
        match self {
            Self::Active | Self::Pending | Self::PastDue => true,
            Self::Inactive | Self::Cancelled => false,
        }
    }
}

/// A command that changes a subscription's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionCommand {
    /// A payment is confirmed or received.
    Pay,
    /// The money of a payment arrives that was confirmed before (cards: a month later).
    Settle,
    /// A payment is overdue.
    Overdue,
    /// The gateway ends the subscription.
    Inactivate,
    /// The account cancels the subscription.
    Cancel,
    /// The account changes plan or cycle.
    ChangePlan,
}

impl SubscriptionCommand {
    /// Every command, for tables and tests.
    pub const ALL: [Self; 6] = [
        Self::Pay,
        Self::Settle,
        Self::Overdue,
        Self::Inactivate,
        Self::Cancel,
        Self::ChangePlan,
    ];
}

/// Returns the status after a command, or `None` if the command has no effect. `other_live`: the account has another
/// live subscription, so an ended one cannot become live again.
pub fn transition(
    status: SubscriptionStatus,
    command: SubscriptionCommand,
    other_live: bool,
) -> Option<SubscriptionStatus> {
    use SubscriptionCommand::{Cancel, ChangePlan, Inactivate, Overdue, Pay, Settle};
    use SubscriptionStatus::{Active, Cancelled, Inactive, PastDue, Pending};
    match (command, status) {
        (Pay | Settle, Active | Pending | PastDue) => Some(Active),
        (Pay, Inactive | Cancelled) => (!other_live).then_some(Active),
        (Settle, Inactive | Cancelled) => None,
        (Overdue, Active | Pending | PastDue) => Some(PastDue),
        (Overdue, Inactive | Cancelled) => (!other_live).then_some(PastDue),
        (Inactivate, Active | Pending | PastDue | Inactive | Cancelled) => Some(Inactive),
        (Cancel, Active | Pending | PastDue) => Some(Cancelled),
        (ChangePlan, Active | Pending | PastDue) => Some(status),
        (Cancel | ChangePlan, Inactive | Cancelled) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: current status. Columns: commands. `-`: no effect.
    const GOLDEN: &str = "\
from       Pay        Settle     Overdue    Inactivate Cancel     ChangePlan
active     active     active     past_due   inactive   cancelled  active
pending    active     active     past_due   inactive   cancelled  pending
past_due   active     active     past_due   inactive   cancelled  past_due
inactive   active     -          past_due   inactive   -          -
cancelled  active     -          past_due   inactive   -          -
with another live one
active     active     active     past_due   inactive   cancelled  active
pending    active     active     past_due   inactive   cancelled  pending
past_due   active     active     past_due   inactive   cancelled  past_due
inactive   -          -          -          inactive   -          -
cancelled  -          -          -          inactive   -          -
";

    fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
        let line: String = cells.map(|cell| format!("{cell:11}")).collect();
        line.trim_end().to_owned() + "\n"
    }

    #[test]
    fn transition_matches_the_golden_table() {
        let names = SubscriptionCommand::ALL.map(|command| format!("{command:?}"));
        let mut table = line(std::iter::once("from").chain(names.iter().map(String::as_str)));
        for other_live in [false, true] {
            if other_live {
                table.push_str("with another live one\n");
            }
            for &status in SubscriptionStatus::ALL {
                let to = |command| transition(status, command, other_live).map_or("-", SubscriptionStatus::as_str);
                table += &line(std::iter::once(status.as_str()).chain(SubscriptionCommand::ALL.map(to)));
            }
        }
        assert_eq!(table, GOLDEN, "\n{table}");
    }

    #[test]
    fn status_is_live_until_the_subscription_ends() {
        let live = SubscriptionStatus::ALL.iter().filter(|status| status.is_live());
        let names: Vec<&str> = live.map(|status| status.as_str()).collect();
        assert_eq!(names, ["active", "pending", "past_due"]);
    }

    #[test]
    fn transition_never_revives_beside_another_live_subscription() {
        for &status in SubscriptionStatus::ALL {
            for command in SubscriptionCommand::ALL {
                let next = transition(status, command, true);
                assert!(
                    status.is_live() || next.is_none_or(|next| !next.is_live()),
                    "{status} {command:?}"
                );
            }
        }
    }
}
