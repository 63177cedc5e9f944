//! `web::multipart`: a form has the same parts in chunks of any size, and a well-formed form is read back.

use std::iter;

use bytes::Bytes;
use recado_api::web::multipart::{Form, FormEvent, Head, Malformed};

use super::control;

const BOUNDARY: &str = "x y";

/// The parts with their content, and whether the form ended.
type Parts = (Vec<(Head, Vec<u8>)>, bool);

/// The first byte is the size of the chunks, the rest is the body.
pub(super) fn run(input: &[u8]) {
    let (size, body) = control(input);
    let at_once = parse(iter::once(body));
    let in_chunks = parse(body.chunks(size.max(1)));
    assert_eq!(in_chunks, at_once, "chunks of {size} bytes");
    if let Ok((parts, _)) = at_once {
        let content: usize = parts.iter().map(|(_, content)| content.len()).sum();
        assert!(content <= body.len(), "{content} bytes of content");
    }
    if !body.windows(BOUNDARY.len()).any(|bytes| bytes == BOUNDARY.as_bytes()) {
        let form = form_with_file(body);
        let head = Head {
            name: "file".to_owned(),
            file_name: Some("a\"b".to_owned()),
        };
        let expected = (vec![(head, body.to_vec())], true);
        assert_eq!(parse(form.chunks(size.max(1))), Ok(expected), "a well-formed form");
    }
}

/// A form with one file.
fn form_with_file(content: &[u8]) -> Vec<u8> {
    let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\\\"b\"\r\n\r\n");
    [head.as_bytes(), content, format!("\r\n--{BOUNDARY}--").as_bytes()].concat()
}

fn parse<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Result<Parts, Malformed> {
    let mut parts = Vec::<(Head, Vec<u8>)>::new();
    let content_type = format!("multipart/form-data; boundary=\"{BOUNDARY}\"");
    let Some(mut form) = Form::new(&content_type) else {
        return Err(Malformed("has no boundary"));
    };
    for chunk in chunks {
        form.feed(Bytes::copy_from_slice(chunk));
        while let Some(event) = form.next_event()? {
            match (event, parts.last_mut()) {
                (FormEvent::Part(head), _) => parts.push((head, Vec::new())),
                (FormEvent::Content(bytes), Some((_, content))) => content.extend_from_slice(&bytes),
                (FormEvent::Content(_), None) => return Err(Malformed("has content before a part")),
                (FormEvent::End, _) => return Ok((parts, true)),
            }
        }
    }
    Ok((parts, false))
}
