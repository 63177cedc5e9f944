//! WhatsApp's user ids of a contact. Each business portfolio gets its own id of a person, so an id is only used from the
//! numbers of the portfolio that reported it.

use time::OffsetDateTime;

use crate::shared::redacted_debug;

/// The scope of an id that no number reported.
pub const UNKNOWN_SCOPE: &str = "unknown";

/// WhatsApp's user id of a contact for one portfolio.
#[derive(Clone, PartialEq, Eq)]
pub struct ScopedUserId {
    /// The portfolio of the number that reported the id, or its WhatsApp account while the portfolio is not known.
    pub scope: String,
    pub user_id: String,
    /// The id that is valid for all portfolios of a parent business.
    pub parent_user_id: Option<String>,
    pub username: Option<String>,
    pub first_seen_at: OffsetDateTime,
    pub last_seen_at: OffsetDateTime,
}

redacted_debug!(ScopedUserId {
    scope,
    first_seen_at,
    last_seen_at
});
