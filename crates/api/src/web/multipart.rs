//! A streaming parser of `multipart/form-data` (RFC 7578). It buffers at most one chunk of the body, one part head and
//! a possible boundary prefix. Content is passed on without copying.

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memmem;

/// The maximum length of a boundary in bytes (RFC 2046, section 5.1.1).
const BOUNDARY_BYTES: usize = 70;

/// The maximum size of a part's head in bytes.
const HEAD_BYTES: usize = 8 * 1024;

/// The maximum number of spaces after a boundary.
const PADDING_BYTES: usize = 64;

/// A parsed element of a form.
#[derive(Debug, PartialEq, Eq)]
pub enum FormEvent {
    /// A part begins.
    Part(Head),
    /// The next bytes of the current part's content.
    Content(Bytes),
    /// The form is complete.
    End,
}

/// The head of a part.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The field's name. Empty if the part has none.
    pub name: String,
    /// The file name that the client sent.
    pub file_name: Option<String>,
}

/// The body is not a valid form. The message is for the client.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

#[derive(Clone, Copy)]
enum State {
    Preamble,
    /// Directly after a boundary.
    Boundary,
    Head,
    Content,
    End,
}

/// The parser. [`Form::feed`] adds a chunk; [`Form::next_event`] returns events until it needs another chunk.
pub struct Form {
    delimiter: Vec<u8>,
    buffer: BytesMut,
    /// A chunk of content that arrived while `buffer` was empty: it is passed on without copying.
    chunk: Bytes,
    state: State,
}

impl Form {
    /// Reads the boundary from the value of `Content-Type`. None: it has no valid boundary.
    pub fn new(content_type: &str) -> Option<Self> {
        let boundary = parameter(content_type.split_once(';')?.1, "boundary")?;
        let is_valid =
            (1..=BOUNDARY_BYTES).contains(&boundary.len()) && boundary.bytes().all(|b| (b' '..=b'~').contains(&b));
        is_valid.then(|| Self {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            // Begins with a line end, so that the first boundary looks like all others.
            buffer: BytesMut::from(&b"\r\n"[..]),
            chunk: Bytes::new(),
            state: State::Preamble,
        })
    }

    /// Adds the next chunk of the body. Call it only after [`Form::next_event`] returned None.
    pub fn feed(&mut self, chunk: Bytes) {
        if matches!(self.state, State::Content) && self.buffer.is_empty() && self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            self.buffer.extend_from_slice(&chunk);
        }
    }

    /// Returns the next event. None: the parser needs another chunk.
    pub fn next_event(&mut self) -> Result<Option<FormEvent>, Malformed> {
        loop {
            match self.state {
                State::Preamble => {
                    if !self.skip_preamble() {
                        return Ok(None);
                    }
                }
                State::Boundary => match self.after_boundary()? {
                    Some(state) => self.state = state,
                    None => return Ok(None),
                },
                State::Head => return self.head(),
                State::Content => match self.content() {
                    Some(content) if content.is_empty() => self.state = State::Boundary,
                    Some(content) => return Ok(Some(FormEvent::Content(content))),
                    None => return Ok(None),
                },
                State::End => {
                    self.buffer.clear();
                    return Ok(Some(FormEvent::End));
                }
            }
        }
    }

    fn skip_preamble(&mut self) -> bool {
        match memmem::find(&self.buffer, &self.delimiter) {
            Some(at) => {
                self.buffer.advance(at.saturating_add(self.delimiter.len()));
                self.state = State::Boundary;
                true
            }
            None => {
                let tail = self.delimiter.len().saturating_sub(1);
                self.buffer.advance(self.buffer.len().saturating_sub(tail));
                false
            }
        }
    }

    /// `--` ends the form. A line end, possibly after spaces, begins a part.
    fn after_boundary(&mut self) -> Result<Option<State>, Malformed> {
        if self.buffer.starts_with(b"--") {
            return Ok(Some(State::End));
        }
        let spaces = self.buffer.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
        let rest = self.buffer.get(spaces..).unwrap_or_default();
        if rest.starts_with(b"\r\n") && spaces <= PADDING_BYTES {
            // Leaves the line end in the buffer: an empty head then ends like every other.
            self.buffer.advance(spaces);
            return Ok(Some(State::Head));
        }
        let is_incomplete = rest.is_empty() || rest == b"\r" || (rest == b"-" && spaces == 0);
        if is_incomplete && spaces <= PADDING_BYTES {
            Ok(None)
        } else {
            Err(Malformed(
                "is not a valid form: a boundary is not followed by a line end",
            ))
        }
    }

    fn head(&mut self) -> Result<Option<FormEvent>, Malformed> {
        let found = memmem::find(&self.buffer, b"\r\n\r\n");
        match found {
            Some(end) if end <= HEAD_BYTES => {
                let head = self.buffer.split_to(end);
                self.buffer.advance(4);
                self.state = State::Content;
                Ok(Some(FormEvent::Part(parse_head(&head))))
            }
            None if self.buffer.len() <= HEAD_BYTES => Ok(None),
            _ => Err(Malformed("has a part whose head is longer than 8 KiB")),
        }
    }

    /// Returns the bytes that are certainly content. Empty: the part ends here. None: the rest may begin a boundary.
    fn content(&mut self) -> Option<Bytes> {
        let mut rest = std::mem::take(&mut self.chunk);
        if rest.is_empty() {
            rest = self.buffer.split().freeze();
        }
        let content = match memmem::find(&rest, &self.delimiter) {
            Some(0) => {
                rest.advance(self.delimiter.len());
                Some(Bytes::new())
            }
            Some(at) => Some(rest.split_to(at)),
            None => {
                let length = rest
                    .len()
                    .saturating_sub(boundary_prefix_length(&rest, &self.delimiter));
                (length > 0).then(|| rest.split_to(length))
            }
        };
        self.buffer.extend_from_slice(&rest);
        content
    }
}

