//! Deterministic ids: UUIDs of version 7 (sorted by time) whose other bits are derived from what they identify, so a
//! repeated write yields the same row.

use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use uuid::{Builder, Uuid};

/// The id of the row that the relay writes for an outbox event. Ids of one millisecond sort by `seq`.
pub(crate) fn outbox_row_id(seq: i64, at: OffsetDateTime) -> Uuid {
    let [a, b, c, d, e, f, g, h] = seq.to_be_bytes();
    // The first bytes are partly overwritten by the version and the variant.
    Builder::from_unix_timestamp_millis(milliseconds(at), &[0, a, 0, b, c, d, e, f, g, h]).into_uuid()
}

/// The id of one item of an outbox event. Ids of one millisecond sort by `seq`, then by item.
pub(crate) fn outbox_item_id(seq: i64, index: usize, at: OffsetDateTime) -> Uuid {
    // Five bytes of `seq` and three of the index: neither can overflow in practice.
    let [_, _, _, d, e, f, g, h] = seq.to_be_bytes();
    let [_, i, j, k] = u32::try_from(index).unwrap_or(u32::MAX).to_be_bytes();
    Builder::from_unix_timestamp_millis(milliseconds(at), &[0, d, 0, e, f, g, h, i, j, k]).into_uuid()
}

/// The id of a tag that an import creates.
pub(crate) fn imported_tag_id(account: Uuid, name: &str, at: OffsetDateTime) -> Uuid {
    hashed_id(account, name.as_bytes(), at)
}

/// The id of the automatic reply to a message.
pub(crate) fn reply_id(message: Uuid, at: OffsetDateTime) -> Uuid {
    hashed_id(message, b"reply", at)
}

fn hashed_id(owner: Uuid, name: &[u8], at: OffsetDateTime) -> Uuid {
    let hash = Sha256::new()
        .chain_update(owner.as_bytes())
        .chain_update(name)
        .finalize();
    let mut bytes = [0; 10];
    for (byte, hashed) in bytes.iter_mut().zip(hash) {
        *byte = hashed;
    }
    Builder::from_unix_timestamp_millis(milliseconds(at), &bytes).into_uuid()
}

/// The time with which an id begins, whatever made it.
pub(crate) fn time_of(id: Uuid) -> OffsetDateTime {
    let milliseconds = i128::try_from(id.as_u128() >> 80).unwrap_or_default();
    OffsetDateTime::from_unix_timestamp_nanos(milliseconds * 1_000_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn milliseconds(at: OffsetDateTime) -> u64 {
    u64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn outbox_row_ids_sort_by_time_then_seq() {
        let at = datetime!(2026-03-01 12:00 UTC);
        let ids: Vec<Uuid> = [1, 2, 255, 256, 1 << 40].map(|seq| outbox_row_id(seq, at)).to_vec();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        assert!(
            ids.iter()
                .all(|id| *id < outbox_row_id(0, at + time::Duration::MILLISECOND))
        );
        assert_eq!(ids[0].get_version_num(), 7);
    }

    #[test]
    fn outbox_item_ids_sort_by_event_then_item() {
        let at = datetime!(2026-03-01 12:00 UTC);
        let items = [
            (1, 0),
            (1, 1),
            (1, 256),
            (1, 70_000),
            (2, 0),
            (1 << 33, 0),
            (1 << 33, 5),
        ];
        let ids: Vec<Uuid> = items
            .iter()
            .map(|&(seq, index)| outbox_item_id(seq, index, at))
            .collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    }

    #[test]
    fn time_of_an_id_is_its_first_48_bits() {
        let at = datetime!(2026-03-01 12:00:00.123 UTC);
        assert_eq!(time_of(outbox_row_id(7, at)), at);
        assert_eq!(time_of(Uuid::nil()), OffsetDateTime::UNIX_EPOCH);
        assert_eq!(time_of(Uuid::max()), OffsetDateTime::UNIX_EPOCH);
    }

    #[test]
    fn imported_tag_id_depends_on_account_and_name() {
        let at = datetime!(2026-03-01 12:00 UTC);
        let tag = imported_tag_id(Uuid::from_u128(1), "vip", at);
        assert_eq!(tag, imported_tag_id(Uuid::from_u128(1), "vip", at));
        assert_ne!(tag, imported_tag_id(Uuid::from_u128(2), "vip", at));
    }
}
