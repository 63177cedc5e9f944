//! How much of a plan an account uses.

use serde::Serialize;

use super::PlanLimits;
use crate::shared::FieldErrors;

/// What an account has, as published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Contacts.
    pub contacts: i64,
    /// Outbound messages of this month (UTC).
    pub messages: i64,
    /// Automations.
    pub automations: i64,
    /// Members of the team.
    pub team: i64,
    /// Connected numbers.
    pub whatsapp: i64,
}

/// What of the usage is beyond a plan's limits; messages begin anew every month and never are.
pub fn exceeded(usage: &Usage, limits: &PlanLimits) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::default();
    for (what, used, limit) in [
        ("contacts", usage.contacts, limits.contacts),
        ("automations", usage.automations, limits.automations),
        ("team members", usage.team, limits.team_members),
        ("WhatsApp numbers", usage.whatsapp, limits.whatsapp_numbers),
    ] {
        if used > limit {
            errors.add("plan", format!("allows {limit} {what}, and the account has {used}"));
        }
    }
    errors.into_result()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::billing::plan_limits;

    #[test]
    fn every_limit_counts_but_the_messages() {
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
