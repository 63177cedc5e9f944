//! The body of a page, from its received bytes to its visible text.

use recado_domain::brand::{PageRefusal, PageText};

use super::decode::{Charset, Decompressor};
use super::text;

/// Largest page in bytes: declared, as received, and decompressed.
const MAX_PAGE_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Html,
    Plain,
}

/// A body that is being received. It holds at most the decompressed page.
pub struct PageBody {
    media_type: String,
    kind: Kind,
    decompressor: Decompressor,
    received: usize,
}

impl PageBody {
    /// From the values of `Content-Type` and `Content-Encoding`.
    pub fn new(media_type: &str, encoding: &str) -> Result<Self, PageRefusal> {
        Ok(Self {
            media_type: media_type.to_owned(),
            kind: page_kind(media_type).ok_or(PageRefusal::MediaType)?,
            decompressor: Decompressor::new(encoding, MAX_PAGE_BYTES)?,
            received: 0,
        })
    }

    /// Checks the size that the site declares, before its body is read.
    pub fn announce(&self, bytes: u64) -> Result<(), PageRefusal> {
        match usize::try_from(bytes) {
            Ok(bytes) if bytes <= MAX_PAGE_BYTES => Ok(()),
            _ => Err(PageRefusal::TooLarge),
        }
    }

    /// Adds received bytes.
    pub fn push(&mut self, data: &[u8]) -> Result<(), PageRefusal> {
        self.received = self.received.saturating_add(data.len());
        if self.received > MAX_PAGE_BYTES {
            return Err(PageRefusal::TooLarge);
        }
        self.decompressor.push(data)
    }

    /// Extracts the text that a visitor sees. The URL stays empty.
    pub fn finish(self) -> Result<PageText, PageRefusal> {
        let bytes = self.decompressor.finish()?;
        let text = Charset::detect(&self.media_type, &bytes).decode(&bytes)?;
        drop(bytes);
        let page = match self.kind {
            Kind::Html => text::from_html(&text),
            Kind::Plain => text::from_plain(&text),
        };
        if page.text.is_empty() {
            return Err(PageRefusal::Empty);
        }
        Ok(page)
    }
}

fn page_kind(media_type: &str) -> Option<Kind> {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    match essence.to_ascii_lowercase().as_str() {
        "text/html" => Some(Kind::Html),
        "text/plain" => Some(Kind::Plain),
        _ => None,
    }
}
