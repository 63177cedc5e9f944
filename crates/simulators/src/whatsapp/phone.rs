//! WhatsApp's ids of phone numbers: without the Brazilian ninth digit in the area codes from 31 on.

/// The `wa_id` of a dialled number. Brazilian mobile numbers have the ninth digit in area codes below 31 and lose it
/// from 31 on. The id of every other number is its digits.
pub fn wa_id(dialled: &str) -> String {
    let digits: String = dialled.chars().filter(char::is_ascii_digit).collect();
    let Some(national) = digits.strip_prefix("55") else {
        return digits;
    };
    let Some((area, subscriber)) = national.split_at_checked(2) else {
        return digits;
    };
    let has_ninth_digit = area < "31";
    match (subscriber.len(), subscriber.strip_prefix('9')) {
        (9, Some(short)) if !has_ninth_digit => format!("55{area}{short}"),
        (8, _) if has_ninth_digit && subscriber.starts_with(['6', '7', '8', '9']) => format!("55{area}9{subscriber}"),
        _ => digits,
    }
}

/// Deterministic hash (FNV-1a) of a recipient. Selects the recipients who never read or fail, and the jitter.
pub(super) fn hash(recipient: &str, purpose: &str) -> u64 {
    let bytes = recipient.bytes().chain(purpose.bytes());
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The multiplication only mixes upwards. Fold the high half down so that a remainder depends on all bits.
    hash ^= hash >> 32;
    hash
}
