//! Streaming import of a contact file: validates every line, writes valid lines in batches and reports invalid ones by
//! line number. `encoding` detects the encoding, `sheet` parses CSV and `objects` parses JSON lines. `matching` finds the
//! stored contact of a row. At most one batch is in memory.

mod batch;
pub(crate) mod csv;
mod encoding;
mod lines;
mod matching;
mod objects;
mod row;
mod sheet;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::{BatchOutcome, ContactError, ContactStore, ImportRow, Upserted};
use crate::shared::{AccountId, Clock, ContactId, FieldErrors, Ids, StoreError, Tenant};
use batch::Batch;
use encoding::Encoding;
pub use matching::{ContactKeys, ContactMatcher};
use objects::Objects;
pub(super) use objects::parse_tag_names;
use row::ParsedLine;
pub(super) use row::check_tags;
use sheet::Sheet;

/// The most rows of a file.
pub const MAX_ROWS: u64 = 1_000_000;

/// The most lines of a batch.
const BATCH_ROWS: usize = 1000;

/// The most line errors of a report.
const MAX_REPORTED_ERRORS: usize = 100;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportFormat {
    /// CSV with a header line: the columns `name` and `phone`, `wa_user_id` or both, optionally `email` and `tags`.
    /// Every other column is an attribute.
    Csv,
    /// One JSON object per line with the fields of a new contact. `tags` holds names, and every other field with a
    /// string, number or boolean is an attribute.
    JsonLines,
}

/// The error of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LineError {
    /// The line number in the file. The first line (of a CSV file: the header) is 1.
    #[schemars(example = 7)]
    pub line: u64,
    /// The error, with the name of the invalid field.
    #[schemars(example = &"phone is not a valid phone number")]
    pub message: String,
}

/// The result of an import. `imported + updated + skipped` is the number of rows: the CSV records after the header, or
/// the JSON lines without empty lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ImportReport {
    /// The number of new contacts.
    #[schemars(example = 1840)]
    pub imported: u64,
    /// The number of rows that changed an existing contact or repeated the phone number or `wa_user_id` of an earlier
    /// row.
    #[schemars(example = 159)]
    pub updated: u64,
    /// The number of invalid rows, which were not imported.
    #[schemars(example = 1)]
    pub skipped: u64,
    /// The errors of the first 100 invalid rows.
    pub errors: Vec<LineError>,
}

enum Reader {
    Sheet(Box<Sheet>),
    Objects(Objects),
}

impl Reader {
    fn feed(&mut self, text: &[u8]) -> Result<Vec<ParsedLine>, FieldErrors> {
        match self {
            Self::Sheet(sheet) => sheet.feed(text),
            Self::Objects(objects) => Ok(objects.feed(text)),
        }
    }

    fn finish(&mut self) -> Result<Vec<ParsedLine>, FieldErrors> {
        match self {
            Self::Sheet(sheet) => sheet.finish(),
            Self::Objects(objects) => Ok(objects.finish()),
        }
    }
}

/// A running import. The caller feeds the body chunk by chunk, so that memory use does not depend on the file's size.
pub struct Import {
    store: Arc<dyn ContactStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    account: AccountId,
    encoding: Encoding,
    reader: Reader,
    batch: Batch,
    rows: u64,
    report: ImportReport,
}

impl Import {
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
            batch: Batch::default(),
            rows: 0,
            report: ImportReport::default(),
        }
    }

    /// Imports the next chunk of the file.
    pub async fn feed(&mut self, chunk: &[u8]) -> Result<(), ContactError> {
        let text = self.encoding.feed(chunk);
        for parsed in self.reader.feed(&text)? {
            self.import_line(parsed).await?;
        }
        Ok(())
    }

    /// Ends the file and writes the last batch.
    pub async fn finish(mut self) -> Result<ImportReport, ContactError> {
        let text = self.encoding.finish();
        let mut last = self.reader.feed(&text)?;
        last.extend(self.reader.finish()?);
        for parsed in last {
            self.import_line(parsed).await?;
        }
        self.flush().await?;
        Ok(self.report)
    }

    async fn import_line(&mut self, parsed: ParsedLine) -> Result<(), ContactError> {
        self.rows += 1;
        let row = if self.rows > MAX_ROWS {
            Err(format!("line is beyond the limit of {MAX_ROWS} rows"))
        } else {
            parsed.row
        };
        match row {
            Ok(row) => self.add_to_batch(parsed.line, row).await?,
            Err(message) => self.skip(parsed.line, message),
        }
        if self.batch.lines() >= BATCH_ROWS {
            self.flush().await
        } else {
            Ok(())
        }
    }

    async fn add_to_batch(&mut self, line: u64, row: ImportRow) -> Result<(), ContactError> {
        if self.batch.must_precede(&row) {
            self.flush().await?;
        }
        self.batch.push(line, row);
        Ok(())
    }

    /// Records an invalid line. Errors are sorted by line, because the store may reject a line after later ones were
    /// skipped.
    fn skip(&mut self, line: u64, message: String) {
        self.report.skipped += 1;
        let position = self.report.errors.partition_point(|error| error.line < line);
        self.report.errors.insert(position, LineError { line, message });
        self.report.errors.truncate(MAX_REPORTED_ERRORS);
    }

    /// Writes the batch. The store may reject rows, for example if their attributes exceed the limits after the merge:
    /// their lines are skipped, and the rest is written again.
    async fn flush(&mut self) -> Result<(), ContactError> {
        let mut batch = std::mem::take(&mut self.batch);
        while batch.lines() > 0 {
            let rows = batch.rows();
            let ids: Vec<ContactId> = rows.iter().map(|_| self.ids.next().into()).collect();
            let written = self.store.upsert(self.account, &ids, &rows, self.clock.now()).await?;
            match written {
                BatchOutcome::Written(Upserted { imported, .. }) => {
                    self.report.imported += imported;
                    self.report.updated += u64::try_from(batch.lines()).unwrap_or(u64::MAX) - imported;
                    return Ok(());
                }
                BatchOutcome::Refused(rejected) => {
                    let lines = batch.remove_rejected(&rejected);
                    if lines.is_empty() {
                        let error = "the store rejected an import batch, but none of its rows".to_owned();
                        return Err(StoreError::Corrupt(error).into());
                    }
                    for (line, message) in lines {
                        self.skip(line, message);
                    }
                }
            }
        }
        Ok(())
    }
}
