//! Meta's words for the review of a template.

use recado_domain::messaging::MetaStatus;

/// The status that a word means, in a callback or in the list of templates. None if it changes no status here.
pub(super) fn review_status(word: &str) -> Option<MetaStatus> {
    match word {
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
    fn unknown_words_of_reviews_are_ignored() {
        assert_eq!(review_status("FLAGGED"), None);
        assert_eq!(review_status("REINSTATED"), Some(MetaStatus::Approved));
    }
}
