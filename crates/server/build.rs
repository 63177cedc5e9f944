//! Extracts four files of Swagger UI from the zip archive that the crate `utoipa-swagger-ui-vendored` contains. Their
//! compressed data is reused with a gzip header, so the build neither decompresses nor downloads anything.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED as ARCHIVE;

/// The files that the server serves: the suffix of the name in the archive, and the name of the output.
const FILES: &[(&str, &str)] = &[
    ("/dist/swagger-ui-bundle.js", "swagger-ui-bundle.js.gz"),
    ("/dist/swagger-ui.css", "swagger-ui.css.gz"),
    ("/dist/favicon-32x32.png", "favicon-32x32.png.gz"),
    ("/LICENSE", "LICENSE.gz"),
];

const DIRECTORY_END: &[u8] = b"PK\x05\x06";
const ENTRY: &[u8] = b"PK\x01\x02";
const GZIP: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\x02\xff";

/// A file of the archive.
struct Entry<'a> {
    name: &'a str,
    method: u16,
    /// CRC-32 and length of the content, in the format that zip and gzip share.
    crc: &'a [u8],
    length: &'a [u8],
    packed: &'a [u8],
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    let out = env::var("OUT_DIR")?;
    let entries = entries().ok_or("the archive of Swagger UI has an unknown format")?;
    for (end, target) in FILES {
        let entry = entries.iter().find(|entry| entry.name.ends_with(end));
        let entry = entry.ok_or_else(|| format!("the archive of Swagger UI has no {end}"))?;
        fs::write(Path::new(&out).join(target), gzip(entry)?)?;
    }
    Ok(())
}

/// Reads the central directory at the end of the archive.
fn entries() -> Option<Vec<Entry<'static>>> {
    let end = ARCHIVE.windows(4).rposition(|window| window == DIRECTORY_END)?;
    let count = read_u16(end + 10)?;
    let mut at = read_u32(end + 16)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let (name, extra, comment) = (read_u16(at + 28)?, read_u16(at + 30)?, read_u16(at + 32)?);
        if ARCHIVE.get(at..at + 4)? != ENTRY {
            return None;
        }
        let local = read_u32(at + 42)?;
        let start = local + 30 + usize::from(read_u16(local + 26)?) + usize::from(read_u16(local + 28)?);
        entries.push(Entry {
            name: std::str::from_utf8(ARCHIVE.get(at + 46..at + 46 + usize::from(name))?).ok()?,
            method: read_u16(at + 10)?,
            crc: ARCHIVE.get(at + 16..at + 20)?,
            length: ARCHIVE.get(at + 24..at + 28)?,
            packed: ARCHIVE.get(start..start + read_u32(at + 20)?)?,
        });
        at += 46 + usize::from(name) + usize::from(extra) + usize::from(comment);
    }
    Some(entries)
}

fn gzip(entry: &Entry<'_>) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut file = GZIP.to_vec();
    match entry.method {
        0 => {
            // Deflate: one stored (uncompressed) block, marked as the last.
            let length = u16::try_from(entry.packed.len())?;
            file.push(1);
            file.extend(length.to_le_bytes());
            file.extend((!length).to_le_bytes());
        }
        8 => {}
        method => return Err(format!("{}: unknown compression method {method}", entry.name).into()),
    }
    file.extend([entry.packed, entry.crc, entry.length].concat());
    Ok(file)
}

fn read_u16(at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(ARCHIVE.get(at..at + 2)?.try_into().ok()?))
}

fn read_u32(at: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(ARCHIVE.get(at..at + 4)?.try_into().ok()?)).ok()
}
