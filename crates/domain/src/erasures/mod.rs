//! Erasures: an account removes what it stores of a person, and all copies of it.
//!
//! Owns the receipts of erasures, the order of the steps, and the worker that takes them. Does not own the rows that the
//! steps empty, nor the opt-outs that outlive a contact (`contacts::IdentifierHasher`). The form of archives
//! is that of `retention`. `contact_exports` reads the same tables and files; `docs/decisions/0073-erasure.md` lists them.

mod archives;
mod marks;
mod ports;
mod records;
mod service;
mod steps;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeMap;

use time::OffsetDateTime;

pub use archives::ArchiveEraser;
pub use marks::PersonMarks;
pub use ports::*;
pub use records::*;
pub use service::{ErasureError, Erasures, MAX_REASON};
pub use steps::ErasureStep;
pub use worker::ErasureWorker;

use crate::shared::{ContactId, ErasureId, string_enum};

string_enum! {
    /// Whether everything is removed.
    ErasureState {
        /// The contact is in no list; copies of its data are being removed.
        Running = "running",
        /// Nothing of the person is stored any more.
        Done = "done",
    }
}

/// How many rows and files were removed or emptied, by kind.
pub type RemovedCounts = BTreeMap<String, i64>;

/// The receipt of an erasure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Erasure {
    pub id: ErasureId,
    pub contact_id: ContactId,
    pub state: ErasureState,
    pub requested_at: OffsetDateTime,
    pub finished_at: Option<OffsetDateTime>,
    pub removed: RemovedCounts,
}
