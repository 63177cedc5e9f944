//! Retention: how long an account keeps its rows and files, and the archives of the sends of ended campaigns.
//!
//! Owns the terms, the runs of the worker that removes what is over its term, and the files into which sends go first.
//! Does not own the operator's terms, which remove whole partitions (`docs/decisions/0072-retention.md`).

mod archive;
mod archiver;
mod ports;
mod service;
mod terms;
#[cfg(test)]
pub(crate) mod tests;
mod worker;

pub use archive::{ArchiveCount, ArchiveFile, ArchivedSend, FileLines, StoredArchive, without_contact};
pub use archiver::Archiver;
pub use ports::*;
pub use service::{ArchiveError, Archives, OpenArchive, Retention, RetentionError, RetentionReport};
pub use terms::{NOTICE, RetentionBounds, RetentionInput, RetentionKind, RetentionTerms, Term};
pub use worker::RetentionWorker;
