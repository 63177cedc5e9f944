//! Streaming CSV decoder: accepts chunks of any size and returns records with the physical line on which they start.
//! The header line determines whether cells are separated by commas or, as in Brazilian spreadsheets, by semicolons.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

/// The longest record in bytes. A longer one has no cells, so that the import reports and skips it.
pub(super) const RECORD_BYTES: usize = 64 * 1024;

/// The most cells of a record.
pub(super) const RECORD_CELLS: usize = 256;

/// One record of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The physical line on which it starts, counted from 1.
    pub(crate) line: u64,
    /// The cells, or `None` if the record exceeds a limit or is not UTF-8.
    pub(crate) cells: Option<Vec<String>>,
}

/// Buffers the start of a file until its first line ends.
#[derive(Default)]
struct HeaderBuffer {
    bytes: Vec<u8>,
    quoted: bool,
    commas: usize,
    semicolons: usize,
}

impl HeaderBuffer {
    /// Consumes bytes of `chunk` up to the end of the line. Returns true if the line ended.
    fn feed(&mut self, chunk: &mut &[u8]) -> bool {
        while let Some((&byte, rest)) = chunk.split_first() {
            *chunk = rest;
            self.bytes.push(byte);
            match byte {
                b'"' => self.quoted = !self.quoted,
                b',' if !self.quoted => self.commas += 1,
                b';' if !self.quoted => self.semicolons += 1,
                _ => {}
            }
            let ended = matches!(byte, b'\n' | b'\r') && !self.quoted && !self.bytes.trim_ascii().is_empty();
            if ended || self.bytes.len() >= RECORD_BYTES {
                return true;
            }
        }
        false
    }

    fn separator(&self) -> u8 {
        if self.semicolons > self.commas { b';' } else { b',' }
    }
}

/// A push parser for CSV (RFC 4180). It also accepts LF, CRLF, empty lines and a byte-order mark.
pub(crate) struct CsvDecoder {
    /// The header line, until it is complete.
    header: Option<HeaderBuffer>,
    reader: Reader,
    /// The unescaped cells of the current record, without separators. The first `used_bytes` are filled.
    bytes: Vec<u8>,
    /// Where each cell ends in `bytes`. The first `cell_count` are filled.
    cell_ends: Vec<usize>,
    used_bytes: usize,
    cell_count: usize,
    /// Whether the current record exceeds `RECORD_BYTES` or `RECORD_CELLS`.
    overlong: bool,
    /// The physical line of the next byte.
    line: u64,
    /// The physical line on which the current record starts. `None` between two records.
    record_line: Option<u64>,
}

impl Default for CsvDecoder {
    fn default() -> Self {
        Self {
            header: Some(HeaderBuffer::default()),
            reader: Reader::new(),
            bytes: vec![0; RECORD_BYTES],
            cell_ends: vec![0; RECORD_CELLS],
            used_bytes: 0,
            cell_count: 0,
            overlong: false,
            line: 1,
            record_line: None,
        }
    }
}

impl CsvDecoder {
    /// Decodes the next chunk and returns the records that it completes.
    pub(crate) fn feed(&mut self, chunk: &[u8]) -> Vec<Record> {
        let mut rest = chunk;
        let complete = self.header.as_mut().is_none_or(|header| header.feed(&mut rest));
        if !complete {
            return vec![];
        }
        let mut records = self.decode_header();
        records.extend(self.records(rest));
        records
    }

    /// Decodes the buffered header line once. Its separator applies to the whole file.
    fn decode_header(&mut self) -> Vec<Record> {
        let Some(header) = self.header.take() else {
            return vec![];
        };
        self.reader = ReaderBuilder::new().delimiter(header.separator()).build();
        self.records(&header.bytes)
    }

    fn records(&mut self, chunk: &[u8]) -> Vec<Record> {
        let mut records = Vec::new();
        let mut rest = chunk;
        loop {
            if self.record_line.is_none() {
                rest = self.skip_line_ends(rest);
                self.record_line = (!rest.is_empty()).then_some(self.line);
            }
            if rest.is_empty() {
                return records;
            }
            let (result, read) = self.step(rest);
            rest = rest.get(read..).unwrap_or_default();
            records.extend(self.take_record(result));
        }
    }

    /// Ends the file. A last line without a line break is a record too.
    pub(crate) fn finish(&mut self) -> Vec<Record> {
        let mut records = self.decode_header();
        loop {
            let (result, _) = self.step(&[]);
            let ended = matches!(result, ReadRecordResult::Record | ReadRecordResult::End);
            records.extend(self.take_record(result));
            if ended {
                return records;
            }
        }
    }

