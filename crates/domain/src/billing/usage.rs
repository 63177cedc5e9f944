//! An account's usage, and its comparison with a plan's limits.

use super::PlanLimits;
use crate::shared::FieldErrors;

/// An account's usage of what plans limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub contacts: i64,
    /// Number of outbound messages that the account sent in the current calendar month (UTC).
    pub messages: i64,
    pub automations: i64,
    pub team: i64,
    pub whatsapp: i64,
}

/// Fails with one error of `plan` for each exceeded limit. Messages are not checked, because their count restarts every
/// month.
pub fn exceeded(usage: &Usage, limits: &PlanLimits) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::default();
    for (resource, used, limit) in [
        ("contacts", usage.contacts, limits.contacts),
        ("automations", usage.automations, limits.automations),
        ("team members", usage.team, limits.team_members),
        ("WhatsApp numbers", usage.whatsapp, limits.whatsapp_numbers),
    ] {
        if used > limit {
            errors.add("plan", format!("allows {limit} {resource}, but the account has {used}"));
        }
    }
    errors.into_result()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::billing::plan_limits;

    #[test]
    fn exceeded_checks_every_limit_except_messages() {
        let limits = plan_limits("starter").unwrap();
        let full = Usage {
            contacts: 5_000,
            messages: 1_000_000,
            automations: 5,
            team: 5,
            whatsapp: 1,
        };
        assert_eq!(exceeded(&full, &limits), Ok(()));
        for over in [
            Usage {
                contacts: 5_001,
                ..full
            },
            Usage { automations: 6, ..full },
            Usage { team: 6, ..full },
            Usage { whatsapp: 2, ..full },
        ] {
            let errors = exceeded(&over, &limits).unwrap_err();
            assert_eq!(errors.0["plan"].len(), 1, "{over:?}");
        }
    }
}
