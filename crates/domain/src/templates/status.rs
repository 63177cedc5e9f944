//! What the platform thinks of a template, and which command leads where.

use crate::shared::string_enum;

string_enum! {
    /// The platform's review of a template.
    MetaStatus {
        /// Not submitted in its present form.
        Draft = "draft",
        /// Submitted, no review yet.
        Pending = "pending",
        /// May be sent.
        Approved = "approved",
        /// Refused; the reason is kept.
        Rejected = "rejected",
        /// Stopped for a while, for its quality.
        Paused = "paused",
        /// Stopped for good.
        Disabled = "disabled",
    }
}

/// What can happen to a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateCommand {
    /// Its content changes.
    Edit,
    /// It goes to the platform.
    Submit,
    /// The platform has spoken.
    Review(MetaStatus),
}

/// Where a command leads; the error says, for the caller, why it does not.
pub fn transition(status: MetaStatus, command: TemplateCommand) -> Result<MetaStatus, &'static str> {
    use MetaStatus::{Approved, Disabled, Draft, Paused, Pending, Rejected};
    match (command, status) {
        (TemplateCommand::Edit, Pending) => Err("does not allow changes while WhatsApp reviews the template"),
        (TemplateCommand::Edit, Draft | Approved | Rejected | Paused | Disabled) => Ok(Draft),
        (TemplateCommand::Submit, Draft | Rejected) => Ok(Pending),
        (TemplateCommand::Submit, Pending) => Err("is already submitted"),
        (TemplateCommand::Submit, Approved) => Err("is already approved"),
        (TemplateCommand::Submit, Paused | Disabled) => {
            Err("is paused or disabled by WhatsApp: change the template before submitting it")
        }
        // A draft has changed since the submission: the review concerns other content.
        (TemplateCommand::Review(_), Draft) => Err("was changed since it was submitted"),
        (TemplateCommand::Review(review), Pending | Approved | Rejected | Paused | Disabled) => Ok(review),
    }
}

/// The status that an event of the platform's template callback means; none for events that change nothing for us.
pub fn review_status(event: &str) -> Option<MetaStatus> {
    match event {
        "APPROVED" | "REINSTATED" => Some(MetaStatus::Approved),
        "REJECTED" => Some(MetaStatus::Rejected),
        "PAUSED" => Some(MetaStatus::Paused),
        "DISABLED" | "DELETED" => Some(MetaStatus::Disabled),
        "PENDING" | "IN_APPEAL" => Some(MetaStatus::Pending),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_transitions_match_the_table() {
        let review = TemplateCommand::Review(MetaStatus::Approved);
        let row = |command| {
            let cell = |&status| transition(status, command).map_or("-", MetaStatus::as_str);
            MetaStatus::ALL.iter().map(cell).collect::<Vec<_>>().join(" ")
        };
        // From:                                   draft   pending  approved rejected paused   disabled
        assert_eq!(row(TemplateCommand::Edit), "draft - draft draft draft draft");
        assert_eq!(row(TemplateCommand::Submit), "pending - - pending - -");
        assert_eq!(row(review), "- approved approved approved approved approved");
    }

    #[test]
    fn unknown_review_events_are_ignored() {
        assert_eq!(review_status("FLAGGED"), None);
        assert_eq!(review_status("REINSTATED"), Some(MetaStatus::Approved));
    }
}
