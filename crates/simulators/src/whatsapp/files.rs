//! The files of users' messages: `GET /{media_id}` returns where a file is, and `GET /files/{media_id}` the file.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::graph::{GraphError, bearer};
use crate::call::{Call, Reply, Response};

/// A file and the faults of its requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FileSettings {
    pub content: Vec<u8>,
    pub mime_type: String,
    /// So many requests for the file's address fail with 404.
    pub missing: u32,
    /// So many responses name a wrong hash.
    pub wrong_hashes: u32,
    /// So many responses with the file have another first byte.
    pub wrong_bytes: u32,
    /// So many responses with the file end after half of its bytes.
    pub cut_off: u32,
    /// The file is sent byte by byte, with this pause before each, in milliseconds.
    pub drip_ms: Option<u64>,
    /// The address of the file. Default: on this server.
    pub url: Option<String>,
    /// Instead of `content`, the file has this many zero bytes.
    pub zeros: Option<u64>,
    /// The delay of the file's first byte, in milliseconds.
    pub delay_ms: u64,
}

impl FileSettings {
    pub fn of(content: &[u8], mime_type: &str) -> Self {
        Self {
            content: content.to_vec(),
            mime_type: mime_type.to_owned(),
            ..Self::default()
        }
    }

    /// As the callback of a message names it.
    pub fn callback_sha256(&self) -> String {
        STANDARD.encode(Sha256::digest(&self.content))
    }
}

#[derive(Debug, Default)]
pub(super) struct Files(HashMap<String, FileSettings>);

impl Files {
    pub(super) fn add(&mut self, file: FileSettings) -> String {
        let id = (Uuid::new_v4().as_u128() % 10_000_000_000_000_000).to_string();
        self.0.insert(id.clone(), file);
        id
    }

    /// `GET /{media_id}`. None: no file has this id.
    pub(super) fn locate(&mut self, id: &str, call: &Call) -> Option<Result<Response, GraphError>> {
        let file = self.0.get_mut(id)?;
        if file.missing > 0 {
            file.missing = file.missing.saturating_sub(1);
            let error = GraphError::new(100, "Unsupported get request: the object does not exist.");
            return Some(Err(error.with_status(404)));
        }
        let here = || format!("http://{}/files/{id}", call.header("host").unwrap_or_default());
        let hash = if file.wrong_hashes > 0 {
            file.wrong_hashes = file.wrong_hashes.saturating_sub(1);
            hex::encode([0; 32])
        } else {
            hex::encode(Sha256::digest(&file.content))
        };
        let mut body = json!({ "messaging_product": "whatsapp", "url": file.url.clone().unwrap_or_else(here),
            "mime_type": file.mime_type, "id": id });
        if let (Value::Object(fields), None) = (&mut body, file.zeros) {
            fields.insert("sha256".to_owned(), json!(hash));
            fields.insert("file_size".to_owned(), json!(file.content.len().to_string()));
        }
        Some(Ok(Response::ok(&body)))
    }

    /// `GET /files/{media_id}`, with the token of a business.
    pub(super) fn serve(&mut self, id: &str, call: &Call) -> Response {
        if bearer(call).is_empty() {
            return Response::raw(401, "");
        }
        let Some(file) = self.0.get_mut(id) else {
            return Response::raw(404, "");
        };
        let (status, mut body) = (200, file.content.clone());
        if file.wrong_bytes > 0 {
            file.wrong_bytes = file.wrong_bytes.saturating_sub(1);
            // Text stays text.
            body.iter_mut().take(1).for_each(|byte| *byte ^= 1);
        }
        let response = match (file.zeros, file.drip_ms) {
            (Some(bytes), _) => Response::now(Reply::Flood { status, bytes }),
            (None, Some(pause)) => Response::now(Reply::Drip {
                status,
                body,
                pause: Duration::from_millis(pause),
            }),
            (None, None) if file.cut_off > 0 => {
                file.cut_off = file.cut_off.saturating_sub(1);
                let (length, half) = (body.len(), body.len() / 2);
                Response::now(Reply::CutOff {
                    status,
                    body: body.into_iter().take(half).collect(),
                    length: u64::try_from(length).unwrap_or(u64::MAX),
                })
            }
            (None, None) => Response::raw(status, body).with_header("Content-Type", &file.mime_type),
        };
        response.delayed(file.delay_ms)
    }
}
