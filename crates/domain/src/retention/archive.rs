//! The archive of a campaign's sends: one JSON line a send, and the count of the lines that a reader finds.

use serde::{Deserialize, Serialize};
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use crate::campaigns::SendCounts;
use crate::messaging::{AddressKind, Pricing, SendStatus};
use crate::shared::{Amount, ContactId, SendId, redacted_debug, timestamp};

/// A send as its line in an archive shows it.
#[derive(Clone, PartialEq, Serialize)]
pub struct ArchivedSend {
    pub id: SendId,
    /// None: the contact was erased.
    pub contact_id: Option<ContactId>,
    pub status: SendStatus,
    pub address_kind: Option<AddressKind>,
    #[serde(with = "timestamp::option")]
    pub sent_at: Option<OffsetDateTime>,
    #[serde(with = "timestamp::option")]
    pub delivered_at: Option<OffsetDateTime>,
    #[serde(with = "timestamp::option")]
    pub read_at: Option<OffsetDateTime>,
    #[serde(with = "timestamp::option")]
    pub failed_at: Option<OffsetDateTime>,
    pub error_code: Option<i64>,
    pub wa_message_id: Option<String>,
    #[serde(flatten)]
    pub price: ArchivedPrice,
    /// The month whose quota the send used.
    #[serde(skip)]
    pub quota_month: Option<Date>,
}

redacted_debug!(ArchivedSend { id, contact_id, status });

/// What a send cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ArchivedPrice {
    category: Option<String>,
    pricing_type: Option<String>,
    amount: Option<Amount>,
    currency: Option<String>,
}

impl From<Pricing> for ArchivedPrice {
    fn from(pricing: Pricing) -> Self {
        Self {
            category: pricing.category,
            pricing_type: pricing.kind,
            amount: pricing.amount,
            currency: pricing.currency,
        }
    }
}

impl ArchivedSend {
    /// Appends the send's line.
    pub(super) fn write_line(&self, lines: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(&mut *lines, self)?;
        lines.push(b'\n');
        Ok(())
    }
}

/// The part of a line that identifies a person.
#[derive(Deserialize)]
struct PersonalLine {
    contact_id: Option<Uuid>,
    wa_message_id: Option<String>,
}

/// The line of a send to the contact, without what identifies it: the contact's id, and the message id, which contains
/// the number. All else stays as it was written. None: it is the line of another send. Few lines are parsed.
pub fn without_contact(line: &[u8], contact: ContactId) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(line).ok()?;
    let mut buffer = Uuid::encode_buffer();
    let id: &str = contact.0.hyphenated().encode_lower(&mut buffer);
    if !text.contains(id) {
        return None;
    }
    let personal: PersonalLine = serde_json::from_str(text).ok()?;
    if personal.contact_id != Some(contact.0) {
        return None;
    }
    let mut emptied = text.replacen(&format!("\"contact_id\":\"{id}\""), "\"contact_id\":null", 1);
    if let Some(message) = personal.wa_message_id {
        let message = serde_json::to_string(&message).ok()?;
        emptied = emptied.replacen(&format!("\"wa_message_id\":{message}"), "\"wa_message_id\":null", 1);
    }
    Some(emptied.into_bytes())
}

/// The part of a line that is counted.
#[derive(Deserialize)]
struct CountedLine {
    id: Uuid,
    status: SendStatus,
}

/// Splits the bytes of a file into lines, as they are read. Holds one incomplete line in memory.
#[derive(Debug, Default)]
pub struct FileLines {
    /// The bytes after the last end of a line.
    rest: Vec<u8>,
}

/// A line has a few hundred bytes; longer ones were not written here.
const MAX_LINE_BYTES: usize = 64 * 1024;

impl FileLines {
    /// Adds the next bytes, which may begin and end within a line, and calls `each` with every line that is complete.
    /// Returns false for a line that is too long.
    pub fn add(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) -> bool {
        self.rest.extend_from_slice(bytes);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            let is_too_long = self.rest.len() > MAX_LINE_BYTES;
            if is_too_long {
                self.rest.clear();
            }
            return !is_too_long;
        };
        let rest = self.rest.split_off(end.saturating_add(1));
        let complete = std::mem::replace(&mut self.rest, rest);
        complete
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .for_each(&mut each);
        true
    }

    /// Whether the last line is complete.
    pub fn is_complete(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Counts the lines of an archive by status, as they are read.
#[derive(Debug, Default)]
pub struct ArchiveCount {
    lines: FileLines,
    sends: CountedSends,
}

#[derive(Debug, Default)]
struct CountedSends {
    counts: SendCounts,
    last_id: Option<Uuid>,
    /// A line is invalid, or the ids do not ascend: a send is there twice.
    is_damaged: bool,
}

impl ArchiveCount {
    /// Adds the next bytes, which may begin and end within a line.
    pub fn add(&mut self, bytes: &[u8]) {
        let Self { lines, sends } = self;
        sends.is_damaged |= !lines.add(bytes, |line| sends.count(line));
    }

    /// The counts of the whole file. None: the file is damaged.
    pub fn finish(self) -> Option<SendCounts> {
        (!self.sends.is_damaged && self.lines.is_complete()).then_some(self.sends.counts)
    }
}

impl CountedSends {
    fn count(&mut self, line: &[u8]) {
        let Ok(CountedLine { id, status }) = serde_json::from_slice(line) else {
            self.is_damaged = true;
            return;
        };
        self.is_damaged |= self.last_id.is_some_and(|last| id <= last);
        self.last_id = Some(id);
        let counter = match status {
            SendStatus::Pending => &mut self.counts.pending,
            SendStatus::Sent => &mut self.counts.sent,
            SendStatus::Delivered => &mut self.counts.delivered,
            SendStatus::Read => &mut self.counts.read,
            SendStatus::Failed => &mut self.counts.failed,
        };
        *counter = counter.saturating_add(1);
        self.counts.total = self.counts.total.saturating_add(1);
    }
}

/// The bytes of a stored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredArchive {
    pub size: u64,
    pub sha256: [u8; 32],
}

/// A file that was written and read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveFile {
    pub key: Uuid,
    pub stored: StoredArchive,
    pub sends: i64,
    /// The months whose quota the sends used, in order.
    pub months: Vec<Date>,
}
