//! Decodes a response body to text: decompresses it within a limit, then decodes its character set.

use std::io::{self, Write};

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use recado_domain::brand::PageRefusal;

/// Bytes in which the page's `meta` charset is searched (WHATWG prescan).
const PRESCAN_BYTES: usize = 1024;

/// Streaming decompressor that never holds more than the limit.
pub(super) enum Decompressor {
    Plain(CappedBuffer),
    Gzip(MultiGzDecoder<CappedBuffer>),
    Deflate(ZlibDecoder<CappedBuffer>),
}

impl Decompressor {
    /// `encoding` is the value of `Content-Encoding`. Multiple encodings are refused.
    pub(super) fn new(encoding: &str, limit: usize) -> Result<Self, PageRefusal> {
        let sink = CappedBuffer {
            bytes: Vec::new(),
            limit,
            full: false,
        };
        match encoding.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(Self::Plain(sink)),
            "gzip" | "x-gzip" => Ok(Self::Gzip(MultiGzDecoder::new(sink))),
            "deflate" => Ok(Self::Deflate(ZlibDecoder::new(sink))),
            _ => Err(PageRefusal::Encoding),
        }
    }

    pub(super) fn push(&mut self, data: &[u8]) -> Result<(), PageRefusal> {
        let written = match self {
            Self::Plain(sink) => sink.write_all(data),
            Self::Gzip(decoder) => decoder.write_all(data),
            Self::Deflate(decoder) => decoder.write_all(data),
        };
        written.map_err(|_| self.refusal())
    }

    pub(super) fn finish(mut self) -> Result<Vec<u8>, PageRefusal> {
        let finished = match &mut self {
            Self::Plain(_) => Ok(()),
            Self::Gzip(decoder) => decoder.try_finish(),
            Self::Deflate(decoder) => decoder.try_finish(),
        };
        finished.map_err(|_| self.refusal())?;
        let sink = match &mut self {
            Self::Plain(sink) => sink,
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Deflate(decoder) => decoder.get_mut(),
        };
        Ok(std::mem::take(&mut sink.bytes))
    }

    fn refusal(&self) -> PageRefusal {
        let sink = match self {
            Self::Plain(sink) => sink,
            Self::Gzip(decoder) => decoder.get_ref(),
            Self::Deflate(decoder) => decoder.get_ref(),
        };
        if sink.full {
            PageRefusal::TooLarge
        } else {
            PageRefusal::Broken
        }
    }
}

/// A buffer with a limit.
pub(super) struct CappedBuffer {
    bytes: Vec<u8>,
    limit: usize,
    full: bool,
}

