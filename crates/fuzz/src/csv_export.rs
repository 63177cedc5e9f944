//! `analytics::write_record`: the `csv` crate reads back every cell, and no cell starts a formula in a spreadsheet.

use csv::ReaderBuilder;
use recado_domain::analytics::write_record;

const FORMULA_STARTS: [char; 7] = ['=', '+', '-', '@', '\t', '\n', '\r'];

/// The input is the cells of a record, separated by NUL.
pub(super) fn run(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    let cells: Vec<&str> = text.split('\0').collect();
    let mut record = String::new();
    write_record(&mut record, cells.iter().copied());
    let mut reader = ReaderBuilder::new().has_headers(false).from_reader(record.as_bytes());
    let mut records = reader.records();
    // An empty line is no record, so a record of one empty cell is not read back.
    let read = match records.next() {
        Some(Ok(read)) => read,
        found => return assert!(found.is_none() && cells == [""], "{found:?} in {record:?}"),
    };
    assert!(records.next().is_none(), "{record:?}");
    assert_eq!(read.len(), cells.len(), "{record:?}");
    for (read, written) in read.iter().zip(cells) {
        assert!(!read.starts_with(FORMULA_STARTS), "{record:?}");
        assert_eq!(
            read.strip_prefix('\'').filter(|_| written != read).unwrap_or(read),
            written
        );
    }
}
