//! Taking in a file of contacts: every line is checked, good ones are written in batches, bad ones are told by line.
//! `encoding` finds out how the file is written, `sheet` and `objects` what it says, and nothing of it is held longer
//! than a batch.

mod csv;
mod encoding;
mod lines;
mod objects;
mod row;
mod sheet;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::{ContactError, ContactStore, ImportRow, Phone, Upserted};
use crate::shared::{AccountId, Clock, ContactId, FieldErrors, Ids, Tenant};
use encoding::Encoding;
use objects::Objects;
pub(super) use objects::names_of;
pub(super) use row::check_tags;
use sheet::Sheet;

/// How many lines a file may have.
pub const MAX_ROWS: u64 = 1_000_000;

/// How many lines are written together.
const BATCH_ROWS: usize = 1000;

/// How many faults are told.
const ERRORS_TOLD: usize = 100;

/// How a file says what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportFormat {
    /// CSV with a header line: `name` and `phone`, maybe `email` and `tags`; every other column is an attribute.
    Csv,
    /// One JSON object a line, with the fields of a new contact; tags by their names, and every other field that is a
    /// text, a number or a boolean is an attribute.
    JsonLines,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LineError {
    /// The number of the line in the file; the first one (of CSV: the header) is 1.
    #[schemars(example = 7)]
    pub line: u64,
    /// What is wrong with it.
    #[schemars(example = &"phone is not a valid phone number")]
    pub message: String,
}

/// What became of a file: `imported + updated + skipped` is the number of its rows (of CSV the records after the
/// header, else the lines that are not blank).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ImportReport {
    /// How many contacts are new.
    #[schemars(example = 1840)]
    pub imported: u64,
    /// How many rows changed a contact that was there before, or that an earlier row had brought.
    #[schemars(example = 159)]
    pub updated: u64,
    /// How many rows were not taken, because something is wrong with them.
    #[schemars(example = 1)]
    pub skipped: u64,
    /// What is wrong with them: the first 100.
    pub errors: Vec<LineError>,
}

/// A line that was read: a contact, or what is wrong with it.
struct Taken {
    line: u64,
    row: Result<ImportRow, String>,
}

/// What reads the file.
enum Reader {
    Sheet(Box<Sheet>),
    Objects(Objects),
}

impl Reader {
    fn feed(&mut self, text: &[u8]) -> Result<Vec<Taken>, FieldErrors> {
        match self {
            Self::Sheet(sheet) => sheet.feed(text),
            Self::Objects(objects) => Ok(objects.feed(text)),
        }
    }

    fn finish(&mut self) -> Result<Vec<Taken>, FieldErrors> {
        match self {
            Self::Sheet(sheet) => sheet.finish(),
            Self::Objects(objects) => Ok(objects.finish()),
        }
    }
}

/// One file being taken in. Feed it the body as it arrives; memory stays flat.
pub struct Import {
    store: Arc<dyn ContactStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    account: AccountId,
    encoding: Encoding,
    reader: Reader,
    batch: Vec<ImportRow>,
    positions: HashMap<Phone, usize>,
    rows: u64,
    report: ImportReport,
}

impl Import {
    /// An import into the tenant's account.
    pub fn new(
        store: Arc<dyn ContactStore>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        tenant: &Tenant,
        format: ImportFormat,
    ) -> Self {
        let reader = match format {
            ImportFormat::Csv => Reader::Sheet(Box::default()),
            ImportFormat::JsonLines => Reader::Objects(Objects::default()),
        };
        Self {
            store,
            clock,
            ids,
            account: tenant.account_id,
            encoding: Encoding::default(),
            reader,
            batch: Vec::with_capacity(BATCH_ROWS),
            positions: HashMap::with_capacity(BATCH_ROWS),
            rows: 0,
            report: ImportReport::default(),
        }
    }

    /// Takes the next piece of the file.
    pub async fn feed(&mut self, piece: &[u8]) -> Result<(), ContactError> {
        let text = self.encoding.feed(piece);
        for taken in self.reader.feed(&text)? {
            self.take(taken).await?;
        }
        Ok(())
    }

    /// Ends the file and writes what is left.
    pub async fn finish(mut self) -> Result<ImportReport, ContactError> {
        let text = self.encoding.finish();
        let mut last = self.reader.feed(&text)?;
        last.extend(self.reader.finish()?);
        for taken in last {
            self.take(taken).await?;
        }
        self.flush().await?;
        Ok(self.report)
    }

    async fn take(&mut self, taken: Taken) -> Result<(), ContactError> {
        self.rows += 1;
        let row = if self.rows > MAX_ROWS {
            Err(format!("line is beyond the limit of {MAX_ROWS} rows"))
        } else {
            taken.row
        };
        match row {
            Ok(row) => self.keep(row),
            Err(message) => self.skip(taken.line, message),
        }
        if self.batch.len() >= BATCH_ROWS {
            self.flush().await
        } else {
            Ok(())
        }
    }

    /// A number that the batch has already is an update of it: no batch writes one contact twice.
    fn keep(&mut self, row: ImportRow) {
        let Some(phone) = row.contact.phone.clone() else { return };
        match self
            .positions
            .get(&phone)
            .and_then(|position| self.batch.get_mut(*position))
        {
            Some(earlier) => {
                self.report.updated += 1;
                row::merge(earlier, row);
            }
            None => {
                self.positions.insert(phone, self.batch.len());
                self.batch.push(row);
            }
        }
    }

    fn skip(&mut self, line: u64, message: String) {
        self.report.skipped += 1;
        if self.report.errors.len() < ERRORS_TOLD {
            self.report.errors.push(LineError { line, message });
        }
    }

    async fn flush(&mut self) -> Result<(), ContactError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let ids: Vec<ContactId> = self.batch.iter().map(|_| self.ids.next().into()).collect();
        let written = self
            .store
            .upsert(self.account, &ids, &self.batch, self.clock.now())
            .await?;
        let Upserted { imported, updated } = written;
        self.report.imported += imported;
        self.report.updated += updated;
        self.batch.clear();
        self.positions.clear();
        Ok(())
    }
}
