//! Extracts four files of Swagger UI from the zip archive that the crate `utoipa-swagger-ui-vendored` contains. Their
//! compressed data is reused with a gzip header, so the build neither decompresses nor downloads anything.

use std::error::Error;
use std::io::{Cursor, Read as _};
use std::path::Path;
use std::{env, fs};

use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED;
use zip::read::ZipFile;
use zip::{CompressionMethod, ZipArchive};

/// The files that the server serves: the suffix of the name in the archive, and the name of the output.
const FILES: &[(&str, &str)] = &[
    ("/dist/swagger-ui-bundle.js", "swagger-ui-bundle.js.gz"),
    ("/dist/swagger-ui.css", "swagger-ui.css.gz"),
    ("/dist/favicon-32x32.png", "favicon-32x32.png.gz"),
    ("/LICENSE", "LICENSE.gz"),
];

const GZIP: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\x02\xff";

type Archive = Cursor<&'static [u8]>;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    let out = env::var("OUT_DIR")?;
    let mut archive = ZipArchive::new(Cursor::new(SWAGGER_UI_VENDORED))?;
    for (suffix, target) in FILES {
        let index = archive
            .file_names_raw()
            .position(|name| name.ends_with(suffix.as_bytes()))
            .ok_or_else(|| format!("the archive of Swagger UI has no {suffix}"))?;
        fs::write(Path::new(&out).join(target), gzip(archive.by_index_raw(index)?)?)?;
    }
    Ok(())
}

/// Wraps the compressed data of a file. Zip and gzip share the format of the data and of the checksum.
fn gzip(mut entry: ZipFile<'_, Archive>) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut file = GZIP.to_vec();
    match entry.compression() {
        CompressionMethod::Stored => {
            // Deflate: one stored (uncompressed) block, marked as the last.
            let length = u16::try_from(entry.size())?;
            file.push(1);
            file.extend(length.to_le_bytes());
            file.extend((!length).to_le_bytes());
        }
        CompressionMethod::DEFLATE => {}
        method => return Err(format!("the archive of Swagger UI uses {method}").into()),
    }
    entry.read_to_end(&mut file)?;
    file.extend(entry.crc32().to_le_bytes());
    file.extend(u32::try_from(entry.size())?.to_le_bytes());
    Ok(file)
}
