//! Parses contacts from the rows of a CSV file.

use serde_json::Value;

use super::super::ImportRow;
use super::csv;
use super::csv::{CsvDecoder, RECORD_BYTES, RECORD_CELLS, Record};
use super::row::{ParsedLine, RowInput, split_tags};
use crate::shared::FieldErrors;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Column {
    Name,
    Phone,
    Email,
    WaUserId,
    TimeZone,
    Tags,
    Attribute(String),
}

/// A CSV file. Its required header line names the columns.
#[derive(Default)]
pub(super) struct Sheet {
    decoder: CsvDecoder,
    columns: Option<Vec<Column>>,
}

impl Sheet {
    pub(super) fn feed(&mut self, chunk: &[u8]) -> Result<Vec<ParsedLine>, FieldErrors> {
        let records = self.decoder.feed(chunk);
        self.rows(records)
    }

    pub(super) fn finish(&mut self) -> Result<Vec<ParsedLine>, FieldErrors> {
        let records = self.decoder.finish();
        let rows = self.rows(records)?;
        if self.columns.is_none() {
            return Err(FieldErrors::one(
                "body",
                "must have a header line with the columns `name` and `phone` or `wa_user_id`",
            ));
        }
        Ok(rows)
    }

    fn rows(&mut self, records: Vec<Record>) -> Result<Vec<ParsedLine>, FieldErrors> {
        let mut rows = Vec::with_capacity(records.len());
        for csv::Record { line, cells } in records {
            match &self.columns {
                None => self.columns = Some(read_header(cells)?),
                Some(columns) => rows.push(ParsedLine {
                    line,
                    row: read_row(columns, cells),
                }),
            }
        }
        Ok(rows)
    }
}

fn read_header(cells: Option<Vec<String>>) -> Result<Vec<Column>, FieldErrors> {
    let cells = cells
        .filter(|cells| !cells.iter().any(|cell| cell.contains('\0')))
        .ok_or_else(|| {
            FieldErrors::one(
                "body",
                "has a header line that is too long, is not UTF-8 or contains a NUL character",
            )
        })?;
    let columns: Vec<Column> = cells.iter().map(|cell| read_column(cell)).collect();
    let count = |kind: &Column| columns.iter().filter(|column| *column == kind).count();
    let (phones, user_ids) = (count(&Column::Phone), count(&Column::WaUserId));
    if count(&Column::Name) == 1 && phones <= 1 && user_ids <= 1 && phones + user_ids > 0 {
        return Ok(columns);
    }
    Err(FieldErrors::one(
        "body",
        "must have a header line with exactly one column `name`, and one column `phone`, `wa_user_id` or one of each",
    ))
}

fn read_column(cell: &str) -> Column {
    let title = cell.trim().trim_start_matches('\u{feff}');
    match title.to_lowercase().as_str() {
        "name" => Column::Name,
        "phone" => Column::Phone,
        "email" => Column::Email,
        "wa_user_id" => Column::WaUserId,
        "time_zone" => Column::TimeZone,
        "tags" => Column::Tags,
        _ => Column::Attribute(title.to_owned()),
    }
}

/// Removes the apostrophe that spreadsheets write before `+` so that the cell is not a formula.
fn strip_formula_guard(cell: &str) -> &str {
    cell.strip_prefix('\'')
        .filter(|rest| rest.starts_with('+'))
        .unwrap_or(cell)
}

fn read_row(columns: &[Column], cells: Option<Vec<String>>) -> Result<ImportRow, String> {
    let cells =
        cells.ok_or_else(|| format!("line must be UTF-8 of at most {RECORD_BYTES} bytes and {RECORD_CELLS} cells"))?;
    if cells.len() > columns.len() {
        return Err("line has more cells than the header line".to_owned());
    }
    let mut input = RowInput::default();
    for (column, cell) in columns.iter().zip(&cells) {
        let cell = strip_formula_guard(cell.trim());
        if cell.contains('\0') {
            return Err("line contains a NUL character".to_owned());
        }
        match column {
            Column::Name => cell.clone_into(&mut input.name),
            Column::Phone => cell.clone_into(&mut input.phone),
            Column::Email => cell.clone_into(&mut input.email),
            Column::WaUserId => cell.clone_into(&mut input.wa_user_id),
            Column::TimeZone => cell.clone_into(&mut input.time_zone),
            Column::Tags => input.tags = split_tags(cell),
            Column::Attribute(title) if !title.is_empty() && !cell.is_empty() => {
                let value = Value::String(cell.to_owned());
                input.attributes.insert(title.clone(), value);
            }
            Column::Attribute(_) => {}
        }
    }
    input.check()
}
