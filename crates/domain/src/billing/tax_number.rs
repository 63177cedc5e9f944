//! CPF and CNPJ, the Brazilian tax numbers of people and companies. A CNPJ may contain letters (from July 2026).

use std::fmt;

/// Length of a CNPJ in characters.
const CNPJ_LENGTH: usize = 14;

/// A tax number with valid check digits, without punctuation. Personal data: `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct TaxNumber(String);

impl TaxNumber {
    /// Parses a number with or without punctuation. Other text is ignored ("CPF: 529.982.247-25"), because the check
    /// digits detect errors. Letters that may belong to a CNPJ are never ignored: an invalid CNPJ stays invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let only = |accepted: fn(&char) -> bool| -> String { text.chars().filter(accepted).collect() };
        let unmasked = only(|c| !matches!(c, '.' | '-' | '/')).to_ascii_uppercase();
        let bare: String = unmasked.chars().filter(|c| !c.is_whitespace()).collect();
        if is_cpf(bare.as_bytes()) || is_cnpj(bare.as_bytes()) {
            return Some(Self(bare));
        }
        let digits = only(char::is_ascii_digit);
        let valid = is_cpf(digits.as_bytes()) || is_cnpj(digits.as_bytes());
        (valid && !may_be_alphanumeric_cnpj(&unmasked)).then_some(Self(digits))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TaxNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaxNumber(***)")
    }
}

/// Whether a text may be a CNPJ with letters: it has the length of one and a word that mixes letters and digits.
fn may_be_alphanumeric_cnpj(unmasked: &str) -> bool {
    let is_mixed = |word: &str| {
        let has = |kind: fn(&char) -> bool| word.chars().any(|c| kind(&c));
        has(char::is_ascii_digit) && has(char::is_ascii_alphabetic)
    };
    let long = unmasked.chars().filter(char::is_ascii_alphanumeric).count() == CNPJ_LENGTH;
    long && unmasked.split(|c: char| !c.is_ascii_alphanumeric()).any(is_mixed)
}

fn is_cpf(text: &[u8]) -> bool {
    let Some((body, checks)) = text.split_at_checked(9) else {
        return false;
    };
    checks.len() == 2 && text.iter().all(u8::is_ascii_digit) && !all_equal(text) && has_checks(body, checks, 11)
}

fn is_cnpj(text: &[u8]) -> bool {
    let Some((body, checks)) = text.split_at_checked(12) else {
        return false;
    };
    let letters = body.iter().all(|c| c.is_ascii_digit() || c.is_ascii_uppercase());
    checks.len() == 2
        && letters
        && checks.iter().all(u8::is_ascii_digit)
        && !all_equal(text)
        && has_checks(body, checks, 9)
}

/// Numbers of equal characters have valid check digits but are never issued.
fn all_equal(text: &[u8]) -> bool {
    text.windows(2).all(|pair| pair.first() == pair.last())
}

/// Verifies both check digits: modulo 11, with weights from 2 to `largest` from right to left, then from 2 again.
fn has_checks(body: &[u8], checks: &[u8], largest: u32) -> bool {
    let mut text = body.to_vec();
    for check in checks {
        let weights = (2..=largest).cycle();
        let sum: u32 = text
            .iter()
            .rev()
            .zip(weights)
            .map(|(c, weight)| u32::from(c.saturating_sub(b'0')) * weight)
            .sum();
        let digit = match sum % 11 {
            0 | 1 => 0,
            rest => 11 - rest,
        };
        if u32::from(check.saturating_sub(b'0')) != digit {
            return false;
        }
        text.push(*check);
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<String> {
        TaxNumber::parse(text).map(|number| number.as_str().to_owned())
    }

    #[test]
    fn tax_number_parse_matches_the_published_vectors() {
        for (text, bare) in [
            ("529.982.247-25", "52998224725"),
            ("111.444.777-35", "11144477735"),
            ("249.715.637-92", "24971563792"),
            (" 123.456.789-09 ", "12345678909"),
            ("12.ABC.345/01DE-35", "12ABC34501DE35"),
            ("12.abc.345/01de-35", "12ABC34501DE35"),
            ("11.222.333/0001-81", "11222333000181"),
            ("00.000.000/0001-91", "00000000000191"),
            ("34028316000103", "34028316000103"),
            ("1345C3A5000106", "1345C3A5000106"),
            ("AAAAAAAAAAAA45", "AAAAAAAAAAAA45"),
            ("ZZZZZZZZZZZZ62", "ZZZZZZZZZZZZ62"),
            ("529_982.247-25", "52998224725"),
            ("CPF 529.982.247-25", "52998224725"),
            ("529.982.247-25 (Ana)", "52998224725"),
            ("CNPJ: 11.222.333/0001-81", "11222333000181"),
        ] {
            assert_eq!(read(text).as_deref(), Some(bare), "{text}");
        }
        for wrong in [
            "529.982.247-24",
            "111.111.111-11",
            "12ABC34501DE34",
            "00000000000000",
            "12ABC34501DEA5",
            "",
            "5299822472",
            "529982247255",
            "52998224A25",
            "CPF 529.982.247-24",
            "A5B2C9.982.247-25",
            "ABC52998224725",
            "12_ABC.345/01DE-34",
            "٥٢٩٩٨٢٢٤٧٢٥",
            "12ÁBC34501DE35",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert!(!format!("{:?}", TaxNumber::parse("52998224725")).contains("529"));
    }

    proptest! {
        /// The check digits detect one wrong character, unless it has the same value modulo 11.
        #[test]
        fn tax_number_with_one_changed_character_is_rejected(at in 0_usize..14, by in 1_u8..10) {
            let mut text = b"12ABC34501DE35".to_vec();
            let original = text[at];
            text[at] = match original.is_ascii_digit() {
                true => b'0' + (original - b'0' + by) % 10,
                false => b'A' + (original - b'A' + by) % 26,
            };
            // Some letters have equal values modulo 11 and therefore the same check digits.
            let same = i32::from(original).rem_euclid(11) == i32::from(text[at]).rem_euclid(11);
            prop_assert_eq!(TaxNumber::parse(std::str::from_utf8(&text).unwrap()).is_some(), same);
        }

        #[test]
        fn tax_number_parse_returns_eleven_or_fourteen_characters(text in "\\PC{0,30}") {
            if let Some(bare) = read(&text) {
                prop_assert!(bare.len() == 11 || bare.len() == 14);
            }
        }
    }
}
