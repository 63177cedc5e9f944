//! Writes CSV (RFC 4180) and prevents CSV injection.

/// The byte-order mark, by which spreadsheets recognize UTF-8.
pub(super) const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The characters that start a formula in a spreadsheet. Such a cell gets an apostrophe in front.
const FORMULA_STARTS: &[char] = &['=', '+', '-', '@', '\t', '\n', '\r'];

/// The characters that require quotes around a cell.
const QUOTED_CHARS: &[char] = &[',', '"', '\n', '\r'];

/// Writes one record.
pub fn write_record<'a>(text: &mut String, cells: impl IntoIterator<Item = &'a str>) {
    for (index, cell) in cells.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_cell(text, cell);
    }
    text.push_str("\r\n");
}

fn write_cell(text: &mut String, cell: &str) {
    let guard = if cell.starts_with(FORMULA_STARTS) { "'" } else { "" };
    if !cell.contains(QUOTED_CHARS) {
        text.push_str(guard);
        text.push_str(cell);
        return;
    }
    text.push('"');
    text.push_str(guard);
    for (index, part) in cell.split('"').enumerate() {
        if index > 0 {
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
        write_record(&mut text, cells.iter().copied());
        text
    }

    #[test]
    fn csv_export_guards_formula_cells() {
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
    fn csv_export_quotes_special_characters() {
        assert_eq!(
            written(&["a,b", "c\"d", "e\r\nf", "ção 🎉"]),
            "\"a,b\",\"c\"\"d\",\"e\r\nf\",ção 🎉\r\n"
        );
    }

    /// Parses the cells of a single record.
    fn parse(text: &str) -> Vec<String> {
        let (mut reader, mut rest) = (Reader::new(), text.as_bytes());
        let (mut cells, mut cell, mut buffer) = (Vec::new(), Vec::new(), [0; 64]);
        loop {
            let (result, consumed, filled) = reader.read_field(rest, &mut buffer);
            rest = &rest[consumed..];
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
        fn csv_export_round_trips(cells in prop::collection::vec("[=+@\t\r\n\",a-cé🎉'-]{0,8}", 2..6)) {
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            let guarded = cells.iter().map(|cell| match cell.starts_with(FORMULA_STARTS) {
                true => format!("'{cell}"),
                false => (*cell).into(),
            });
            prop_assert_eq!(parse(&written(&cells)), guarded.collect::<Vec<String>>());
        }
    }
}
