//! Streaming detection of a file's encoding: UTF-8, with or without a byte-order mark, or Windows-1252, which
//! spreadsheets write. Windows-1252 includes the printable characters of Latin-1.
//!
//! The first non-ASCII character decides for the whole file: Windows-1252 text rarely forms a valid UTF-8 sequence. The
//! ASCII text before it is the same in both encodings.

use encoding_rs::WINDOWS_1252;

/// Converts a file to UTF-8. A file that was detected as UTF-8 passes unchanged, even if it has invalid bytes later.
#[derive(Debug, Default)]
pub(super) struct Encoding {
    detected: Detected,
    /// Whether any character was read.
    started: bool,
}

#[derive(Debug)]
enum Detected {
    /// Only ASCII so far, followed by these first bytes of an incomplete character.
    Ascii(Vec<u8>),
    Utf8,
    Windows1252,
}

impl Default for Detected {
    fn default() -> Self {
        Self::Ascii(Vec::new())
    }
}

impl Encoding {
    /// Converts the next chunk. Up to three bytes may wait for the next chunk.
    pub(super) fn feed(&mut self, chunk: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(chunk.len() + 4);
        let mut rest = chunk;
        while let Detected::Ascii(pending) = &mut self.detected {
            if pending.is_empty() {
                let ascii = rest.iter().take_while(|byte| byte.is_ascii()).count();
                let (plain, beyond) = rest.split_at_checked(ascii).unwrap_or((rest, &[]));
                text.extend_from_slice(plain);
                self.started |= !plain.is_empty();
                rest = beyond;
            }
            let Some((&byte, after)) = rest.split_first() else {
                return text;
            };
            rest = after;
            pending.push(byte);
            match std::str::from_utf8(pending) {
                Ok(character) => {
                    if self.started || character != "\u{feff}" {
                        text.extend_from_slice(pending);
                    }
                    self.detected = Detected::Utf8;
                }
                Err(error) if error.error_len().is_none() => {}
                Err(_) => {
                    from_windows_1252(pending, &mut text);
                    self.detected = Detected::Windows1252;
                }
            }
        }
        match self.detected {
            Detected::Windows1252 => from_windows_1252(rest, &mut text),
            Detected::Ascii(_) | Detected::Utf8 => text.extend_from_slice(rest),
        }
        text
    }

    /// Ends the file. Pending bytes are not valid UTF-8, so they are converted from Windows-1252.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        if let Detected::Ascii(pending) = &self.detected {
            from_windows_1252(pending, &mut text);
        }
        self.detected = Detected::Windows1252;
        text
    }
}

/// Every byte is one character, so a chunk may end anywhere.
fn from_windows_1252(bytes: &[u8], text: &mut Vec<u8>) {
    let (decoded, _) = WINDOWS_1252.decode_without_bom_handling(bytes);
    text.extend_from_slice(decoded.as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(file: &[u8], chunk_size: usize) -> String {
        let mut encoding = Encoding::default();
        let mut text: Vec<u8> = file.chunks(chunk_size).flat_map(|chunk| encoding.feed(chunk)).collect();
        text.extend(encoding.finish());
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn byte_order_mark_is_removed_only_at_the_start() {
        assert_eq!(decode("\u{feff}name\u{feff}".as_bytes(), 1), "name\u{feff}");
        assert_eq!(decode("a\u{feff}".as_bytes(), 1), "a\u{feff}");
        assert_eq!(decode("\u{feff}João".as_bytes(), 2), "João");
    }

    #[test]
    fn first_non_ascii_character_decides_the_encoding() {
        assert_eq!(decode(b"Jo\xe3o \x80 5, \x93oi\x94 \x81", 1), "João € 5, “oi” \u{81}");
        assert_eq!(decode(b"N\xba 7, \xc9rica", 3), "Nº 7, Érica");
        // The file ends within a possible UTF-8 character.
        assert_eq!(decode(b"Jos\xe9", 1), "José");
        assert_eq!(decode(b"caf\xc3", 1), "cafÃ");
        // A file that starts as UTF-8 stays UTF-8: an invalid line is an error of that line.
        let mut encoding = Encoding::default();
        assert_eq!(encoding.feed("é\n".as_bytes()), "é\n".as_bytes());
        assert_eq!(encoding.feed(b"Jo\xe3o"), b"Jo\xe3o");
        assert_eq!(encoding.finish(), b"");
    }

    #[test]
    fn windows_1252_has_a_character_for_every_byte() {
        // The five undefined bytes are control characters, as in Latin-1.
        let from_0x80 = "€\u{81}‚ƒ„…†‡ˆ‰Š‹Œ\u{8d}Ž\u{8f}\u{90}‘’“”•–—˜™š›œ\u{9d}žŸ".chars();
        for (byte, character) in (0..0x80)
            .map(char::from)
            .chain(from_0x80)
            .chain('\u{a0}'..='\u{ff}')
            .enumerate()
        {
            assert_eq!(to_windows_1252(character), u8::try_from(byte).unwrap());
        }
    }

    /// Returns the byte of a character in Windows-1252.
    fn to_windows_1252(character: char) -> u8 {
        (0..=u8::MAX)
            .find(|byte| {
                let mut text = Vec::new();
                from_windows_1252(&[*byte], &mut text);
                text == character.to_string().as_bytes()
            })
            .unwrap()
    }

    proptest! {
        /// Portuguese text is decoded correctly in both encodings and with any chunk size.
        #[test]
        fn portuguese_text_is_decoded_in_both_encodings(
            text in "[a-zA-Z ,;\nàáâãçéêíóôõúüÀÁÂÃÇÉÊÍÓÔÕÚÜºª€“”–]{0,60}", chunk_size in 1_usize..7, with_bom: bool,
        ) {
            let mut utf8 = if with_bom { "\u{feff}".as_bytes().to_vec() } else { vec![] };
            utf8.extend_from_slice(text.as_bytes());
            prop_assert_eq!(decode(&utf8, chunk_size), text.clone());
            let bytes: Vec<u8> = text.chars().map(to_windows_1252).collect();
            // Two to four consecutive non-ASCII letters, such as `Ã` and a symbol, can form valid UTF-8.
            let first = bytes.iter().position(|byte| !byte.is_ascii()).unwrap_or_default();
            let starts_as_utf8 = |length: usize| {
                let start = bytes[first..].get(..length);
                start.is_some_and(|start| std::str::from_utf8(start).is_ok())
            };
            prop_assume!(bytes.is_ascii() || !(2..=4).any(starts_as_utf8));
            prop_assert_eq!(decode(&bytes, chunk_size), text);
        }
    }
}
