//! `multipart/form-data` (RFC 7578) as it comes: never more in memory than a piece of the body, the head of a part, and
//! what may be the beginning of a boundary. Content is passed on where it lies.

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memmem;

/// The longest boundary (RFC 2046, section 5.1.1), and the longest head of a part, in bytes.
const BOUNDARY_BYTES: usize = 70;
const HEAD_BYTES: usize = 8 * 1024;

/// How many spaces may follow a boundary.
const PADDING_BYTES: usize = 64;

/// What comes next in a form.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A part begins.
    Part(Head),
    /// The next piece of its content.
    Content(Bytes),
    /// The form is complete.
    End,
}

/// The head of a part.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The field's name.
    pub name: String,
    /// What the client calls the file.
    pub file_name: Option<String>,
}

/// The body is no form, or one that is not taken. The text is for the caller.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

#[derive(Clone, Copy)]
enum State {
    Preamble,
    /// Just behind a boundary.
    Boundary,
    Head,
    Content,
    End,
}

/// Reads a form. Fed by [`Form::feed`], it tells by [`Form::next_event`] what is in it, until that wants more.
pub struct Form {
    delimiter: Vec<u8>,
    buffer: BytesMut,
    /// Content that came when nothing was kept: it is not copied.
    piece: Bytes,
    state: State,
}

impl Form {
    /// By the value of `Content-Type`; none when it names no usable boundary.
    pub fn new(content_type: &str) -> Option<Self> {
        let boundary = parameter(content_type.split_once(';')?.1, "boundary")?;
        let fits =
            (1..=BOUNDARY_BYTES).contains(&boundary.len()) && boundary.bytes().all(|b| (b' '..=b'~').contains(&b));
        fits.then(|| Self {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            // As if a line had ended before, so that the first boundary looks like all others.
            buffer: BytesMut::from(&b"\r\n"[..]),
            piece: Bytes::new(),
            state: State::Preamble,
        })
    }

    /// Takes a piece of the body, once nothing more comes of the one before.
    pub fn feed(&mut self, piece: Bytes) {
        if matches!(self.state, State::Content) && self.buffer.is_empty() && self.piece.is_empty() {
            self.piece = piece;
        } else {
            self.buffer.extend_from_slice(&piece);
        }
    }

    /// What comes next; none: more of the body is needed.
    pub fn next_event(&mut self) -> Result<Option<Event>, Malformed> {
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
                    Some(content) => return Ok(Some(Event::Content(content))),
                    None => return Ok(None),
                },
                State::End => {
                    self.buffer.clear();
                    return Ok(Some(Event::End));
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
                let kept = self.delimiter.len().saturating_sub(1);
                self.buffer.advance(self.buffer.len().saturating_sub(kept));
                false
            }
        }
    }

    /// `--` ends the form; an end of line, after spaces, begins a part.
    fn after_boundary(&mut self) -> Result<Option<State>, Malformed> {
        if self.buffer.starts_with(b"--") {
            return Ok(Some(State::End));
        }
        let spaces = self.buffer.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
        let rest = self.buffer.get(spaces..).unwrap_or_default();
        if rest.starts_with(b"\r\n") {
            // The end of line stays: a head without any line then ends like every other.
            self.buffer.advance(spaces);
            return Ok(Some(State::Head));
        }
        let undecided = rest.is_empty() || rest == b"\r" || (rest == b"-" && spaces == 0);
        if undecided && spaces <= PADDING_BYTES {
            Ok(None)
        } else {
            Err(Malformed("is no form: a boundary is not followed by an end of line"))
        }
    }

    fn head(&mut self) -> Result<Option<Event>, Malformed> {
        let found = memmem::find(&self.buffer, b"\r\n\r\n");
        match found {
            Some(end) if end <= HEAD_BYTES => {
                let head = self.buffer.split_to(end);
                self.buffer.advance(4);
                self.state = State::Content;
                Ok(Some(Event::Part(read_head(&head))))
            }
            None if self.buffer.len() <= HEAD_BYTES => Ok(None),
            _ => Err(Malformed("holds a part whose head is too long")),
        }
    }

    /// What is surely content; empty: it is over; none: the rest may be the beginning of a boundary.
    fn content(&mut self) -> Option<Bytes> {
        let mut rest = std::mem::take(&mut self.piece);
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
                let sure = rest.len().saturating_sub(beginning(&rest, &self.delimiter));
                (sure > 0).then(|| rest.split_to(sure))
            }
        };
        self.buffer.extend_from_slice(&rest);
        content
    }
}

