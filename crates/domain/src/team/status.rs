//! The life of an invite, and what an attempt to accept it comes to.

use time::OffsetDateTime;

use crate::shared::string_enum;

string_enum! {
    /// How an invite stands.
    InviteStatus {
        /// Somebody may accept it, until it expires.
        Pending = "pending",
        /// Somebody did.
        Accepted = "accepted",
        /// Somebody tried after its time.
        Expired = "expired",
        /// It was taken back, or a later one took its place.
        Revoked = "revoked",
    }
}

/// What can happen to an invite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InviteCommand {
    /// The invited person joins.
    Accept,
    /// Its time is over.
    Expire,
    /// It is taken back.
    Revoke,
}

impl InviteCommand {
    /// Every command, for tables and tests.
    pub const ALL: [Self; 3] = [Self::Accept, Self::Expire, Self::Revoke];
}

/// Where a command leads; none: nowhere, the invite is over.
pub fn transition(status: InviteStatus, command: InviteCommand) -> Option<InviteStatus> {
    use InviteStatus::{Accepted, Expired, Pending, Revoked};
    match (status, command) {
        (Pending, InviteCommand::Accept) => Some(Accepted),
        (Pending, InviteCommand::Expire) => Some(Expired),
        (Pending, InviteCommand::Revoke) => Some(Revoked),
        (Accepted | Expired | Revoked, InviteCommand::Accept | InviteCommand::Expire | InviteCommand::Revoke) => None,
    }
}

/// What an attempt to accept is decided on, read in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptFacts {
    /// How the invite stands.
    pub status: InviteStatus,
    /// When it ends.
    pub expires_at: OffsetDateTime,
    /// Now, by the clock that also wrote `expires_at`.
    pub now: OffsetDateTime,
    /// Whom it was made for.
    pub invited: String,
    /// Who presents it.
    pub presented_by: String,
    /// Whether that person is in the account already.
    pub is_member: bool,
}

/// What an attempt to accept comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptDecision {
    /// There is no pending invite.
    Unknown,
    /// Its time is over: it takes this status, and the attempt fails.
    Expire(InviteStatus),
    /// It is somebody else's, and stays theirs.
    OtherAddress,
    /// There is nothing to join, and the invite stays.
    AlreadyMember,
    /// The person joins, and the invite takes this status.
    Accept(InviteStatus),
}

/// Decides an attempt to accept. The first thing that is wrong counts, in the published order.
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
