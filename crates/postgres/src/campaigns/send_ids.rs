//! Ranges of send ids. The id of a send begins with the time of its campaign's freeze (SQL function `send_id`), so a
//! range of ids selects the partitions that a statement reads.
//!
//! Every statement on `campaign_sends` bounds the ids that it reads. A statement that runs often binds the bounds:
//! PostgreSQL then skips the other partitions when it starts the statement, also under a generic plan.

use time::OffsetDateTime;
use uuid::Uuid;

use crate::partitions::first_id;

/// The sends of campaign `$2` after contact `$3`, for the order `campaign_id, contact_id`. The campaign is a range of
/// one, because an equality is no part of an order: by the contact alone, the planner may read the index on the
/// account's contacts, with the sends of all campaigns.
pub(super) const AFTER_CONTACT: &str = "(campaign_id, contact_id) > ($2, $3) AND campaign_id <= $2";

/// The smallest and the greatest id that a statement may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendIdRange {
    pub(super) first: Uuid,
    pub(super) last: Uuid,
}

/// The bits after the time.
const HASH_BITS: u128 = (1 << 80) - 1;

impl SendIdRange {
    /// The ids of the campaign that has a send with this id.
    pub(super) fn around(id: Uuid) -> Self {
        Self {
            first: Uuid::from_u128(id.as_u128() & !HASH_BITS),
            last: Uuid::from_u128(id.as_u128() | HASH_BITS),
        }
    }

    /// The ids of a campaign's sends. Without the time of the freeze: all ids.
    pub(super) fn of_campaign(frozen_at: Option<OffsetDateTime>) -> Self {
        match frozen_at.map(first_id) {
            Some(first) => Self::around(first),
            None => Self {
                first: Uuid::nil(),
                last: Uuid::max(),
            },
        }
    }
}

/// The smallest of these ids; without ids the greatest possible one. A statement that looks sends up by their ids binds
/// it (`s.id >= $n`): PostgreSQL skips earlier partitions when it starts the statement, and for each id all but one. A
/// greatest id as well would let the planner expect few sends in the range, and read the range instead of the ids.
pub(super) fn smallest<'a>(ids: impl IntoIterator<Item = &'a Uuid>) -> Uuid {
    ids.into_iter().min().copied().unwrap_or(Uuid::max())
}

/// `id_of_campaign!("s.id")`: the condition that bounds a column with ids of sends to those of campaign `$2` of account
/// `$1`. For statements that run seldom: PostgreSQL skips the other partitions when it executes them.
macro_rules! id_of_campaign {
    ($column:literal) => {
        concat!(
            $column,
            " BETWEEN (SELECT first_id(frozen_at) FROM campaigns WHERE account_id = $1 AND id = $2)
               AND (SELECT last_id(frozen_at) FROM campaigns WHERE account_id = $1 AND id = $2)"
        )
    };
}

pub(crate) use id_of_campaign;

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn range_of_a_campaign_is_one_millisecond() {
        let range = SendIdRange::of_campaign(Some(datetime!(2026-11-01 00:00 UTC)));
        assert_eq!(range.first.to_string(), "01a19467-e800-0000-0000-000000000000");
        assert_eq!(range.last.to_string(), "01a19467-e800-ffff-ffff-ffffffffffff");
        assert_eq!(SendIdRange::around(range.last), range);
        let all = SendIdRange::of_campaign(None);
        assert_eq!((all.first, all.last), (Uuid::nil(), Uuid::max()));
    }

    #[test]
    fn smallest_of_no_ids_selects_nothing() {
        let ids = [5, 2, 9].map(Uuid::from_u128);
        assert_eq!(smallest(&ids), ids[1]);
        assert_eq!(smallest(&[]), Uuid::max());
    }
}
