//! Taking in a file of contacts: every line is checked, good ones are written in batches, bad ones are told by line.
//! `encoding` finds out how the file is written, `sheet` and `objects` what it says, and nothing of it is held longer
//! than a batch.

mod batch;
mod csv;
mod encoding;
mod lines;
mod objects;
mod row;
mod sheet;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::limits::merge_rule;
use super::{BatchOutcome, ContactError, ContactStore, ImportRow, Upserted};
use crate::shared::{AccountId, Clock, ContactId, FieldErrors, Ids, StoreError, Tenant};
use batch::Batch;
use encoding::Encoding;
use objects::Objects;
pub(super) use objects::parse_tag_names;
pub(super) use row::check_tags;
use sheet::Sheet;

/// How many lines a file may have.
pub const MAX_ROWS: u64 = 1_000_000;

/// How many lines are written together.
const BATCH_ROWS: usize = 1000;

/// The most line errors of a report.
const MAX_REPORTED_ERRORS: usize = 100;

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

/// A parsed line: a contact or its error message.
struct ParsedLine {
    line: u64,
    row: Result<ImportRow, String>,
}

/// What reads the file.
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

/// One file being taken in. Feed it the body as it arrives; memory stays flat.
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

    /// Ends the file and writes what is left.
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
        if self.batch.overflows_with(&row) {
            self.flush().await?;
        }
        self.batch.push(line, row);
        Ok(())
    }

    /// Lines that are skipped may be found after later ones: the errors stay in the order of the lines.
    fn skip(&mut self, line: u64, message: String) {
        self.report.skipped += 1;
        let position = self.report.errors.partition_point(|error| error.line < line);
        self.report.errors.insert(position, LineError { line, message });
        self.report.errors.truncate(MAX_REPORTED_ERRORS);
    }

    /// Writes the batch, without the lines that the store refuses: what they add depends on what their contacts have.
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
                    for line in lines {
                        self.skip(line, format!("attributes {}", merge_rule()));
                    }
                }
            }
        }
        Ok(())
    }
}
