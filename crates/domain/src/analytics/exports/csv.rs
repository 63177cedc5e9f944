//! Cells as RFC 4180 writes them, harmless to spreadsheets.

/// What tells a spreadsheet that the file is UTF-8.
pub(super) const MARK: &str = "\u{feff}";

/// What a spreadsheet takes for the beginning of a formula.
const FORMULA: &[char] = &['=', '+', '-', '@', '\t', '\n', '\r'];

/// What needs quotes around it.
const SPECIAL: &[char] = &[',', '"', '\n', '\r'];

/// Writes one record.
pub(super) fn write<'a>(text: &mut String, cells: impl IntoIterator<Item = &'a str>) {
    for (position, cell) in cells.into_iter().enumerate() {
        if position > 0 {
            text.push(',');
        }
        write_cell(text, cell);
    }
    text.push_str("\r\n");
}

fn write_cell(text: &mut String, cell: &str) {
    let guard = if cell.starts_with(FORMULA) { "'" } else { "" };
    if !cell.contains(SPECIAL) {
        text.push_str(guard);
        text.push_str(cell);
        return;
    }
    text.push('"');
    text.push_str(guard);
    for (position, part) in cell.split('"').enumerate() {
        if position > 0 {
            text.push_str("\"\"");
        }
        text.push_str(part);
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use csv_core::{ReadFieldResult, Reader};
    use proptest::prelude::*;

    use super::*;

    fn written(cells: &[&str]) -> String {
        let mut text = String::new();
        write(&mut text, cells.iter().copied());
        text
    }

    #[test]
    fn cells_that_a_spreadsheet_would_run_are_guarded() {
        for (cell, safe) in [
            ("=1+1", "'=1+1"),
            ("+55", "'+55"),
            ("-1", "'-1"),
            ("@sum", "'@sum"),
            ("\tx", "'\tx"),
            ("\nx", "\"'\nx\""),
            ("\rx", "\"'\rx\""),
            ("=\"a\",b", "\"'=\"\"a\"\",b\""),
            ("a=1", "a=1"),
            ("'=1", "'=1"),
            (" =1", " =1"),
            ("", ""),
        ] {
            assert_eq!(written(&[cell]), format!("{safe}\r\n"), "{cell:?}");
        }
    }

    #[test]
    fn what_separates_is_quoted() {
        assert_eq!(
            written(&["a,b", "c\"d", "e\r\nf", "ção 🎉"]),
            "\"a,b\",\"c\"\"d\",\"e\r\nf\",ção 🎉\r\n"
        );
    }

    /// The cells of the one record.
    fn read(text: &str) -> Vec<String> {
        let (mut reader, mut rest) = (Reader::new(), text.as_bytes());
        let (mut cells, mut cell, mut buffer) = (Vec::new(), Vec::new(), [0; 64]);
        loop {
            let (result, taken, filled) = reader.read_field(rest, &mut buffer);
            rest = &rest[taken..];
            cell.extend_from_slice(&buffer[..filled]);
            match result {
                ReadFieldResult::InputEmpty | ReadFieldResult::OutputFull => {}
                ReadFieldResult::Field { record_end } => {
                    cells.push(String::from_utf8(std::mem::take(&mut cell)).unwrap());
                    if record_end {
                        return cells;
                    }
                }
                ReadFieldResult::End => return cells,
            }
        }
    }

    proptest! {
        #[test]
        fn a_reader_gets_back_what_was_written(cells in prop::collection::vec("[=+@\t\r\n\",a-cé🎉'-]{0,8}", 2..6)) {
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            let guarded = cells.iter().map(|cell| if cell.starts_with(FORMULA) { format!("'{cell}") } else { (*cell).into() });
            prop_assert_eq!(read(&written(&cells)), guarded.collect::<Vec<String>>());
        }
    }
}
