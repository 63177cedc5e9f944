//! Files: the resumable upload that yields a template's header handle, and the media of messages.

use std::collections::HashMap;

use serde_json::json;
use uuid::Uuid;

use super::graph::GraphError;
use crate::host::{Answer, Call};

const HEADER_TYPES: [&str; 5] = ["application/pdf", "image/jpeg", "image/jpg", "image/png", "video/mp4"];

#[derive(Debug)]
struct Upload {
    length: usize,
    received: usize,
}

#[derive(Debug, Default)]
pub(super) struct Uploads(HashMap<String, Upload>);

impl Uploads {
    /// `POST /{app_id}/uploads?file_name=&file_length=&file_type=`
    pub(super) fn open(&mut self, call: &Call) -> Result<Answer, GraphError> {
        let length = call
            .param("file_length")
            .and_then(|length| length.parse().ok())
            .unwrap_or(0);
        if length == 0 {
            return Err(GraphError::new(100, "file_length is required"));
        }
        let kind = call.param("file_type").unwrap_or_default();
        if !HEADER_TYPES.contains(&kind) {
            return Err(GraphError::new(100, format!("file_type {kind:?} is not accepted")));
        }
        let id = format!("upload:{}", Uuid::new_v4().simple());
        self.0.insert(id.clone(), Upload { length, received: 0 });
        Ok(Answer::ok(&json!({ "id": id })))
    }

    /// `POST /upload:…` with the bytes from `file_offset` on.
    pub(super) fn receive(&mut self, id: &str, call: &Call) -> Result<Answer, GraphError> {
        let upload = self.0.get_mut(id).ok_or_else(unknown)?;
        let offset = call
            .header("file_offset")
            .and_then(|offset| offset.parse::<usize>().ok());
        if offset != Some(upload.received) {
            return Err(GraphError::new(100, format!("file_offset must be {}", upload.received)));
        }
        if upload.received + call.body.len() > upload.length {
            return Err(GraphError::new(100, "more bytes than file_length"));
        }
        upload.received += call.body.len();
        if upload.received < upload.length {
            return Ok(Answer::ok(&json!({ "id": id, "file_offset": upload.received })));
        }
        let handle = id.strip_prefix("upload:").unwrap_or(id);
        Ok(Answer::ok(&json!({ "h": format!("4::{handle}") })))
    }

    /// `GET /upload:…`: where to resume.
    pub(super) fn show(&self, id: &str) -> Result<Answer, GraphError> {
        let upload = self.0.get(id).ok_or_else(unknown)?;
        Ok(Answer::ok(&json!({ "id": id, "file_offset": upload.received })))
    }
}

fn unknown() -> GraphError {
    GraphError::new(100, "Unsupported request: the upload session does not exist.")
}

/// `POST /{phone_number_id}/media`: the file itself is not kept.
pub(super) fn media(call: &Call) -> Result<Answer, GraphError> {
    let multipart = call
        .header("content-type")
        .is_some_and(|kind| kind.starts_with("multipart/form-data"));
    if !multipart || call.body.is_empty() {
        return Err(GraphError::new(
            100,
            "a multipart body with messaging_product, type and file is required",
        ));
    }
    let id = Uuid::new_v4().as_u128() % 10_000_000_000_000_000;
    Ok(Answer::ok(&json!({ "id": id.to_string() })))
}
