//! Rules of member changes: owners and admins may change members, only owners may add or change owners, and the last
//! owner stays.

use crate::shared::Role;

/// A requested change of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// Sets this role.
    Role(Role),
    /// Removes the member.
    Removal,
}

/// The facts on which a member change is decided, read in one statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberFacts {
    /// Role of the acting user; `None` if they are no longer a member.
    pub actor: Option<Role>,
    /// Role of the member to change; `None` if they are no member.
    pub target: Option<Role>,
    /// Whether the account has an owner other than the target.
    pub other_owners: bool,
}

/// The change to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStep {
    /// The member already has the role.
    Nothing,
    SetRole {
        from: Role,
        to: Role,
    },
    Remove {
        /// Role of the removed member.
        from: Role,
    },
}

/// Why a member change is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberRefusal {
    /// The target is no member.
    Unknown,
    /// The actor's role does not permit the change.
    NotPermitted,
    /// The account would have no owner.
    LastOwner,
}

/// Decides a member change: checks existence, then permission, then the last owner. The caller has already refused an
/// actor who may not give the requested role to any member.
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

/// Whether an actor may change members or send invites. `about_ownership`: the change adds or changes an owner.
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

    /// Outcomes of the changes to owner, admin, member and viewer, and of the removal.
    fn row(actor: Option<Role>, target: Option<Role>, other_owners: bool) -> String {
        let roles = Role::ALL.iter().copied().map(MemberChange::Role);
        let changes = roles.chain([MemberChange::Removal]);
        changes
            .map(|change| outcome(actor, target, change, other_owners))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn member_change_matches_the_table_of_roles() {
        use Role::{Admin, Member, Owner, Viewer};
        // Actor, target, and the outcomes of: owner, admin, member, viewer, removal.
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
            // Without another owner only changes that remove the owner differ.
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
        for &role in Role::ALL {
            assert_eq!(parse_role(Some(role.as_str())), Ok(role));
        }
        for invalid in [None, Some(""), Some("Owner")] {
            assert!(parse_role(invalid).is_err());
        }
    }

    #[test]
    fn member_change_checks_existence_before_permission() {
        for other_owners in [false, true] {
            for actor in Role::ALL.iter().copied().map(Some).chain([None]) {
                assert_eq!(row(actor, None, other_owners), "404 404 404 404 404", "{actor:?}");
            }
            for &target in Role::ALL {
                assert_eq!(row(None, Some(target), other_owners), "401 401 401 401 401", "{target}");
            }
        }
    }
}
