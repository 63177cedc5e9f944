//! Files: the resumable upload that yields a template's header handle, and the media of messages.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use uuid::Uuid;

use super::graph::GraphError;
use crate::call::{Call, Response};

const HEADER_TYPES: [&str; 5] = ["application/pdf", "image/jpeg", "image/jpg", "image/png", "video/mp4"];

#[derive(Debug)]
struct Upload {
    length: usize,
    received: usize,
}

#[derive(Debug, Default)]
pub(super) struct Uploads {
    open: HashMap<String, Upload>,
    handles: HashSet<String>,
    files: HashSet<String>,
}

impl Uploads {
    /// `POST /{app_id}/uploads?file_name=&file_length=&file_type=`
    pub(super) fn open(&mut self, call: &Call) -> Result<Response, GraphError> {
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
        self.open.insert(id.clone(), Upload { length, received: 0 });
        Ok(Response::ok(&json!({ "id": id })))
    }

    /// `POST /upload:…`: the bytes from `file_offset` on.
    pub(super) fn receive(&mut self, id: &str, call: &Call) -> Result<Response, GraphError> {
        if !call
            .header("authorization")
            .is_some_and(|header| header.starts_with("OAuth "))
        {
            return Err(GraphError::new(
                100,
                "an upload requires the header Authorization: OAuth <token>",
            ));
        }
        let upload = self.open.get_mut(id).ok_or_else(unknown)?;
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
            return Ok(Response::ok(&json!({ "id": id, "file_offset": upload.received })));
        }
        let handle = format!("4::{}", id.strip_prefix("upload:").unwrap_or(id));
        self.handles.insert(handle.clone());
        Ok(Response::ok(&json!({ "h": handle })))
    }

    /// `GET /upload:…`: the offset at which to resume.
    pub(super) fn show(&self, id: &str) -> Result<Response, GraphError> {
        let upload = self.open.get(id).ok_or_else(unknown)?;
        Ok(Response::ok(&json!({ "id": id, "file_offset": upload.received })))
    }

    /// `POST /{phone_number_id}/media`: stores the id, not the file.
    pub(super) fn media(&mut self, call: &Call) -> Result<Response, GraphError> {
        let multipart = call
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("multipart/form-data"));
        let holds = |text: &str| call.body.windows(text.len()).any(|window| window == text.as_bytes());
        let complete = ["name=\"messaging_product\"", "name=\"type\"", "name=\"file\""]
            .into_iter()
            .all(holds);
        if !multipart || !complete {
            return Err(GraphError::new(
                100,
                "a multipart body with messaging_product, type and file is required",
            ));
        }
        let id = (Uuid::new_v4().as_u128() % 10_000_000_000_000_000).to_string();
        self.files.insert(id.clone());
        Ok(Response::ok(&json!({ "id": id })))
    }

    /// Checks that every file that a send references by id was uploaded.
    pub(super) fn check_files(&self, template: &Value) -> Result<(), GraphError> {
        match find(template, &|key, value| {
            matches!(key, "image" | "video" | "document")
                .then(|| value.get("id")?.as_str())
                .flatten()
        }) {
            ids if ids.iter().all(|id| self.files.contains(*id)) => Ok(()),
            ids => Err(GraphError::new(
                131_053,
                format!("one of the files {ids:?} was never uploaded"),
            )),
        }
    }

    /// Checks that every handle in a template's definition belongs to a complete upload.
    pub(super) fn check_handles(&self, definition: &Value) -> Result<(), GraphError> {
        match find(definition, &|key, value| {
            (key == "header_handle").then(|| value.get(0)?.as_str()).flatten()
        }) {
            handles if handles.iter().all(|handle| self.handles.contains(*handle)) => Ok(()),
            handles => Err(GraphError::new(
                2_388_047,
                format!("one of the handles {handles:?} is unknown"),
            )),
        }
    }
}

/// Collects what `select` returns for the fields of a value, at any depth.
fn find<'a>(value: &'a Value, select: &dyn Fn(&str, &'a Value) -> Option<&'a str>) -> Vec<&'a str> {
    match value {
        Value::Object(fields) => {
            let here = fields.iter().filter_map(|(key, value)| select(key, value));
            let below = fields.values().flat_map(|value| find(value, select));
            here.chain(below).collect()
        }
        Value::Array(items) => items.iter().flat_map(|item| find(item, select)).collect(),
        _ => vec![],
    }
}

fn unknown() -> GraphError {
    GraphError::new(100, "Unsupported request: the upload session does not exist.")
}