/// The length of the longest suffix of `text` that is a proper prefix of `delimiter`.
fn boundary_prefix_length(text: &[u8], delimiter: &[u8]) -> usize {
    let longest = text.len().min(delimiter.len().saturating_sub(1));
    let is_suffix = |length: &usize| delimiter.get(..*length).is_some_and(|prefix| text.ends_with(prefix));
    (1..=longest).rev().find(is_suffix).unwrap_or(0)
}

fn parse_head(head: &[u8]) -> Head {
    let head = String::from_utf8_lossy(head);
    let is_disposition = |line: &&str| {
        let name = line.split_once(':').map(|(name, _)| name.trim());
        name.is_some_and(|name| name.eq_ignore_ascii_case("content-disposition"))
    };
    let line = head.split("\r\n").find(is_disposition).unwrap_or_default();
    let parameters = line
        .split_once(';')
        .map(|(_, parameters)| parameters)
        .unwrap_or_default();
    Head {
        name: parameter(parameters, "name").unwrap_or_default(),
        file_name: parameter(parameters, "filename"),
    }
}

/// Returns the value of a parameter in `a=b; c="d"`.
fn parameter(text: &str, expected_name: &str) -> Option<String> {
    let mut rest = text;
    loop {
        let (name, after) = rest.split_once('=')?;
        let (value, beyond) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => parse_quoted(quoted),
            None => {
                let (value, beyond) = after.split_once(';').unwrap_or((after, ""));
                (value.trim().to_owned(), beyond)
            }
        };
        if name.trim_matches([' ', '\t', ';']).eq_ignore_ascii_case(expected_name) {
            return Some(value);
        }
        rest = beyond;
    }
}

