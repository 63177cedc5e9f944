//! `PageBody`: a page of a website has the same text in chunks of any size, and never more than the limit.

use std::iter;

use recado_domain::brand::{PageRefusal, PageText};
use recado_gateways::brand::PageBody;

use super::control;

/// The longest text that is extracted, in characters.
const MAX_TEXT_CHARS: usize = 24_000;

const MEDIA_TYPES: [&str; 4] = [
    "text/html",
    "text/plain",
    "text/html; charset=windows-1252",
    "text/html; charset=utf-16le",
];

const ENCODINGS: [&str; 3] = ["", "gzip", "deflate"];

/// The first byte chooses media type and encoding, the second is the size of the chunks, the rest is the body.
pub(super) fn run(input: &[u8]) {
    let (choice, rest) = control(input);
    let (size, body) = control(rest);
    let media_type = MEDIA_TYPES.get(choice % MEDIA_TYPES.len()).copied().unwrap_or_default();
    let encoding = ENCODINGS.get(choice / MEDIA_TYPES.len() % ENCODINGS.len());
    let encoding = encoding.copied().unwrap_or_default();
    let at_once = read(media_type, encoding, iter::once(body));
    let in_chunks = read(media_type, encoding, body.chunks(size.max(1)));
    assert_eq!(in_chunks, at_once, "chunks of {size} bytes");
    if let Ok(page) = at_once {
        assert!(!page.text.is_empty());
        assert!(page.text.chars().count() <= MAX_TEXT_CHARS);
        let is_visible = |text: &str| !text.chars().any(|char| char.is_control() && char != '\n');
        assert!(is_visible(&page.text), "{:?}", page.text);
        assert!(page.title.as_deref().is_none_or(is_visible), "{:?}", page.title);
    }
}

fn read<'a>(media_type: &str, encoding: &str, chunks: impl Iterator<Item = &'a [u8]>) -> Result<PageText, PageRefusal> {
    let mut body = PageBody::new(media_type, encoding)?;
    for chunk in chunks {
        body.push(chunk)?;
    }
    body.finish()
}
