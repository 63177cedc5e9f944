//! Conditions on contacts in SQL, and which contacts belong to a segment. Below contacts, segments and campaigns, which
//! all select contacts by them.

mod membership;
mod phone_zones;
mod tree;

pub(crate) use membership::{
    BoundFilters, CONDITIONS, RuleRow, SegmentRule, has_conditions, is_member, matches, member_count, stored_filters,
};
pub(crate) use tree::{Access, LOOKUP_PLANS, SET_PLANS};

/// Whether contact `c` of account `$1` must not be written to: it opted out, or another contact of the same person did.
/// `claim_due.sql` and others spell out the same.
pub(crate) const HAS_OPTED_OUT: &str = "(c.opted_out_at IS NOT NULL
    OR (c.same_person_as IS NOT NULL AND same_person_opted_out($1, c.same_person_as)))";
