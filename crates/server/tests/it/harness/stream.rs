//! A stream of server-sent events, as a client reads it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use super::client::{Request, connect};

/// An open event stream; closed when dropped.
pub struct Stream {
    pub status: u16,
    /// The head of the response in lower case.
    pub head: String,
    reader: BufReader<TcpStream>,
    text: String,
}

/// An event or a comment of a stream.
#[derive(Debug, PartialEq)]
pub enum StreamItem {
    Event { id: String, data: Value },
    Comment,
}

impl Stream {
    /// Opens the stream and reads the head of the response.
    pub fn open(request: &Request) -> Self {
        let mut stream = connect(request.port());
        stream.write_all(request.head("\r\n").as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "no response: {head}");
        }
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Self {
            status: status.unwrap_or_else(|| panic!("no response: {head}")),
            head: head.to_lowercase(),
            reader,
            text: String::new(),
        }
    }

    /// The next event or comment; `None` at the end of the stream.
    pub fn next(&mut self) -> Option<StreamItem> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let item = parse_item(block);
                self.text = rest.to_owned();
                return Some(item);
            }
            let chunk = self.chunk()?;
            self.text.push_str(&chunk);
        }
    }

    /// The next event. Skips comments.
    #[track_caller]
    pub fn event(&mut self) -> (String, Value) {
        loop {
            match self.next() {
                Some(StreamItem::Event { id, data }) => return (id, data),
                Some(StreamItem::Comment) => {}
                None => panic!("the stream ended"),
            }
        }
    }

    /// Waits for the end of the stream and returns the number of events before it.
    pub fn end(&mut self) -> usize {
        let mut events = 0;
        while let Some(item) = self.next() {
            events += usize::from(item != StreamItem::Comment);
        }
        events
    }

    fn chunk(&mut self) -> Option<String> {
        let mut size = String::new();
        self.reader.read_line(&mut size).ok()?;
        let size = usize::from_str_radix(size.trim(), 16).ok().filter(|size| *size > 0)?;
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).ok()?;
        chunk.truncate(size);
        Some(String::from_utf8(chunk).unwrap())
    }
}

fn parse_item(block: &str) -> StreamItem {
    let field = |name: &str| {
        let mut lines = block
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        lines.next().map(str::to_owned)
    };
    match (field("event"), field("id"), field("data")) {
        (Some(event), Some(id), Some(data)) => {
            assert_eq!(event, "notification");
            let data = serde_json::from_str(&data).unwrap();
            StreamItem::Event { id, data }
        }
        (None, None, None) => StreamItem::Comment,
        _ => panic!("neither an event nor a comment: {block}"),
    }
}