    fn skip_line_ends<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        let ends = chunk.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
        let (skipped, rest) = chunk.split_at_checked(ends).unwrap_or((chunk, &[]));
        self.count_lines(skipped);
        rest
    }

    /// Parses `chunk` until a record or the chunk ends, or a buffer is full. Returns the number of bytes read.
    fn step(&mut self, chunk: &[u8]) -> (ReadRecordResult, usize) {
        let room = self.bytes.get_mut(self.used_bytes..).unwrap_or_default();
        let ends = self.cell_ends.get_mut(self.cell_count..).unwrap_or_default();
        let (result, read, written, ended) = self.reader.read_record(chunk, room, ends);
        self.count_lines(chunk.get(..read).unwrap_or_default());
        self.used_bytes += written;
        self.cell_count += ended;
        (result, read)
    }

    /// Returns the record if the step completed it, and resets the buffers for the next one. When a buffer is full, the
    /// cells read so far are discarded; the overlong record is returned without cells when it ends.
    fn take_record(&mut self, result: ReadRecordResult) -> Option<Record> {
        match result {
            ReadRecordResult::InputEmpty | ReadRecordResult::End => None,
            ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                self.overlong = true;
                self.used_bytes = 0;
                self.cell_count = 0;
                None
            }
            ReadRecordResult::Record => {
                let line = self.record_line.take()?;
                let cells = if self.overlong { None } else { self.cells() };
                self.overlong = false;
                self.used_bytes = 0;
                self.cell_count = 0;
                Some(Record { line, cells })
            }
        }
    }

    fn cells(&self) -> Option<Vec<String>> {
        let mut begin = 0;
        let mut cells = Vec::with_capacity(self.cell_count);
        for &end in self.cell_ends.get(..self.cell_count)? {
            cells.push(std::str::from_utf8(self.bytes.get(begin..end)?).ok()?.to_owned());
            begin = end;
        }
        Some(cells)
    }

    fn count_lines(&mut self, bytes: &[u8]) {
        let ends = bytes.iter().filter(|byte| **byte == b'\n').count();
        self.line += u64::try_from(ends).unwrap_or(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(chunks: &[&[u8]]) -> Vec<(u64, Option<Vec<String>>)> {
        let mut decoder = CsvDecoder::default();
        let mut records: Vec<Record> = chunks.iter().flat_map(|chunk| decoder.feed(chunk)).collect();
        records.extend(decoder.finish());
        records.into_iter().map(|record| (record.line, record.cells)).collect()
    }

    fn row(line: u64, cells: &[&str]) -> (u64, Option<Vec<String>>) {
        (line, Some(cells.iter().map(|&cell| cell.to_owned()).collect()))
    }

    #[test]
    fn csv_decoder_handles_quotes_and_counts_physical_lines() {
        let file = "\u{feff}name,phone\r\n\"Souza, Ana\",1\r\n\r\n\"two\nlines\",\"say \"\"oi\"\"\"\nlast,3";
        let expected = [
            row(1, &["name", "phone"]),
            row(2, &["Souza, Ana", "1"]),
            row(4, &["two\nlines", "say \"oi\""]),
            row(6, &["last", "3"]),
        ];
        assert_eq!(decode(&[file.as_bytes()]), expected);
    }

    #[test]
    fn csv_header_determines_the_separator() {
        let file = "\n\"a,b\";phone;\"c;\n,d\"\nvip,novo;1;x\n";
        let expected = [row(2, &["a,b", "phone", "c;\n,d"]), row(4, &["vip,novo", "1", "x"])];
        assert_eq!(decode(&[file.as_bytes()]), expected);
        let bytes: Vec<&[u8]> = file.as_bytes().chunks(1).collect();
        assert_eq!(decode(&bytes), expected);
        assert_eq!(decode(&[b"name,phone;x,y\na;b,c,d"])[1], row(2, &["a;b", "c", "d"]));
        assert_eq!(decode(&[b"name;phone"]), [row(1, &["name", "phone"])]);
    }

    #[test]
    fn invalid_csv_record_does_not_affect_others() {
        let long = "x".repeat(RECORD_BYTES + 1);
        let wide = ",".repeat(RECORD_CELLS + 1);
        let mut file = format!("a\n{long}\nb\n{wide}\nc\n").into_bytes();
        file.extend_from_slice(b"\xe3o\nd\n");
        let expected = [
            row(1, &["a"]),
            (2, None),
            row(3, &["b"]),
            (4, None),
            row(5, &["c"]),
            (6, None),
            row(7, &["d"]),
        ];
        assert_eq!(decode(&[&file]), expected);
    }

    #[test]
    fn empty_csv_file_has_no_records() {
        assert_eq!(decode(&[]), []);
        assert_eq!(decode(&[b"", b"\n\r\n"]), []);
        // A header line without an end is one record.
        let endless = format!("\"{}", "x\n".repeat(RECORD_BYTES));
        assert_eq!(decode(&[endless.as_bytes()]), [(1, None)]);
    }

    proptest! {
        /// The records do not depend on the chunk size.
        #[test]
        fn csv_records_do_not_depend_on_chunk_size(file in "([ab\",;é]|\n|\r\n){0,60}", chunk_size in 1_usize..9) {
            let bytes = file.as_bytes();
            let chunks: Vec<&[u8]> = bytes.chunks(chunk_size).collect();
            prop_assert_eq!(decode(&chunks), decode(&[bytes]));
        }
    }
}
