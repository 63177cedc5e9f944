//! Exports of a contact: a file with all that an account holds of one person, as gzip of JSON lines.
//!
//! Owns the receipts of exports and the worker that writes their files. Does not own the rows that it exports, nor the
//! form of the files (`retention::ArchiveStorage`).

mod ports;
mod service;
#[cfg(test)]
mod tests;
mod worker;

use time::{Duration, OffsetDateTime};

pub use ports::*;
pub use service::{ContactExportError, ContactExports};
pub use worker::ContactExporter;

use crate::shared::{ContactId, ExportId, string_enum};

/// How long an export is stored after its request.
pub const EXPORT_KEPT_FOR: Duration = Duration::days(7);

string_enum! {
    /// Whether the file of an export is written.
    ExportState {
        /// The file is being written.
        Running = "running",
        /// The file can be read.
        Done = "done",
    }
}

/// The receipt of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContactExport {
    pub id: ExportId,
    pub contact_id: ContactId,
    pub state: ExportState,
    pub requested_at: OffsetDateTime,
    pub expires_at: OffsetDateTime,
}
