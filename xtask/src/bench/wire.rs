//! The two protocols on a bare socket, one question after the other: nothing between the clock and the server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use crate::error::{Context, Result, fail};

const PATIENCE: Duration = Duration::from_secs(10);

/// An open connection.
pub(super) struct Wire {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Wire {
    pub(super) fn connect(port: u16) -> Result<Self> {
        let open = || -> std::io::Result<TcpStream> {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        Ok(Self {
            stream: open().context(|| format!("cannot connect to port {port}"))?,
            answer: Vec::new(),
        })
    }

    /// Asks, reads until `is_whole`, and says how long that took, in microseconds.
    fn ask(&mut self, question: &[u8], is_whole: fn(&[u8]) -> bool) -> Result<f64> {
        let doing = || "the connection failed".to_owned();
        self.answer.clear();
        let mut buffer = [0; 16 * 1024];
        let begun = Instant::now();
        self.stream.write_all(question).context(doing)?;
        while !is_whole(&self.answer) {
            let read = self.stream.read(&mut buffer).context(doing)?;
            if read == 0 {
                return fail("the connection was closed");
            }
            self.answer.extend_from_slice(buffer.get(..read).unwrap_or_default());
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6)
    }

    /// One HTTP request: its time, its status, and whether it was counted.
    pub(super) fn http(&mut self, request: &[u8]) -> Result<(f64, u16, bool)> {
        let time = self.ask(request, is_whole_http)?;
        let text = String::from_utf8_lossy(&self.answer);
        let status = text
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or_default();
        Ok((time, status, text.contains("x-ratelimit-limit")))
    }

    /// One Redis command: its time and its answer; fails on an error.
    pub(super) fn redis(&mut self, words: &[&str]) -> Result<(f64, String)> {
        let time = self.ask(&command(words), is_whole_redis)?;
        let text = String::from_utf8_lossy(&self.answer).into_owned();
        if text.starts_with('-') {
            return fail(format!("Redis refuses {words:?}: {text}"));
        }
        Ok((time, text))
    }
}

/// A command as clients write it.
fn command(words: &[&str]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    text.into_bytes()
}

fn is_whole_http(answer: &[u8]) -> bool {
    let Some(head) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return false;
    };
    let text = String::from_utf8_lossy(answer.get(..head).unwrap_or_default()).to_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    answer.len() >= head + 4 + length.unwrap_or_default()
}

/// A simple answer, a number, a text, or a list of numbers: what the commands used here are answered with.
fn is_whole_redis(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((first, rest)) = text.split_once("\r\n") else {
        return false;
    };
    let announced = |mark: char| first.strip_prefix(mark).and_then(|number| number.parse::<usize>().ok());
    match (announced('*'), announced('$')) {
        (Some(items), _) => rest.matches("\r\n").count() >= items,
        (None, Some(bytes)) => rest.len() >= bytes + 2,
        (None, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_end_where_they_say() {
        let http = |text: &str| is_whole_http(text.as_bytes());
        assert!(http("HTTP/1.1 422 X\r\nContent-Length: 2\r\n\r\n{}"));
        assert!(!http("HTTP/1.1 422 X\r\nContent-Length: 2\r\n\r\n{"));
        assert!(!http("HTTP/1.1 200 OK\r\ncontent-"));
        let redis = |text: &str| is_whole_redis(text.as_bytes());
        assert!(redis("+OK\r\n") && redis(":1\r\n") && redis("-ERR x\r\n"));
        assert!(redis("*3\r\n:1\r\n:29\r\n:1782000000000\r\n") && !redis("*3\r\n:1\r\n:29\r\n:178"));
        assert!(redis("$5\r\nhello\r\n") && !redis("$5\r\nhel") && !redis("$5"));
    }

    #[test]
    fn a_command_says_how_long_it_is() {
        assert_eq!(command(&["GET", "a"]), b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
    }
}
