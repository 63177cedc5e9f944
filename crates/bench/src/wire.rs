//! HTTP and Redis on a bare socket, one request at a time: no client library between the clock and the server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// An open connection.
pub(super) struct Wire {
    stream: TcpStream,
    response: Vec<u8>,
}

impl Wire {
    pub(super) fn connect(port: u16) -> Result<Self> {
        let open = || -> std::io::Result<TcpStream> {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(READ_TIMEOUT))?;
            Ok(stream)
        };
        Ok(Self {
            stream: open().with_context(|| format!("cannot connect to port {port}"))?,
            response: Vec::new(),
        })
    }

    /// Sends a request, reads until the response is complete, and returns the time that it took.
    fn exchange(&mut self, request: &[u8], is_complete: fn(&[u8]) -> bool) -> Result<Duration> {
        let doing = "the connection failed";
        self.response.clear();
        let mut buffer = [0; 16 * 1024];
        let began = Instant::now();
        self.stream.write_all(request).context(doing)?;
        while !is_complete(&self.response) {
            let read = self.stream.read(&mut buffer).context(doing)?;
            if read == 0 {
                bail!("the connection was closed");
            }
            self.response.extend_from_slice(buffer.get(..read).unwrap_or_default());
        }
        Ok(began.elapsed())
    }

    /// Sends an HTTP request. Returns its time, its status, and whether the rate limiter counted it.
    pub(super) fn http(&mut self, request: &[u8]) -> Result<(Duration, u16, bool)> {
        let time = self.exchange(request, is_complete_http)?;
        let text = String::from_utf8_lossy(&self.response);
        let status = text
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or_default();
        Ok((time, status, text.contains("x-ratelimit-limit")))
    }

    /// Sends a Redis command. Returns its time and its response; fails on a Redis error.
    pub(super) fn redis(&mut self, words: &[&str]) -> Result<(Duration, String)> {
        let time = self.exchange(&command(words), is_complete_redis)?;
        let text = String::from_utf8_lossy(&self.response).into_owned();
        if text.starts_with('-') {
            bail!("Redis refused {words:?}: {text}");
        }
        Ok((time, text))
    }
}

/// Serializes a command in the Redis protocol (RESP).
fn command(words: &[&str]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    text.into_bytes()
}

fn is_complete_http(response: &[u8]) -> bool {
    let Some(head) = response.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return false;
    };
    let text = String::from_utf8_lossy(response.get(..head).unwrap_or_default()).to_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    response.len() >= head + 4 + length.unwrap_or_default()
}

/// Handles the responses of the commands used here: a simple string, a number, a text, or a list of numbers.
fn is_complete_redis(response: &[u8]) -> bool {
    let text = String::from_utf8_lossy(response);
    let Some((first, rest)) = text.split_once("\r\n") else {
        return false;
    };
    let declared_length = |mark: char| first.strip_prefix(mark).and_then(|number| number.parse::<usize>().ok());
    match (declared_length('*'), declared_length('$')) {
        (Some(items), _) => rest.matches("\r\n").count() >= items,
        (None, Some(bytes)) => rest.len() >= bytes + 2,
        (None, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_detects_the_end_of_a_response() {
        let http = |text: &str| is_complete_http(text.as_bytes());
        assert!(http("HTTP/1.1 422 X\r\nContent-Length: 2\r\n\r\n{}"));
        assert!(!http("HTTP/1.1 422 X\r\nContent-Length: 2\r\n\r\n{"));
        assert!(!http("HTTP/1.1 200 OK\r\ncontent-"));
        let redis = |text: &str| is_complete_redis(text.as_bytes());
        assert!(redis("+OK\r\n") && redis(":1\r\n") && redis("-ERR x\r\n"));
        assert!(redis("*3\r\n:1\r\n:29\r\n:1782000000000\r\n") && !redis("*3\r\n:1\r\n:29\r\n:178"));
        assert!(redis("$5\r\nhello\r\n") && !redis("$5\r\nhel") && !redis("$5"));
    }

    #[test]
    fn redis_command_is_serialized_with_lengths() {
        assert_eq!(command(&["GET", "a"]), b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
    }
}