/// How many bytes at the end of a text may be the beginning of a delimiter, which is not in it as a whole.
fn beginning(text: &[u8], delimiter: &[u8]) -> usize {
    let longest = text.len().min(delimiter.len().saturating_sub(1));
    let may_be = |kept: &usize| {
        delimiter
            .get(..*kept)
            .is_some_and(|beginning| text.ends_with(beginning))
    };
    (1..=longest).rev().find(may_be).unwrap_or(0)
}

fn read_head(head: &[u8]) -> Head {
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

/// The value of a parameter in `a=b; c="d"`.
fn parameter(text: &str, wanted: &str) -> Option<String> {
    let mut rest = text;
    loop {
        let (name, after) = rest.split_once('=')?;
        let (value, beyond) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => unquoted(quoted),
            None => {
                let (value, beyond) = after.split_once(';').unwrap_or((after, ""));
                (value.trim().to_owned(), beyond)
            }
        };
        if name.trim_matches([' ', '\t', ';']).eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = beyond;
    }
}

/// Up to the closing quote. A backslash is a sign like others, unless it stands before a quote: some clients send the
/// paths of their machine.
fn unquoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut signs = text.char_indices().peekable();
    while let Some((at, sign)) = signs.next() {
        match sign {
            '"' => return (value, text.get(at + 1..).unwrap_or_default()),
            '\\' if signs.peek().is_some_and(|(_, next)| *next == '"') => {
                value.push('"');
                signs.next();
            }
            sign => value.push(sign),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=\"x y\"";

    type Parts = Vec<(Head, Vec<u8>)>;

    /// Every part with its content, and whether the form ended; fed in pieces of so many bytes.
    fn parts(body: &[u8], size: usize) -> Result<(Parts, bool), Malformed> {
        let mut form = Form::new(TYPE).unwrap();
        let mut parts = Parts::new();
        for piece in body.chunks(size) {
            form.feed(Bytes::copy_from_slice(piece));
            loop {
                match form.next_event()? {
                    Some(Event::Part(head)) => parts.push((head, vec![])),
                    Some(Event::Content(content)) => parts.last_mut().unwrap().1.extend_from_slice(&content),
                    Some(Event::End) => return Ok((parts, true)),
                    None => break,
                }
            }
            assert!(form.buffer.len() <= HEAD_BYTES + size + BOUNDARY_BYTES);
        }
        Ok((parts, false))
    }

    #[test]
    fn a_form_is_the_same_in_whatever_pieces_it_comes() {
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

    #[test]
    fn content_is_passed_on_where_it_lies_but_for_what_may_be_a_boundary() {
        let mut form = Form::new(TYPE).unwrap();
        form.feed(Bytes::from_static(b"--x y\r\n\r\n\r\n"));
        assert_eq!(form.next_event().unwrap(), Some(Event::Part(Head::default())));
        assert_eq!(
            form.next_event().unwrap(),
            None,
            "may be the end of a line before a boundary"
        );
        let mut content = |piece: &'static [u8]| {
            form.feed(Bytes::from_static(piece));
            let event = form.next_event().unwrap();
            assert_eq!(form.next_event().unwrap(), None);
            match event {
                Some(Event::Content(content)) => content,
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
    fn what_is_no_form_is_told() {
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
    fn a_boundary_is_needed() {
        let of = |text: &str| Form::new(text).map(|form| String::from_utf8(form.delimiter).unwrap());
        assert_eq!(
            of("multipart/form-data; charset=x; boundary=abc").as_deref(),
            Some("\r\n--abc")
        );
        assert_eq!(
            of("multipart/form-data; boundary=\"a;b\"; x=y").as_deref(),
            Some("\r\n--a;b")
        );
        let long = format!("multipart/form-data; boundary={}", "a".repeat(71));
        for none in [
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "x; boundary=\"é\"",
            &long,
        ] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn names_are_read_as_clients_write_them() {
        let name = |value: &str| read_head(format!("Content-Disposition: form-data; {value}").as_bytes()).file_name;
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
