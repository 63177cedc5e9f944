//! The state machine of a template's review.

use crate::messaging::MetaStatus;

/// A command of the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateCommand {
    /// A member changes the content.
    Edit,
    /// A member submits the template to WhatsApp.
    Submit,
    /// WhatsApp reports a review status.
    Review(MetaStatus),
}

/// The status after a command. The error says for the caller why the command is not allowed.
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
}
