//! State machine of a file that WhatsApp stores: when it is fetched again, and how its fetch ends.

use serde_json::json;
use time::{Duration, OffsetDateTime};

use super::{FileFailure, MessageFileType};
use crate::shared::{Event, NotificationDraft, NotificationKind};

/// How long a claimed file belongs to its worker. After it, another worker may claim the file.
pub const FETCH_LEASE: Duration = Duration::seconds(60);

/// How long after its message a file is fetched. WhatsApp keeps files for seven days.
pub const FETCH_FOR: Duration = Duration::days(7);

/// The delays after the first failed attempts, and after all later ones.
const DELAYS: [Duration; 5] = [
    Duration::seconds(5),
    Duration::seconds(30),
    Duration::minutes(2),
    Duration::minutes(10),
    Duration::hours(1),
];

/// The delay after the file store failed. It does not count as a failed attempt.
const STORE_DELAY: Duration = Duration::seconds(30);

/// So many contents with a wrong hash end the fetch.
const MAX_MISMATCHES: u16 = 3;

/// What decides how a fetch continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchFacts {
    /// The failed attempts so far.
    pub attempts: u16,
    /// How many of them had a content with a wrong hash.
    pub mismatches: u16,
    /// When the message was written.
    pub written_at: OffsetDateTime,
}

/// The content of a stored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredContent {
    pub size: u64,
    pub sha256: [u8; 32],
    /// None if the content is of no known type.
    pub content_type: Option<MessageFileType>,
}

/// How one attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchOutcome {
    /// The file is stored as a whole, with the hash that WhatsApp reports.
    Stored(StoredContent),
    /// WhatsApp did not give the file.
    Unavailable,
    /// The content does not have the hash that WhatsApp reports.
    Mismatch,
    TooLarge,
    /// The egress rules forbid the address.
    Refused,
    /// The address is on a host that must not receive the token.
    Host,
    /// The file store failed.
    StoreFailed,
}

/// How the fetch of a file continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchDecision {
    Ready(StoredContent),
    Retry {
        due_at: OffsetDateTime,
        attempts: u16,
        mismatches: u16,
    },
    Failed(FileFailure),
    Expired,
}

/// Whether the time to fetch the file of a message is over.
pub fn is_over(written_at: OffsetDateTime, now: OffsetDateTime) -> bool {
    now >= written_at.saturating_add(FETCH_FOR)
}

/// Decides after an attempt.
pub fn decide(facts: FetchFacts, outcome: FetchOutcome, now: OffsetDateTime) -> FetchDecision {
    let mismatches = facts.mismatches.saturating_add(1);
    match outcome {
        FetchOutcome::Stored(content) => FetchDecision::Ready(content),
        FetchOutcome::TooLarge => FetchDecision::Failed(FileFailure::TooLarge),
        FetchOutcome::Refused => FetchDecision::Failed(FileFailure::Refused),
        FetchOutcome::Host => FetchDecision::Failed(FileFailure::Host),
        FetchOutcome::Mismatch if mismatches >= MAX_MISMATCHES => FetchDecision::Failed(FileFailure::HashMismatch),
        FetchOutcome::Mismatch => retry(FetchFacts { mismatches, ..facts }, now),
        FetchOutcome::Unavailable => retry(facts, now),
        FetchOutcome::StoreFailed if is_over(facts.written_at, now) => FetchDecision::Expired,
        FetchOutcome::StoreFailed => FetchDecision::Retry {
            due_at: now.saturating_add(STORE_DELAY),
            attempts: facts.attempts,
            mismatches: facts.mismatches,
        },
    }
}

/// The next attempt. The last one is at the end of `FETCH_FOR`, and then finds the time over.
fn retry(facts: FetchFacts, now: OffsetDateTime) -> FetchDecision {
    let ends_at = facts.written_at.saturating_add(FETCH_FOR);
    if now >= ends_at {
        return FetchDecision::Expired;
    }
    let [.., longest] = DELAYS;
    let delay = DELAYS.get(usize::from(facts.attempts)).copied().unwrap_or(longest);
    FetchDecision::Retry {
        due_at: now.saturating_add(delay).min(ends_at),
        attempts: facts.attempts.saturating_add(1),
        mismatches: facts.mismatches,
    }
}

/// The notification of an account whose files were lost.
pub fn lost_files_event(count: u64) -> Event {
    let files = if count == 1 {
        "1 file".to_owned()
    } else {
        format!("{count} files")
    };
    Event::Notification(NotificationDraft {
        kind: NotificationKind::Warning,
        title: "Files of messages were lost".to_owned(),
        message: format!(
            "{files} that contacts sent could not be fetched from WhatsApp. The messages are stored; their `media` says why."
        ),
        data: json!({ "lost": count }),
    })
}
