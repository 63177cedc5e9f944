//! Names of accounts and people in mails. Their owners choose them, and the mail is sent in the operator's name, so a
//! name must not carry an address that the reader's mail program turns into a link.

/// Replaces a word that contains an address.
const REPLACEMENT: &str = "…";

/// Returns a name as one line, with every word that contains an address replaced by `…`.
///
/// Line breaks and control characters become spaces, which prevents header injection.
pub fn name_in_mail(name: &str) -> String {
    let visible: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words = visible
        .split_whitespace()
        .map(|word| if has_address(word) { REPLACEMENT } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a word contains `://`, `www.`, or a host name followed by a slash: `x.yy/`.
fn has_address(word: &str) -> bool {
    // Invisible characters inside an address would hide it here, and mail programs ignore them.
    let word: String = word.chars().filter(|c| !is_invisible(*c)).collect();
    let word = word.to_lowercase();
    word.contains("://") || word.contains("www.") || has_host_with_path(&word)
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

/// Whether a slash follows a host name that ends in a dot and at least two letters, with or without a port.
fn has_host_with_path(word: &str) -> bool {
    word.match_indices('/').any(|(slash, _)| {
        let before = word.get(..slash).unwrap_or_default();
        let host = match before.rsplit_once(':') {
            Some((host, port)) if port.chars().all(|c| c.is_ascii_digit()) => host,
            _ => before,
        };
        let Some((labels, top)) = host.rsplit_once('.') else {
            return false;
        };
        let top_is_name = top.chars().count() >= 2 && top.chars().all(|c| c.is_alphanumeric() || c == '-');
        top_is_name && labels.chars().next_back().is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_in_a_name_is_replaced() {
        for (name, expected) in [
            ("Loja https://evil.example/x agora", "Loja … agora"),
            ("Ganhe em HTTP://EVIL.EXAMPLE", "Ganhe em …"),
            ("www.evil.example", "…"),
            ("(WWW.evil.example)", "…"),
            ("clique bit.ly/abc", "clique …"),
            ("clique evil.example:8080/abc já", "clique … já"),
            ("a.b.co/?x=1 b.co/ c", "… … c"),
            ("ev\u{200b}il.example/x", "…"),
            ("ht\u{ad}tps://evil.example", "…"),
            ("пример.рф/вход", "…"),
        ] {
            assert_eq!(name_in_mail(name), expected, "{name}");
        }
    }

    #[test]
    fn other_names_stay() {
        for name in [
            "Loja da Ana",
            "Booking.com",
            "S/A",
            "Comércio Ltda. / Filial",
            "24/7 Café",
            "Dra. Ana M.",
            "v1.2/b",
            "a/b.com",
        ] {
            assert_eq!(name_in_mail(name), name);
        }
    }

    #[test]
    fn name_is_one_line() {
        assert_eq!(
            name_in_mail("Loja\r\nBcc: all@example.com\u{0}"),
            "Loja Bcc: all@example.com"
        );
        assert_eq!(name_in_mail("  Ana \t\n Maria "), "Ana Maria");
    }
}
