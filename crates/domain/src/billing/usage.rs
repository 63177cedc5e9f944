//! How much of a plan an account uses.

use schemars::JsonSchema;
use serde::Serialize;

use super::PlanLimits;
use crate::shared::FieldErrors;

/// What an account has and uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Usage {
    /// How many contacts it has.
    #[schemars(example = 1840)]
    pub contacts: i64,
    /// How many outbound messages it sent in this calendar month (UTC).
    #[schemars(example = 920)]
    pub messages: i64,
    /// How many automations it has.
    #[schemars(example = 2)]
    pub automations: i64,
    /// How many members its team has.
    #[schemars(example = 3)]
    pub team: i64,
    /// How many WhatsApp numbers it has connected.
    #[schemars(example = 1)]
    pub whatsapp: i64,
}

/// What of the usage is beyond a plan's limits; messages begin anew every month and never are.
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
