//! Who may change whom: only owners and admins anybody, only owners an owner, and never the last one.

use crate::shared::Role;

/// What is to become of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// They get this role.
    Role(Role),
    /// They leave.
    Removal,
}

/// What a change of a member is decided on, read in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberFacts {
    /// The role of whoever asks; none: they are no member any more.
    pub actor: Option<Role>,
    /// The role of whoever it is about; none: they are no member.
    pub target: Option<Role>,
    /// Whether the account has an owner beside whoever it is about.
    pub other_owners: bool,
}

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStep {
    /// Nothing: it is so already.
    Nothing,
    /// This role, instead of that one.
    SetRole {
        /// Until now.
        from: Role,
        /// From now on.
        to: Role,
    },
    /// The membership ends.
    Remove {
        /// The role that ends with it.
        from: Role,
    },
}

/// Why a member is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberRefusal {
    /// There is no such member.
    Unknown,
    /// Not by this caller.
    NotPermitted,
    /// The account would have no owner.
    LastOwner,
}

/// Decides a change of a member: existence, then permission, then the last owner. Whoever may not give the wanted role to
/// anybody was sent away before anything was looked up.
pub fn decide(facts: MemberFacts, change: MemberChange) -> Result<MemberStep, MemberRefusal> {
    let Some(from) = facts.target else {
        return Err(MemberRefusal::Unknown);
    };
    let new_role = match change {
        MemberChange::Role(role) => Some(role),
        MemberChange::Removal => None,
    };
    let about_ownership = from == Role::Owner || new_role == Some(Role::Owner);
    if !facts.actor.is_some_and(|actor| permits(actor, about_ownership)) {
        return Err(MemberRefusal::NotPermitted);
    }
    let removes_owner = from == Role::Owner && new_role != Some(Role::Owner);
    if removes_owner && !facts.other_owners {
        return Err(MemberRefusal::LastOwner);
    }
    Ok(match new_role {
        Some(to) if to == from => MemberStep::Nothing,
        Some(to) => MemberStep::SetRole { from, to },
        None => MemberStep::Remove { from },
    })
}

/// Parses a role of the input. The error is the message of the field.
pub(super) fn parse_role(value: Option<&str>) -> Result<Role, &'static str> {
    let value = value.ok_or("is required")?;
    value.parse().map_err(|_| "must be owner, admin, member or viewer")
}

/// Whether the role may give, also by an invite, what is asked for.
pub(super) fn permits(actor: Role, about_ownership: bool) -> bool {
    actor == Role::Owner || (actor.manages() && !about_ownership)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(actor: Option<Role>, target: Option<Role>, change: MemberChange, other_owners: bool) -> &'static str {
        let facts = MemberFacts {
            actor,
            target,
            other_owners,
        };
        match decide(facts, change) {
            Ok(MemberStep::Nothing) => "same",
            Ok(MemberStep::SetRole { from, to }) => {
                assert_eq!((Some(from), MemberChange::Role(to)), (target, change));
                "set"
            }
            Ok(MemberStep::Remove { from }) => {
                assert_eq!((Some(from), MemberChange::Removal), (target, change));
                "gone"
            }
            Err(MemberRefusal::Unknown) => "404",
            Err(MemberRefusal::NotPermitted) => "401",
            Err(MemberRefusal::LastOwner) => "last",
        }
    }

    /// The changes in the order owner, admin, member, viewer, removal.
    fn row(actor: Option<Role>, target: Option<Role>, other_owners: bool) -> String {
        let roles = Role::ALL.map(MemberChange::Role);
        let changes = roles.into_iter().chain([MemberChange::Removal]);
        changes
            .map(|change| outcome(actor, target, change, other_owners))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn member_change_matches_the_table_of_roles() {
        use Role::{Admin, Member, Owner, Viewer};
        // Actor, target, and what comes of: owner, admin, member, viewer, removal.
        let table = [
            (Owner, Owner, "same set set set gone"),
            (Owner, Admin, "set same set set gone"),
            (Owner, Member, "set set same set gone"),
            (Owner, Viewer, "set set set same gone"),
            (Admin, Owner, "401 401 401 401 401"),
            (Admin, Admin, "401 same set set gone"),
            (Admin, Member, "401 set same set gone"),
            (Admin, Viewer, "401 set set same gone"),
            (Member, Owner, "401 401 401 401 401"),
            (Member, Admin, "401 401 401 401 401"),
            (Member, Member, "401 401 401 401 401"),
            (Member, Viewer, "401 401 401 401 401"),
            (Viewer, Owner, "401 401 401 401 401"),
            (Viewer, Admin, "401 401 401 401 401"),
            (Viewer, Member, "401 401 401 401 401"),
            (Viewer, Viewer, "401 401 401 401 401"),
        ];
        assert_eq!(table.len(), Role::ALL.len() * Role::ALL.len());
        for (actor, target, expected) in table {
            assert_eq!(row(Some(actor), Some(target), true), expected, "{actor} on {target}");
            // Without another owner only what takes the owner away is another answer.
            let alone = match (actor, target) {
                (Owner, Owner) => "same last last last last",
                _ => expected,
            };
            assert_eq!(
                row(Some(actor), Some(target), false),
                alone,
                "{actor} on {target} alone"
            );
        }
    }

    #[test]
    fn parse_role_accepts_exact_names_only() {
        for role in Role::ALL {
            assert_eq!(parse_role(Some(role.as_str())), Ok(role));
        }
        for invalid in [None, Some(""), Some("Owner")] {
            assert!(parse_role(invalid).is_err());
        }
    }

    #[test]
    fn member_change_checks_existence_before_permission() {
        for other_owners in [false, true] {
            for actor in Role::ALL.map(Some).into_iter().chain([None]) {
                assert_eq!(row(actor, None, other_owners), "404 404 404 404 404", "{actor:?}");
            }
            for target in Role::ALL {
                assert_eq!(row(None, Some(target), other_owners), "401 401 401 401 401", "{target}");
            }
        }
    }
}
