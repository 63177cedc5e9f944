//! The encoding of a file, found out as it streams in: UTF-8, with or without a byte-order mark, or Windows-1252, which
//! is what spreadsheets write (and Latin-1 in all that is printable).
//!
//! In both, ASCII is ASCII. The first character beyond it decides, for the whole file and without looking back: as
//! UTF-8 it follows a pattern that Windows-1252 text does not.

/// Turns the bytes of a file into UTF-8. A file that began as UTF-8 is passed on as it is, broken or not.
#[derive(Debug, Default)]
pub(super) struct Encoding {
    found: Found,
    /// Whether anything came before.
    begun: bool,
}

#[derive(Debug)]
enum Found {
    /// Nothing but ASCII so far, and these first bytes of a character that is not complete.
    Ascii(Vec<u8>),
    Utf8,
    Windows1252,
}

impl Default for Found {
    fn default() -> Self {
        Self::Ascii(Vec::new())
    }
}

/// What the bytes 0x80 to 0x9f mean; the five without a meaning stay the control characters that they are in Latin-1.
const C1: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘', '’',
    '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

impl Encoding {
    /// The next piece of the file, as UTF-8. Up to three bytes may wait for the next piece.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(piece.len() + 4);
        let mut rest = piece;
        while let Found::Ascii(waiting) = &mut self.found {
            if waiting.is_empty() {
                let ascii = rest.iter().take_while(|byte| byte.is_ascii()).count();
                let (plain, beyond) = rest.split_at_checked(ascii).unwrap_or((rest, &[]));
                text.extend_from_slice(plain);
                self.begun |= !plain.is_empty();
                rest = beyond;
            }
            let Some((&byte, after)) = rest.split_first() else {
                return text;
            };
            rest = after;
            waiting.push(byte);
            match std::str::from_utf8(waiting) {
                Ok(character) => {
                    if self.begun || character != "\u{feff}" {
                        text.extend_from_slice(waiting);
                    }
                    self.found = Found::Utf8;
                }
                Err(fault) if fault.error_len().is_none() => {}
                Err(_) => {
                    from_windows_1252(waiting, &mut text);
                    self.found = Found::Windows1252;
                }
            }
        }
        match self.found {
            Found::Windows1252 => from_windows_1252(rest, &mut text),
            Found::Ascii(_) | Found::Utf8 => text.extend_from_slice(rest),
        }
        text
    }

    /// The end of the file: what still waits is no UTF-8.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        if let Found::Ascii(waiting) = &self.found {
            from_windows_1252(waiting, &mut text);
        }
        self.found = Found::Windows1252;
        text
    }
}

fn from_windows_1252(bytes: &[u8], text: &mut Vec<u8>) {
    let mut buffer = [0; 4];
    for &byte in bytes {
        let character = match byte {
            0x80..=0x9f => C1.get(usize::from(byte - 0x80)).copied().unwrap_or_default(),
            _ => char::from(byte),
        };
        text.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(file: &[u8], cut: usize) -> String {
        let mut encoding = Encoding::default();
        let mut text: Vec<u8> = file.chunks(cut).flat_map(|piece| encoding.feed(piece)).collect();
        text.extend(encoding.finish());
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_mark_is_dropped_at_the_beginning_alone() {
        assert_eq!(decoded("\u{feff}name\u{feff}".as_bytes(), 1), "name\u{feff}");
        assert_eq!(decoded("a\u{feff}".as_bytes(), 1), "a\u{feff}");
        assert_eq!(decoded("\u{feff}João".as_bytes(), 2), "João");
    }

    #[test]
    fn the_first_character_beyond_ascii_decides() {
        assert_eq!(decoded(b"Jo\xe3o \x80 5, \x93oi\x94 \x81", 1), "João € 5, “oi” \u{81}");
        assert_eq!(decoded(b"N\xba 7, \xc9rica", 3), "Nº 7, Érica");
        // Cut off in what could have been UTF-8.
        assert_eq!(decoded(b"Jos\xe9", 1), "José");
        assert_eq!(decoded(b"caf\xc3", 1), "cafÃ");
        // What begins as UTF-8 stays it: a broken line is the line's fault.
        let mut encoding = Encoding::default();
        assert_eq!(encoding.feed("é\n".as_bytes()), "é\n".as_bytes());
        assert_eq!(encoding.feed(b"Jo\xe3o"), b"Jo\xe3o");
        assert_eq!(encoding.finish(), b"");
    }

    /// A character of Windows-1252, and its byte.
    fn in_1252(character: char) -> u8 {
        (0..=u8::MAX)
            .find(|byte| {
                let mut text = Vec::new();
                from_windows_1252(&[*byte], &mut text);
                text == character.to_string().as_bytes()
            })
            .unwrap()
    }

    proptest! {
        /// Brazilian text comes out as it was written, in either encoding, however it is cut.
        #[test]
        fn text_survives(text in "[a-zA-Z ,;\nàáâãçéêíóôõúüÀÁÂÃÇÉÊÍÓÔÕÚÜºª€“”–]{0,60}", cut in 1_usize..7, mark: bool) {
            let mut utf8 = if mark { "\u{feff}".as_bytes().to_vec() } else { vec![] };
            utf8.extend_from_slice(text.as_bytes());
            prop_assert_eq!(decoded(&utf8, cut), text.clone());
            let single: Vec<u8> = text.chars().map(in_1252).collect();
            // Two letters beyond ASCII in a row could be mistaken: `Ã` and then a sign.
            let first = single.iter().position(|byte| !byte.is_ascii()).unwrap_or_default();
            prop_assume!(std::str::from_utf8(&single[first..single.len().min(first + 2)]).is_err() || single.is_ascii());
            prop_assume!(std::str::from_utf8(&single[first..single.len().min(first + 3)]).is_err() || single.is_ascii());
            prop_assert_eq!(decoded(&single, cut), text);
        }
    }
}
