//! Counts security events: callers who were refused.

use metrics::counter;

use crate::error::RefusalReason;

const REFUSALS: &str = "recado_refusals_total";

/// Creates every series, so that the first refusal is an increase.
pub fn register_refusals() {
    for reason in RefusalReason::ALL {
        counter!(REFUSALS, "reason" => reason.as_str()).absolute(0);
    }
}

/// Counts a refusal. Refusals are rare, so no handle is stored.
pub fn count_refusal(reason: RefusalReason) {
    counter!(REFUSALS, "reason" => reason.as_str()).increment(1);
}
