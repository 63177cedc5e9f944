//! Template files: upload forms, and the directory of the media store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::client::Reply;
use super::text;
use super::users::User;

/// The header of a PNG image that declares 60,000 by 60,000 pixels.
pub const PNG: &[u8] = b"\x89PNG\r\n\x1A\n\0\0\0\rIHDR\0\0\xEA\x60\0\0\xEA\x60\x08\x06\0\0\0";

pub const JPEG: &[u8] = b"\xFF\xD8\xFF\xE0\0\x10JFIF\0\x01";
pub const WEBP: &[u8] = b"RIFF\x10\0\0\0WEBPVP8 ";
pub const MP4: &[u8] = b"\0\0\0\x18ftypisom\0\0\0\0";
pub const PDF: &[u8] = b"%PDF-1.7\n%\xE2\xE3\xCF\xD3\n";

pub const BOUNDARY: &str = "----recado";
pub const FORM: &str = "multipart/form-data; boundary=----recado";

/// A directory that does not exist at first, in a temporary directory; removed when dropped.
pub struct MediaDirectory {
    path: PathBuf,
    _parent: TempDir,
}

impl MediaDirectory {
    pub fn new() -> Self {
        let parent = TempDir::with_prefix("recado-it-media-").unwrap();
        Self {
            path: parent.path().join("media"),
            _parent: parent,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The relative paths of all files below the directory.
    pub fn files(&self) -> Vec<String> {
        let (mut files, mut open) = (Vec::new(), vec![self.path().to_owned()]);
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    files.push(path.strip_prefix(self.path()).unwrap().display().to_string());
                }
            }
        }
        files.sort();
        files
    }

    /// The contents of all files as text, by their relative paths.
    pub fn contents(&self) -> BTreeMap<String, String> {
        let read = |file: String| {
            let content = std::fs::read(self.path().join(&file)).unwrap_or_default();
            (file, String::from_utf8_lossy(&content).into_owned())
        };
        self.files().into_iter().map(read).collect()
    }
}

/// The boundary and headers of a part.
pub fn part_head(name: &str, file_name: &str, media_type: &str) -> String {
    format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file_name}\"\r\n\
         Content-Type: {media_type}\r\n\r\n"
    )
}

/// A multipart form. Each part has a field name, file name and content.
pub fn form(parts: &[(&str, &str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file_name, content) in parts {
        body.extend_from_slice(part_head(name, file_name, "image/png").as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    body
}

impl User<'_> {
    pub fn upload(&self, name: &str, content: &[u8]) -> Reply {
        self.upload_form(form(&[("file", name, content)]))
    }

    pub fn upload_form(&self, body: Vec<u8>) -> Reply {
        self.request("POST", "/api/templates/media/upload")
            .body(FORM, body)
            .send()
    }

    /// Creates a draft template with this file as its header and returns its id.
    #[track_caller]
    pub fn template_with_file(&self, name: &str, header_type: &str, url: &str) -> String {
        let body = json!({ "name": name, "category": "MARKETING", "language": "pt_BR", "template_type": "standard",
                           "header_type": header_type, "header_media_url": url, "body_text": "Oi!" });
        text(&self.post("/api/templates", body).created()["id"])
    }
}