impl Write for CappedBuffer {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + data.len() > self.limit {
            self.full = true;
            return Err(io::Error::other("full"));
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The character set of a page.
pub(super) struct Charset(&'static Encoding);

impl Charset {
    /// From the byte order mark, else the header, else the page's `meta`, else UTF-8.
    pub(super) fn detect(media_type: &str, bytes: &[u8]) -> Self {
        let from_bom = Encoding::for_bom(bytes).map(|(encoding, _)| encoding);
        let from_header = || charset_parameter(media_type).and_then(|label| Encoding::for_label(label.as_bytes()));
        Self(
            from_bom
                .or_else(from_header)
                .or_else(|| meta_charset(bytes))
                .unwrap_or(UTF_8),
        )
    }

    /// Fails if the bytes are not valid in the character set.
    pub(super) fn decode(&self, bytes: &[u8]) -> Result<String, PageRefusal> {
        let (text, _, has_errors) = self.0.decode(bytes);
        if has_errors {
            return Err(PageRefusal::Encoding);
        }
        Ok(text.into_owned())
    }
}

fn charset_parameter(media_type: &str) -> Option<&str> {
    let parameters = media_type.split(';').skip(1);
    let mut pairs = parameters.filter_map(|parameter| parameter.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))?;
    Some(value.trim().trim_matches('"'))
}

/// The charset of the page's `meta`. A `meta` that was readable as ASCII is not UTF-16, so that means UTF-8.
fn meta_charset(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = bytes.get(..bytes.len().min(PRESCAN_BYTES))?.to_ascii_lowercase();
    let head = String::from_utf8_lossy(&head).into_owned();
    let tags = head.split("<meta").skip(1).filter_map(|rest| rest.split('>').next());
    let labels = tags.filter_map(|tag| {
        let (_, value) = tag.split_once("charset")?;
        let value = value.trim_start().strip_prefix('=')?.trim_start();
        let value = value.trim_start_matches(['"', '\'']);
        value.split(|c: char| c.is_whitespace() || "\"';/".contains(c)).next()
    });
    let charset = labels
        .filter_map(|label| Encoding::for_label(label.as_bytes()))
        .next()?;
    if [UTF_16LE, UTF_16BE].contains(&charset) {
        return Some(UTF_8);
    }
    Some(charset)
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(data: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    /// Decompresses in chunks of seven bytes.
    fn decompress(encoding: &str, data: &[u8], limit: usize) -> Result<Vec<u8>, PageRefusal> {
        let mut decompressor = Decompressor::new(encoding, limit)?;
        for chunk in data.chunks(7) {
            decompressor.push(chunk)?;
        }
        decompressor.finish()
    }

    #[test]
    fn compressed_bodies_are_decoded_up_to_the_limit() {
        let page = b"pagina ".repeat(100);
        assert_eq!(decompress("", &page, 700), Ok(page.clone()));
        assert_eq!(decompress(" GZIP ", &gzip(&page), 700), Ok(page.clone()));
        assert_eq!(decompress("deflate", &zlib(&page), 700), Ok(page.clone()));
        let two = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(decompress("x-gzip", &two, 700), Ok(b"one two".to_vec()));
        for (encoding, data) in [
            ("identity", page.clone()),
            ("gzip", gzip(&page)),
            ("deflate", zlib(&page)),
        ] {
            assert_eq!(
                decompress(encoding, &data, 699),
                Err(PageRefusal::TooLarge),
                "{encoding}"
            );
        }
    }

    #[test]
    fn decompression_bomb_is_refused_at_the_limit() {
        let bomb = gzip(&vec![0; 64 << 20]);
        assert!(bomb.len() < 1 << 17);
        let mut decompressor = Decompressor::new("gzip", 1 << 20).unwrap();
        let refusal = bomb.chunks(1024).find_map(|chunk| decompressor.push(chunk).err());
        assert_eq!(refusal, Some(PageRefusal::TooLarge));
    }

    #[test]
    fn undecodable_body_is_refused() {
        let cut = gzip(b"a page");
        assert_eq!(decompress("gzip", b"no gzip at all", 99), Err(PageRefusal::Broken));
        assert_eq!(decompress("gzip", &cut[..cut.len() - 9], 99), Err(PageRefusal::Broken));
        for encoding in ["br", "zstd", "gzip, gzip", "compress"] {
            assert_eq!(decompress(encoding, b"", 99), Err(PageRefusal::Encoding), "{encoding}");
        }
    }

    #[test]
    fn page_is_decoded_in_its_charset() {
        let decode = |media_type: &str, bytes: &[u8]| Charset::detect(media_type, bytes).decode(bytes);
        let meta = b"<html><meta  charset='iso-8859-1' ><p>p\xe3o".as_slice();
        let old =
            b"<META http-equiv=Content-Type content=\"text/html; charset = windows-1252\">\x93p\xe3o\x94".as_slice();
        for (media_type, bytes, ends) in [
            ("text/html", "pão".as_bytes(), "pão"),
            ("text/html; charset=ISO-8859-1", b"p\xe3o".as_slice(), "pão"),
            ("text/html;Charset=\"utf-8\"", "pão".as_bytes(), "pão"),
            ("text/html; charset=unknown", "pão".as_bytes(), "pão"),
            ("text/html", meta, "pão"),
            ("text/html", old, "“pão”"),
            ("text/html; charset=latin1", b"\xef\xbb\xbfp\xc3\xa3o".as_slice(), "pão"),
            ("text/html", b"\xff\xfep\0\xe3\0o\0".as_slice(), "pão"),
            ("text/html", b"<meta charset=utf-16>p\xc3\xa3o".as_slice(), "pão"),
        ] {
            let read = decode(media_type, bytes).unwrap();
            assert!(read.ends_with(ends), "{media_type}: {read}");
        }
        for (media_type, bytes) in [
            ("text/html", b"p\xe3o".as_slice()),
            ("text/html; charset=utf-8", b"\xff\xfe\xfd\xc3".as_slice()),
            ("text/plain; charset=utf-8", b"\xc0\x80".as_slice()),
        ] {
            let result = decode(media_type, bytes);
            // One of them begins with a UTF-16 byte order mark and is valid UTF-16.
            assert!(
                result == Err(PageRefusal::Encoding) || bytes.starts_with(b"\xff\xfe"),
                "{media_type}"
            );
        }
    }
}
