//! States of an invite, and the decision about its acceptance.

use time::OffsetDateTime;

use crate::shared::string_enum;

string_enum! {
    /// Status of an invite.
    InviteStatus {
        /// Can be accepted until it expires.
        Pending = "pending",
        /// Accepted: the invited user became a member.
        Accepted = "accepted",
        /// The invited user tried to accept it after it expired.
        Expired = "expired",
        /// Revoked by a member, or replaced by a later invite.
        Revoked = "revoked",
    }
}

/// A command that changes the status of an invite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InviteCommand {
    Accept,
    Expire,
    Revoke,
}

impl InviteCommand {
    /// Every command, for tables and tests.
    pub const ALL: [Self; 3] = [Self::Accept, Self::Expire, Self::Revoke];
}

/// Returns the status after a command, or `None` if the invite is no longer pending.
pub fn transition(status: InviteStatus, command: InviteCommand) -> Option<InviteStatus> {
    use InviteStatus::{Accepted, Expired, Pending, Revoked};
    match (status, command) {
        (Pending, InviteCommand::Accept) => Some(Accepted),
        (Pending, InviteCommand::Expire) => Some(Expired),
        (Pending, InviteCommand::Revoke) => Some(Revoked),
        (Accepted | Expired | Revoked, InviteCommand::Accept | InviteCommand::Expire | InviteCommand::Revoke) => None,
    }
}

/// The facts on which an acceptance is decided, read in one statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptFacts {
    pub status: InviteStatus,
    pub expires_at: OffsetDateTime,
    /// Current time of the clock that also set `expires_at`.
    pub now: OffsetDateTime,
    /// The invited e-mail address.
    pub invited: String,
    /// E-mail address of the accepting user.
    pub presented_by: String,
    /// Whether the accepting user already is a member.
    pub is_member: bool,
}

/// Decision about an acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptDecision {
    /// Refused: no pending invite.
    Unknown,
    /// Refused: the invite has expired and gets this status.
    Expire(InviteStatus),
    /// Refused: the invite is for another address and stays pending.
    OtherAddress,
    /// Refused: the user already is a member; the invite stays pending.
    AlreadyMember,
    /// The user joins, and the invite gets this status.
    Accept(InviteStatus),
}

/// Decides an acceptance. Checks run in the published order; the first failure decides.
pub fn decide_accept(facts: &AcceptFacts) -> AcceptDecision {
    let Some(accepted) = transition(facts.status, InviteCommand::Accept) else {
        return AcceptDecision::Unknown;
    };
    if facts.expires_at <= facts.now {
        let expired = transition(facts.status, InviteCommand::Expire);
        return expired.map_or(AcceptDecision::Unknown, AcceptDecision::Expire);
    }
    if !same_address(&facts.invited, &facts.presented_by) {
        return AcceptDecision::OtherAddress;
    }
    if facts.is_member {
        return AcceptDecision::AlreadyMember;
    }
    AcceptDecision::Accept(accepted)
}

/// Compares two addresses without regard to case and surrounding whitespace.
fn same_address(a: &str, b: &str) -> bool {
    a.trim().to_lowercase() == b.trim().to_lowercase()
}

#[cfg(test)]
mod tests {
    use time::Duration;
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    fn facts(status: InviteStatus, left: Duration) -> AcceptFacts {
        AcceptFacts {
            status,
            expires_at: NOW + left,
            now: NOW,
            invited: "bia@example.com".into(),
            presented_by: "bia@example.com".into(),
            is_member: false,
        }
    }

    #[test]
    fn invite_transition_matches_the_table() {
        let row = |command| {
            let cell = |&status| transition(status, command).map_or("-", InviteStatus::as_str);
            InviteStatus::ALL.iter().map(cell).collect::<Vec<_>>().join(" ")
        };
        let rows = InviteCommand::ALL.map(row);
        // From:           pending  accepted expired revoked
        assert_eq!(
            rows,
            ["accepted - - -", "expired - - -", "revoked - - -"],
            "accept, expire, revoke"
        );
    }

    #[test]
    fn accept_decision_matches_the_table() {
        use AcceptDecision::{Accept, AlreadyMember, Expire, OtherAddress, Unknown};
        for &status in InviteStatus::ALL {
            for late in [false, true] {
                for other in [false, true] {
                    for is_member in [false, true] {
                        let left = if late { -Duration::SECOND } else { Duration::SECOND };
                        let mut facts = facts(status, left);
                        facts.is_member = is_member;
                        if other {
                            facts.presented_by = "caio@example.com".into();
                        }
                        let expected = match (status == InviteStatus::Pending, late, other, is_member) {
                            (false, ..) => Unknown,
                            (true, true, ..) => Expire(InviteStatus::Expired),
                            (true, false, true, _) => OtherAddress,
                            (true, false, false, true) => AlreadyMember,
                            (true, false, false, false) => Accept(InviteStatus::Accepted),
                        };
                        assert_eq!(decide_accept(&facts), expected, "{facts:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn invite_cannot_be_accepted_at_its_expiry_time() {
        let decide = |left| decide_accept(&facts(InviteStatus::Pending, left));
        assert_eq!(
            decide(Duration::MICROSECOND),
            AcceptDecision::Accept(InviteStatus::Accepted)
        );
        assert_eq!(decide(Duration::ZERO), AcceptDecision::Expire(InviteStatus::Expired));
    }

    #[test]
    fn same_address_ignores_case_and_whitespace() {
        for (invited, presented_by, same) in [
            ("BIA@Example.com", "bia@example.COM", true),
            (" bia@example.com", "bia@example.com\n", true),
            ("AÇÃO@example.com", "ação@example.com", true),
            ("bia@example.com", "bia@example.co", false),
            ("bia@example.com", "b.ia@example.com", false),
        ] {
            assert_eq!(same_address(invited, presented_by), same, "{invited} {presented_by}");
        }
    }
}
