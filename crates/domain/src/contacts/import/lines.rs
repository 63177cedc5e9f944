//! Streaming line decoder: accepts chunks of any size and returns lines with their numbers.

/// The longest line in bytes. A longer one has no content, so that the import reports and skips it.
pub(super) const LINE_BYTES: usize = 64 * 1024;

/// A line that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The line number, counted from 1.
    pub(super) line: u64,
    /// The content, or `None` if the line exceeds `LINE_BYTES`.
    pub(super) bytes: Option<Vec<u8>>,
}

pub(super) struct LineDecoder {
    bytes: Vec<u8>,
    overlong: bool,
    line: u64,
}

impl Default for LineDecoder {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            overlong: false,
            line: 1,
        }
    }
}

impl LineDecoder {
    /// Decodes the next chunk and returns the lines that it completes.
    pub(super) fn feed(&mut self, chunk: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.push(rest.get(..end).unwrap_or_default());
            rest = rest.get(end + 1..).unwrap_or_default();
            lines.extend(self.finish());
            self.line += 1;
        }
        self.push(rest);
        lines
    }

    /// Ends the current line. Returns `None` if it has only white space.
    pub(super) fn finish(&mut self) -> Option<Line> {
        let bytes = std::mem::take(&mut self.bytes);
        let overlong = std::mem::take(&mut self.overlong);
        if overlong {
            return Some(Line {
                line: self.line,
                bytes: None,
            });
        }
        (!bytes.trim_ascii().is_empty()).then_some(Line {
            line: self.line,
            bytes: Some(bytes),
        })
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() > LINE_BYTES {
            self.overlong = true;
            self.bytes.clear();
        }
        if !self.overlong {
            self.bytes.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(file: &[u8], chunk_size: usize) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut decoder = LineDecoder::default();
        let mut lines: Vec<Line> = file.chunks(chunk_size).flat_map(|chunk| decoder.feed(chunk)).collect();
        lines.extend(decoder.finish());
        lines.into_iter().map(|line| (line.line, line.bytes)).collect()
    }

    #[test]
    fn line_decoder_counts_blank_lines_and_skips_overlong_ones() {
        let file = format!("a\r\n\n \t\nb\n{}\n\nc", "x".repeat(LINE_BYTES + 1));
        let line = |line: u64, text: &str| (line, Some(text.as_bytes().to_vec()));
        let expected = [line(1, "a\r"), line(4, "b"), (5, None), line(7, "c")];
        for chunk_size in [1, 1000, file.len()] {
            assert_eq!(decode(file.as_bytes(), chunk_size), expected, "{chunk_size}");
        }
        assert_eq!(decode(b"", 1), []);
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_chunk_size(file in "[a{}\n\r ]{0,40}", chunk_size in 1_usize..7) {
            prop_assert_eq!(decode(file.as_bytes(), chunk_size), decode(file.as_bytes(), 100));
        }
    }
}