/// Returns the text up to the closing quote, and the rest. A backslash escapes only a quote, because some clients send
/// Windows paths.
fn parse_quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (value, text.get(at + 1..).unwrap_or_default()),
            '\\' if chars.peek().is_some_and(|(_, next)| *next == '"') => {
                value.push('"');
                chars.next();
            }
            char => value.push(char),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=\"x y\"";

    type Parts = Vec<(Head, Vec<u8>)>;

    /// Parses `body` in chunks of `size` bytes. Returns every part with its content, and whether the form ended.
    fn parts(body: &[u8], size: usize) -> Result<(Parts, bool), Malformed> {
        let mut form = Form::new(TYPE).unwrap();
        let mut parts = Parts::new();
        for chunk in body.chunks(size) {
            form.feed(Bytes::copy_from_slice(chunk));
            loop {
                match form.next_event()? {
                    Some(FormEvent::Part(head)) => parts.push((head, vec![])),
                    Some(FormEvent::Content(content)) => parts.last_mut().unwrap().1.extend_from_slice(&content),
                    Some(FormEvent::End) => return Ok((parts, true)),
                    None => break,
                }
            }
            assert!(form.buffer.len() <= HEAD_BYTES + size + BOUNDARY_BYTES);
        }
        Ok((parts, false))
    }

    #[test]
    fn form_parses_the_same_at_every_chunk_size() {
        let file = b"\x89PNG\r\n--x\r\n--x \r\n\r\n--x z".to_vec();
        let mut body = b"preamble\r\n--x y \t\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\noi\r\n--x y\r\n\
            content-type: text/html\r\nCONTENT-DISPOSITION: form-data; filename=\"a\\\"; name=b.png\"; name=file\r\n\r\n"
            .to_vec();
        body.extend_from_slice(&file);
        body.extend_from_slice(b"\r\n--x y\r\n\r\n\r\n--x y--epilogue");
        for size in 1..=body.len() {
            let (parts, ended) = parts(&body, size).unwrap();
            assert!(ended);
            let names: Vec<&str> = parts.iter().map(|(head, _)| head.name.as_str()).collect();
            assert_eq!(names, ["note", "file", ""]);
            assert_eq!(parts[1].0.file_name.as_deref(), Some("a\"; name=b.png"));
            assert_eq!((&parts[0].1[..], &parts[1].1, parts[2].1.len()), (&b"oi"[..], &file, 0));
        }
    }

    /// Whether the line end arrives with the spaces or later changes nothing.
    #[test]
    fn spaces_after_a_boundary_are_limited_at_every_chunk_size() {
        let body = |spaces: usize| format!("--x y{}\r\n\r\noi\r\n--x y--", " ".repeat(spaces)).into_bytes();
        let (fits, too_long) = (body(PADDING_BYTES), body(PADDING_BYTES + 1));
        for size in 1..=too_long.len() {
            assert_eq!(parts(&fits, size).unwrap().0.len(), 1, "{size}");
            assert!(parts(&too_long, size).is_err(), "{size}");
        }
    }

    #[test]
    fn content_is_not_copied_except_a_possible_boundary() {
        let mut form = Form::new(TYPE).unwrap();
        form.feed(Bytes::from_static(b"--x y\r\n\r\n\r\n"));
        assert_eq!(form.next_event().unwrap(), Some(FormEvent::Part(Head::default())));
        assert_eq!(form.next_event().unwrap(), None, "the line end may precede a boundary");
        let mut content = |chunk: &'static [u8]| {
            form.feed(Bytes::from_static(chunk));
            let event = form.next_event().unwrap();
            assert_eq!(form.next_event().unwrap(), None);
            match event {
                Some(FormEvent::Content(content)) => content,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(content(b"one"), "\r\none");
        let two = b"two\r\n--x ";
        let passed = content(two);
        assert_eq!((&passed[..], passed.as_ptr()), (&b"two"[..], two.as_ptr()));
        assert_eq!(content(b"three"), "\r\n--x three");
    }

    #[test]
    fn malformed_form_is_rejected_and_unfinished_form_waits() {
        let long = [b"--x y\r\nX: ".as_slice(), &vec![b'a'; HEAD_BYTES + 1], b"\r\n\r\n"].concat();
        let padded = [b"--x y".as_slice(), &[b' '; PADDING_BYTES + 1]].concat();
        for body in [&b"--x yz\r\n"[..], b"--x y \n", &long, &padded] {
            assert!(parts(body, 1000).is_err());
        }
        for unfinished in [
            &b""[..],
            b"--x",
            b"--x y",
            b"--x y\r\nA: b\r\n\r\nabc\r\n--x",
            &vec![b'p'; 100_000],
        ] {
            assert!(!parts(unfinished, 1000).unwrap().1);
        }
    }

    #[test]
    fn content_type_without_valid_boundary_is_rejected() {
        let delimiter_of = |text: &str| Form::new(text).map(|form| String::from_utf8(form.delimiter).unwrap());
        assert_eq!(
            delimiter_of("multipart/form-data; charset=x; boundary=abc").as_deref(),
            Some("\r\n--abc")
        );
        assert_eq!(
            delimiter_of("multipart/form-data; boundary=\"a;b\"; x=y").as_deref(),
            Some("\r\n--a;b")
        );
        let long = format!("multipart/form-data; boundary={}", "a".repeat(71));
        for invalid in [
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "x; boundary=\"é\"",
            &long,
        ] {
            assert_eq!(delimiter_of(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn file_names_parse_in_all_forms_that_clients_send() {
        let name = |value: &str| parse_head(format!("Content-Disposition: form-data; {value}").as_bytes()).file_name;
        assert_eq!(
            name(r#"name="file"; filename="C:\fotos\a.png""#).as_deref(),
            Some(r"C:\fotos\a.png")
        );
        assert_eq!(name("name=file; filename=../a.png").as_deref(), Some("../a.png"));
        assert_eq!(
            name("name=file; filename=\"never closed").as_deref(),
            Some("never closed")
        );
        assert_eq!((name("name=file"), name("")), (None, None));
    }
}
